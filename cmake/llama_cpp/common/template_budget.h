// How much a chat template may do: it is a program out of a model file, which may be made to do
// harm. Seen by ebb and by the patched Jinja engine of llama.cpp's common library (common.patch).
//
// Work is counted in bytes that are made, copied or looked at, and each evaluation of an expression
// counts as some; nothing is given back, so that it bounds both time and memory. Values are trees of
// bounded depth, without cycles: whoever walks over them calls itself, and cycles would never be freed.
#ifndef EBB_TEMPLATE_BUDGET_H_
#define EBB_TEMPLATE_BUDGET_H_

#include <cstddef>
#include <cstdint>
#include <stdexcept>

namespace ebb {

// While it lives, what templates do on its thread is taken from it. Without one nothing is bounded.
class TemplateBudget {
 public:
  // max_output: bytes of one rendering.
  TemplateBudget(uint64_t work, uint64_t max_output)
      : work_(work), max_output_(max_output), outer_(current_) {
    current_ = this;
  }
  ~TemplateBudget() { current_ = outer_; }
  TemplateBudget(const TemplateBudget&) = delete;
  TemplateBudget& operator=(const TemplateBudget&) = delete;

  // A template was stopped, or tried to go on after it was.
  [[nodiscard]] bool exceeded() const { return exceeded_; }

  // Throw std::runtime_error once the budget is exceeded, and ever after.
  static void Spend(uint64_t work) {
    TemplateBudget* const budget = current_;
    if (budget == nullptr) return;
    if (budget->exceeded_ || work > budget->work_) budget->Exceed();
    budget->work_ -= work;
  }
  // Of looking for one text in another: the product, as both may repeat one letter.
  static void SpendSearch(size_t text, size_t wanted) {
    if (text > kMaxSize || wanted > kMaxSize) Spend(UINT64_MAX);
    Spend(text + uint64_t{text} * wanted / 64);
  }
  // Of `times` copies of `size` bytes.
  static void SpendCopies(size_t size, size_t times) {
    if (size > kMaxSize || times > kMaxSize) Spend(UINT64_MAX);
    Spend(uint64_t{size} * times);
  }
  static void CheckOutput(size_t size) {
    if (current_ != nullptr && size > current_->max_output_) current_->Exceed();
  }

  // Calls within calls: of the parser, and of macros.
  class Level {
   public:
    Level() {
      if (++depth_ <= kMaxDepth || current_ == nullptr) return;
      --depth_;
      current_->Exceed();
    }
    ~Level() { --depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;
  };

  static constexpr int kMaxDepth = 800;        // of calls
  static constexpr int kMaxSyntaxDepth = 400;  // of a tree of expressions
  static constexpr int kMaxValueDepth = 200;
  // Throws where a budget is set.
  static void CheckDepth(int depth, int max) {
    if (current_ != nullptr && depth > max) current_->Exceed();
  }
  static bool IsSet() { return current_ != nullptr; }

 private:
  static constexpr uint64_t kMaxSize = uint64_t{1} << 31;

  [[noreturn]] void Exceed() {
    exceeded_ = true;
    throw std::runtime_error("the chat template goes beyond its limits");
  }

  uint64_t work_;
  const uint64_t max_output_;
  bool exceeded_ = false;
  TemplateBudget* const outer_;
  static inline thread_local TemplateBudget* current_ = nullptr;
  static inline thread_local int depth_ = 0;
};

// Calls within calls of the parser of answers, which calls itself for each bracket of JSON that is
// open. Throws std::runtime_error beyond a depth that fits into a thread's stack.
class AnswerLevel {
 public:
  AnswerLevel() {
    if (++depth_ <= kMaxDepth) return;
    --depth_;
    throw std::runtime_error("its brackets are nested too deeply");
  }
  ~AnswerLevel() { --depth_; }
  AnswerLevel(const AnswerLevel&) = delete;
  AnswerLevel& operator=(const AnswerLevel&) = delete;

 private:
  static constexpr int kMaxDepth = 4000;
  static inline thread_local int depth_ = 0;
};

}  // namespace ebb

#endif  // EBB_TEMPLATE_BUDGET_H_

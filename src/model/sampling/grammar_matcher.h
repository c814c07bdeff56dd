// Runs a GrammarProgram over an answer and finds the tokens that may come next.
#ifndef EBB_MODEL_SAMPLING_GRAMMAR_MATCHER_H_
#define EBB_MODEL_SAMPLING_GRAMMAR_MATCHER_H_

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "ebb/types.h"
#include "src/model/sampling/grammar_program.h"
#include "src/model/sampling/thread_sets.h"
#include "src/model/sampling/token_order.h"

namespace ebb {

// GrammarMatcher matches an answer, token by token. Each call has a budget, so that no grammar can
// block a thread that also works for others.
//
// Thread safety: one matcher belongs to one thread at a time; `const` functions write to its cache
// too.
class GrammarMatcher {
 public:
  static std::unique_ptr<GrammarMatcher> Create(std::shared_ptr<const GrammarProgram> program,
                                                std::shared_ptr<const TokenOrder> tokens);
  // Returns a copy that has read the same answer.
  [[nodiscard]] std::unique_ptr<GrammarMatcher> Clone() const;

  // Returns whether the token may come next. A token that ends the generation may come where the
  // grammar may end.
  [[nodiscard]] bool Admits(Token token) const;
  // Returns for each token of the vocabulary whether it may come next.
  [[nodiscard]] std::vector<bool> Admitted() const;
  // Appends `text`, which is the token's text or the end of it. Returns false if it may not come.
  bool Accept(Token token, std::string_view text);
  // Returns whether nothing can come next, not even an end.
  [[nodiscard]] bool IsDead() const { return place_.set == ThreadSets::kDead; }
  // Returns whether a call exceeded its budget, or the answer needs more memory than allowed. The
  // results of such a call must not be used.
  [[nodiscard]] bool is_overrun() const { return is_overrun_; }

 private:
  GrammarMatcher(std::shared_ptr<const GrammarProgram> program,
                 std::shared_ptr<const TokenOrder> tokens);
  struct Place {
    ThreadSets::Set set = ThreadSets::kDead;
    uint32_t character = 0;  // the bits so far of a character that is cut in the middle
    uint8_t missing = 0;     // its bytes that are missing
    uint8_t length = 0;      // all of its bytes
  };
  [[nodiscard]] bool Step(unsigned char byte, Place* place) const;
  // Returns whether an answer may stop at this place, which may lie in the middle of a character
  // that the next token completes.
  [[nodiscard]] bool MayStop(const Place& place) const;
  void AdmitByName(std::vector<bool>* admitted) const;
  [[nodiscard]] bool TakesText(std::string_view text, Place* place) const;
  void Begin() const { sets_->SetBudget(kBudget); }
  void End() const;

  static constexpr size_t kBudget = 400000;       // steps of a call: some 20 milliseconds
  static constexpr size_t kMostStored = 1000000;  // elements: some 16 megabytes

  std::shared_ptr<const GrammarProgram> program_;
  std::shared_ptr<const TokenOrder> tokens_;
  std::unique_ptr<ThreadSets> sets_;
  Place place_;
  mutable bool is_overrun_ = false;
};

}  // namespace ebb

#endif  // EBB_MODEL_SAMPLING_GRAMMAR_MATCHER_H_

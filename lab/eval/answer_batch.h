// AnswerBatch answers problems that step together in a batch of constant width, so that a problem's
// result does not depend on the others.
#ifndef EBB_LAB_EVAL_ANSWER_BATCH_H_
#define EBB_LAB_EVAL_ANSWER_BATCH_H_

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "ebb/engine.h"
#include "ebb/lab/eval.h"
#include "lab/eval/answering.h"

namespace ebb {

// Returns whether answers under both settings can be in one batch: their engines differ at most in
// the shares of tiers, which sessions set themselves.
[[nodiscard]] bool ShareAnEngine(const EvalSetting& a, const EvalSetting& b);

class AnswerBatch {
 public:
  // Makes a batch with `width` places on one engine with `threads` threads. Errors: those of
  // Engine::Create(). REQUIRES: CheckBatch(setting, width) returned OK.
  static Result<std::unique_ptr<AnswerBatch>> Create(std::shared_ptr<const Model> model,
                                                     const EvalSetting& setting, int width,
                                                     int threads);
  ~AnswerBatch();
  AnswerBatch(const AnswerBatch&) = delete;
  AnswerBatch& operator=(const AnswerBatch&) = delete;

  [[nodiscard]] bool HasPlace() const;
  [[nodiscard]] bool IsEmpty() const;
  // Begins a problem in a free place: opens a session and reads the prompt. REQUIRES: HasPlace().
  Status Begin(size_t unit, const Answering::Task& task, const EvaluationOptions& options);
  // Decodes one token of each problem, and calls `done` with each answer that ends. An error of one
  // problem becomes part of its answer; an error of the whole step is returned.
  Status Step(const std::function<void(size_t unit, EvalAnswer answer)>& done);

 private:
  // Place is one of the batch's `width` places, each for an answer. While a place is empty, its
  // stand-in session takes part in each step with one token and is truncated afterwards, so that
  // the width of the batch stays the same.
  struct Place {
    size_t unit = 0;
    std::unique_ptr<Answering> answering;
    std::unique_ptr<Session> stand_in;
    Token token = 0;          // token to append in the next step
    bool has_failed = false;  // the last step failed; the answer is not ended yet

    [[nodiscard]] bool Steps() const { return answering != nullptr && !has_failed; }
  };
  AnswerBatch() = default;
  Status ChooseTokens(const std::function<void(size_t unit, EvalAnswer answer)>& done);
  Status StepOnce();

  std::unique_ptr<Engine> engine_;
  std::vector<Place> places_;
  std::vector<SessionStep> parts_;
};

}  // namespace ebb

#endif  // EBB_LAB_EVAL_ANSWER_BATCH_H_

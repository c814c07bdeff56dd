// Problems that step together, always as many in a step, so that what comes out depends on none of
// the others.
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

// Whether answers to both can stand in one batch: their engines differ in nothing but the shares of
// tiers, which sessions say themselves.
[[nodiscard]] bool ShareAnEngine(const EvalSetting& a, const EvalSetting& b);

class AnswerBatch {
 public:
  // `width` places on one engine with so many threads. Errors: those of Engine::Create().
  // REQUIRES: CheckBatch(setting, width).
  static Result<std::unique_ptr<AnswerBatch>> Create(std::shared_ptr<const Model> model,
                                                     const EvalSetting& setting, int width,
                                                     int threads);
  ~AnswerBatch();
  AnswerBatch(const AnswerBatch&) = delete;
  AnswerBatch& operator=(const AnswerBatch&) = delete;

  [[nodiscard]] bool HasPlace() const;
  [[nodiscard]] bool IsEmpty() const;
  // Reads a problem's prompt. `place` is free for it. REQUIRES: HasPlace().
  Status Begin(size_t unit, const Answering::Task& task, const EvaluationOptions& options);
  // A token of each problem, and the answers that end with it, by unit. An error of one problem
  // ends its answer; one of the step is returned.
  Status Step(const std::function<void(size_t unit, EvalAnswer answer)>& done);

 private:
  // A place for an answer. If it is empty, a sequence of one token steps in its place, and is
  // rolled back.
  struct Place {
    size_t unit = 0;
    std::unique_ptr<Answering> answering;
    std::unique_ptr<Session> stand_in;
    Token token = 0;          // that it appends next
    bool has_failed = false;  // its last step did, which its answer does not know yet

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

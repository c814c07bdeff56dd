// Answers one problem, token by token.
#ifndef EBB_LAB_EVAL_ANSWERING_H_
#define EBB_LAB_EVAL_ANSWERING_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ebb/lab/eval.h"

namespace ebb {

// AnswerWatch measures an answer while it is generated: the rows it reads, its memory and time, and
// whether it repeats itself.
class AnswerWatch {
 public:
  // Begins to measure. REQUIRES: the session has read its prompt.
  AnswerWatch(const ModelShape& shape, const Session& session, int longest_loop,
              const std::atomic<bool>* cancel);

  void OnToken(Token token);
  // Writes the measurements to `answer`. Must be called after the last step, even if no token
  // followed it.
  void Finish(int decode_steps, EvalAnswer* answer);
  [[nodiscard]] bool looping() const { return looping_; }

  std::atomic<bool> stop = false;  // set to end the generation

 private:
  int64_t NotePeak();
  void CountStep();

  const Session& session_;
  int longest_loop_;
  const std::atomic<bool>* cancel_;
  double heads_ = 1;
  std::vector<Token> tokens_;
  int counted_steps_ = 0;
  int64_t verify_steps_ = 0;  // verifying steps of a lossless session so far
  bool looping_ = false;
  size_t peak_bytes_ = 0;
  int64_t peak_rows_ = 0;
  int64_t rows_read_ = 0;
};

// Answering answers one problem. It is used like a Generation: Next(), then a step of session()
// with that token, then Appended(), and so on; finally End().
class Answering {
 public:
  struct Task {
    size_t setting = 0;  // indices of the setting and the problem
    size_t problem = 0;
    const EvalSetting* of_setting = nullptr;
    const EvalQuestion* question = nullptr;
  };
  // Opens a session and reads the prompt. If the prompt is refused, the answer has ended and
  // contains the error. Errors: kCancelled; a setting with which no session can be opened.
  // REQUIRES: `engine`, and what `task` and `options` point to, outlive this.
  static Result<std::unique_ptr<Answering>> Begin(Engine* engine, const Task& task,
                                                  const EvaluationOptions& options);
  Answering(const Answering&) = delete;
  Answering& operator=(const Answering&) = delete;

  [[nodiscard]] Session& session() { return *session_; }
  // Returns the next token to decode; nullopt: the answer has ended.
  [[nodiscard]] std::optional<Token> Next();
  // Records the outcome of the token's step. `seconds` is the step's time, or the token's share of
  // it if other answers took part.
  void Appended(const StepOutcome& outcome, double seconds);
  // Returns the source of guesses that a lossless session passes to Session::Decode().
  [[nodiscard]] Guess Guesses() const { return generation_->Guesses(); }
  [[nodiscard]] int most_guesses() const { return generation_->most_guesses(); }
  // Ends the generation and returns the answer with the judgement of its text. An answer whose
  // prompt was refused has its error and is not judged. Must be called once, after Next() has
  // returned nullopt. Errors: kCancelled if EvaluationOptions::cancel was set.
  Result<EvalAnswer> End();

 private:
  Answering(const Task& task, const EvaluationOptions& options) : task_(task), options_(options) {}
  Status Open(Engine* engine);
  void BeginWriting(const Model& model, const ChatPrompt& prompt);

  const Task task_;
  const EvaluationOptions& options_;
  EvalAnswer answer_;
  std::string after_thought_;
  std::unique_ptr<Session> session_;
  std::unique_ptr<Sampler> sampler_;
  std::unique_ptr<AnswerWatch> watch_;      // null: the prompt was refused
  std::unique_ptr<Generation> generation_;  // null: the prompt was refused
};

}  // namespace ebb

#endif  // EBB_LAB_EVAL_ANSWERING_H_

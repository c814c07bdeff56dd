// JobRun carries out one job from arrival to end: it holds the job's session and generation, and
// makes the updates for the client. It knows no other job.
//
// A decoding job has a pending token, which the client has received but the session has not
// appended. The job's next step appends this token first, even if steps were refused before because
// memory is full.
//
// Thread safety: used only on the engine's thread.
#ifndef EBB_SERVER_ENGINE_JOB_RUN_H_
#define EBB_SERVER_ENGINE_JOB_RUN_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ebb/generate.h"
#include "src/server/engine/engine_clock.h"
#include "src/server/engine/figures.h"
#include "src/server/engine/job.h"
#include "src/server/engine/job_view.h"

namespace ebb::server {

// JobFailure is the reason why a job must be ended before its generation has ended.
struct JobFailure {
  FinishReason reason = FinishReason::kError;
  Status error;
};

class JobRun {
 public:
  // Begins the life of a job, which adds its measurements to `figures`. REQUIRES: clock and figures
  // outlive this.
  JobRun(Job job, const EngineClock* clock, Figures* figures);
  JobRun(const JobRun&) = delete;
  JobRun& operator=(const JobRun&) = delete;

  [[nodiscard]] JobId id() const { return job_.id; }
  [[nodiscard]] const Job& job() const { return job_; }
  [[nodiscard]] const JobState& state() const { return state_; }
  // Returns the job's state for the schedule, with current times and token counts.
  [[nodiscard]] JobState StateNow() const;
  [[nodiscard]] Session* session() const { return session_.get(); }  // null while the job waits
  [[nodiscard]] bool HasBegunPrompt() const { return session_ != nullptr && job_.prompt.empty(); }
  [[nodiscard]] JobView View() const;
  [[nodiscard]] std::optional<TokenFates> Fates() const;

  // Copies from `needs` the bytes that the job needs of each tier, whether it can be parked,
  // whether it is elastic, and its share of T0.
  void SetNeeds(const JobState& needs);
  void SetShare(double share) { state_.share = share; }
  void HoldUntil(std::optional<double> time) { state_.held_until = time; }
  void Cancel() { state_.cancelled = true; }

  void Accept();
  void Start(std::unique_ptr<Session> session);
  void Park();
  void Resume();
  // Moves the prompt out of the job. REQUIRES: no session has begun to read it.
  [[nodiscard]] std::vector<Token> TakePrompt() { return std::exchange(job_.prompt, {}); }
  void SetSession(std::unique_ptr<Session> session);
  // Sets how many prompt tokens were shared from another session's rows.
  void SetCachedTokens(size_t num_tokens) { cached_tokens_ = static_cast<int>(num_tokens); }
  void SetTrouble(SessionTrouble trouble) { trouble_ = trouble; }
  // Adds a PromptProgress to the updates.
  void ReportProgress();

  // Adds a MemoryReport to the updates if Job::reports_memory is set, a few times a second.
  void ReportMemory();

  // Begins the answer; the first Choose() chooses its first token. REQUIRES: the session has read
  // the prompt.
  void BeginAnswer();
  // Chooses the next token, which becomes pending(). Returns false if the generation has ended.
  [[nodiscard]] bool Choose();
  [[nodiscard]] const std::optional<Token>& pending() const { return pending_; }
  // Returns how many tokens may follow the pending one. REQUIRES: there is one.
  [[nodiscard]] int most_guesses() const { return generation_->most_guesses(); }
  // Returns the function that chooses guesses after the pending token; see Generation::Guesses().
  [[nodiscard]] Guess MakeGuess() const { return generation_->Guesses(); }
  [[nodiscard]] StepOutcome DecodeAlone();
  // Passes on the outcome of a step that should have appended the pending token.
  void Appended(const StepOutcome& outcome, double seconds = 0);
  void EndThought();

  // Ends the job, and saves its session if that is a stored one. If `error` is OK, the end's reason
  // is the generation's finish reason, else `reason`.
  [[nodiscard]] JobEnd End(FinishReason reason, const Status& error);
  // Returns whether the job had read its prompt and begun its answer. REQUIRES: End() was called.
  [[nodiscard]] bool HasAnswered() const { return generation_ != nullptr; }
  [[nodiscard]] std::unique_ptr<Session> TakeSession();

  [[nodiscard]] bool has_update() const { return has_update_; }
  [[nodiscard]] JobUpdate TakeUpdate();

 private:
  [[nodiscard]] GenerateOptions AnswerOptions();
  void NoteText(std::string_view text, TextPart part);
  void NoteToken(Token token);
  void NoteLogprobs(Token token);
  [[nodiscard]] size_t TextSize(Token token) const;
  [[nodiscard]] Result<SavedSession> Save(SessionRecord record) const;
  void Send(SavedSession saved);
  void SaveCheckpoint();
  void SaveAtEnd(const GenerateResult& result, JobEnd* end);
  void CountEnd(const JobEnd& end);
  void CountReading();

  const EngineClock* const clock_;
  Figures* const figures_;
  Job job_;
  JobState state_;
  const size_t prompt_tokens_;
  std::unique_ptr<Session> session_;
  // Hold the session's reports from before this job, so that only the job's share is counted.
  SelectionAccounting selection_before_;
  SpeculationReport guesses_before_;
  std::unique_ptr<Generation> generation_;  // null until the prompt has been read
  std::optional<Token> pending_;            // chosen and sent to the client, but not appended
  int cached_tokens_ = 0;                   // prompt tokens shared from another session
  JobUpdate update_;                        // collected for the next Send()
  bool has_update_ = false;
  JobProgress progress_;
  bool ends_thought_ = false;  // EndThought() was called; also before the answer
  // Counts the bytes of the answer's text so far, for the ranges in AnswerLogprobs.
  size_t text_end_ = 0;
  std::string thinking_start_, thinking_end_;
  // Hold seconds since the driver began; 0: has not happened yet.
  double waiting_since_ = 0;  // begin of the current wait or parking
  double begun_ = 0;
  double first_token_ = 0;
  double last_token_ = 0;
  double memory_reported_ = 0;
  // Holds the answer so far, for the SessionRecord of a stored session.
  AnswerSoFar answer_;
  int thought_tokens_ = 0;   // thought tokens that this job generated
  size_t saved_tokens_ = 0;  // answer tokens at the last checkpoint
  SessionTrouble trouble_ = SessionTrouble::kNone;
};

}  // namespace ebb::server

#endif  // EBB_SERVER_ENGINE_JOB_RUN_H_

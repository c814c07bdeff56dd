// JobRun is a job from its arrival to its end: its session, its generation, and the updates that
// its client gets. It knows no other job.
//
// A decoding job has a pending token that the client has received and the session has not appended.
// The next step of the job appends this token before anything else, however often steps are refused
// for lack of room.
//
// Thread safety: belongs to the engine's thread.
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

// JobFailure says why a job must end although its generation has not ended.
struct JobFailure {
  FinishReason reason = FinishReason::kError;
  Status error;
};

class JobRun {
 public:
  // REQUIRES: `clock` and `figures`, to which the job adds its measurements, outlive it.
  JobRun(Job job, const EngineClock* clock, Figures* figures);
  JobRun(const JobRun&) = delete;
  JobRun& operator=(const JobRun&) = delete;

  [[nodiscard]] JobId id() const { return job_.id; }
  [[nodiscard]] const Job& job() const { return job_; }
  [[nodiscard]] const JobState& state() const { return state_; }
  // Returns the job's state with its current times and token counts.
  [[nodiscard]] JobState StateNow() const;
  [[nodiscard]] Session* session() const { return session_.get(); }  // null while the job waits
  [[nodiscard]] bool HasBegunPrompt() const { return session_ != nullptr && job_.prompt.empty(); }
  [[nodiscard]] JobView View() const;
  [[nodiscard]] std::optional<TokenFates> Fates() const;

  // Sets from `needs` the bytes of each tier, whether the job can be parked, whether it is elastic,
  // and its share of T0.
  void SetNeeds(const JobState& needs);
  void SetShare(double share) { state_.share = share; }
  void HoldUntil(std::optional<double> time) { state_.held_until = time; }
  void Cancel() { state_.cancelled = true; }

  void Accept();
  void Start(std::unique_ptr<Session> session);
  void Park();
  void Resume();
  // Returns the prompt, which no session has begun to read, and leaves it empty.
  [[nodiscard]] std::vector<Token> TakePrompt() { return std::exchange(job_.prompt, {}); }
  void SetSession(std::unique_ptr<Session> session);
  // Sets the number of tokens of the prompt that another session has read.
  void SetCachedTokens(size_t num_tokens) { cached_tokens_ = static_cast<int>(num_tokens); }
  void SetTrouble(SessionTrouble trouble) { trouble_ = trouble; }
  // Adds a PromptProgress to the updates.
  void ReportProgress();

  // Adds a MemoryReport to the updates if Job::reports_memory is set, a few times a second.
  void ReportMemory();

  // Begins the answer; Choose() chooses its first token. REQUIRES: the prompt has been read.
  void BeginAnswer();
  // Chooses the next token, which becomes pending(). Returns false if the generation has ended.
  [[nodiscard]] bool Choose();
  [[nodiscard]] const std::optional<Token>& pending() const { return pending_; }
  [[nodiscard]] StepOutcome DecodeAlone();
  // Notes the outcome of a step that appended the pending token, or failed to.
  void Appended(const StepOutcome& outcome, double seconds = 0);
  void EndThought();

  // Ends the job, and saves its session if it is a stored one. If `error` is OK, the generation's
  // own finish reason counts instead of `reason`.
  [[nodiscard]] JobEnd End(FinishReason reason, const Status& error);
  // Returns whether the answer had begun, so that the prompt was read. REQUIRES: after End().
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
  // Holds the session's reports from before this job, which are subtracted when the job's share is
  // counted.
  SelectionAccounting selection_before_;
  LosslessReport lossless_before_;
  std::unique_ptr<Generation> generation_;  // null until the prompt has been read
  std::optional<Token> pending_;            // chosen and sent, not appended
  int cached_tokens_ = 0;                   // tokens of the prompt
  JobUpdate update_;                        // not sent yet
  bool has_update_ = false;
  JobProgress progress_;
  bool ends_thought_ = false;  // EndThought() was called; also before the answer
  // Counts the bytes of the answer's text so far, for log-probabilities. The strings are the tags
  // around thoughts.
  size_t text_end_ = 0;
  std::string thinking_start_, thinking_end_;
  // Holds seconds since the driver began; 0: not yet.
  double waiting_since_ = 0;  // valid while the job waits or is parked
  double begun_ = 0;
  double first_token_ = 0;
  double last_token_ = 0;
  double memory_reported_ = 0;
  // Holds the answer so far, for the record of a stored session.
  AnswerSoFar answer_;
  int thought_tokens_ = 0;   // thought tokens generated by this job
  size_t saved_tokens_ = 0;  // tokens of the answer at the last checkpoint
  SessionTrouble trouble_ = SessionTrouble::kNone;
};

}  // namespace ebb::server

#endif  // EBB_SERVER_ENGINE_JOB_RUN_H_

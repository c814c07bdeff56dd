// A job from its arrival to its end: its session, its generation, and the updates that its client
// gets. It knows no other job.
//
// A job that decodes has a token that is not appended yet. The client has been sent it, so it is
// appended before anything else happens to the job, however often a step is refused.
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

// Why a job is over though its generation did not end it.
struct JobFailure {
  FinishReason reason = FinishReason::kError;
  Status error;
};

class JobRun {
 public:
  // `clock` and `figures`, to which it adds its measurements, outlive it.
  JobRun(Job job, const EngineClock* clock, Figures* figures);
  JobRun(const JobRun&) = delete;
  JobRun& operator=(const JobRun&) = delete;

  [[nodiscard]] JobId id() const { return job_.id; }
  [[nodiscard]] const Job& job() const { return job_; }
  [[nodiscard]] const JobState& state() const { return state_; }
  // The state with the times and tokens of now.
  [[nodiscard]] JobState StateNow() const;
  [[nodiscard]] Session* session() const { return session_.get(); }  // null while it waits
  [[nodiscard]] bool HasBegunPrompt() const { return session_ != nullptr && job_.prompt.empty(); }
  [[nodiscard]] JobView View() const;
  [[nodiscard]] std::optional<TokenFates> Fates() const;

  // For the schedule. SetNeeds() takes from `needs` the bytes of each tier, whether it can
  // be parked, whether it is elastic, and its share of T0.
  void SetNeeds(const JobState& needs);
  void SetShare(double share) { state_.share = share; }
  void HoldUntil(std::optional<double> time) { state_.held_until = time; }
  void Cancel() { state_.cancelled = true; }

  void Accept();
  void Start(std::unique_ptr<Session> session);
  void Park();
  void Resume();
  // The prompt that no session has taken yet.
  [[nodiscard]] std::vector<Token> TakePrompt() { return std::exchange(job_.prompt, {}); }
  void SetSession(std::unique_ptr<Session> session);
  // Tokens of the prompt that another session has read.
  void SetCachedTokens(size_t num_tokens) { cached_tokens_ = static_cast<int>(num_tokens); }
  void SetTrouble(SessionTrouble trouble) { trouble_ = trouble; }
  // Adds how far the prompt is read to the updates.
  void ReportProgress();

  // Adds where its rows are to the updates, where its client asked for that: a few times a second.
  void ReportMemory();

  // Begins the answer, whose first token Choose() chooses. REQUIRES: the prompt is read.
  void BeginAnswer();
  // Returns false if the generation has ended.
  [[nodiscard]] bool Choose();
  [[nodiscard]] const std::optional<Token>& pending() const { return pending_; }
  [[nodiscard]] StepOutcome DecodeAlone();
  // Takes the outcome of a step with the pending token.
  void Appended(const StepOutcome& outcome, double seconds = 0);
  void EndThought();

  // Ends the job and saves its session, if that stays. The generation knows its own reason; another
  // one has an error.
  [[nodiscard]] JobEnd End(FinishReason reason, const Status& error);
  // For a session that outlives the job. REQUIRES: after End().
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
  // The reports of a session that earlier jobs had, when this one took it.
  SelectionAccounting selection_before_;
  LosslessReport lossless_before_;
  std::unique_ptr<Generation> generation_;  // null until the prompt is read
  std::optional<Token> pending_;            // chosen and shown, not appended
  int cached_tokens_ = 0;                   // of the prompt
  JobUpdate update_;                        // not sent yet
  bool has_update_ = false;
  JobProgress progress_;
  bool ends_thought_ = false;  // though its answer has not begun
  // Bytes of the answer's text, with log-probabilities, and the tags of thoughts.
  size_t text_end_ = 0;
  std::string thinking_start_, thinking_end_;
  // Seconds since the driver began; 0: not yet.
  double waiting_since_ = 0;  // while it waits or is parked
  double begun_ = 0;
  double first_token_ = 0;
  double last_token_ = 0;
  double memory_reported_ = 0;
  // For a session that stays.
  AnswerSoFar answer_;
  int thought_tokens_ = 0;   // that this job generated
  size_t saved_tokens_ = 0;  // of the answer
  SessionTrouble trouble_ = SessionTrouble::kNone;
};

}  // namespace ebb::server

#endif  // EBB_SERVER_ENGINE_JOB_RUN_H_

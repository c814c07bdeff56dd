// StepLoop is the loop of the engine's thread. In each round it reads messages, lets the schedule
// plan, carries the plan out, runs the engine's step, and sends the jobs' updates. When a job ends,
// its end is sent and the pool removes it in the same round.
//
// Thread safety: used only on the engine's thread.
#ifndef EBB_SERVER_ENGINE_STEP_LOOP_H_
#define EBB_SERVER_ENGINE_STEP_LOOP_H_

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "src/server/engine/driver.h"
#include "src/server/engine/mailbox.h"
#include "src/server/engine/session_pool.h"
#include "src/server/engine/stored_prompts.h"

namespace ebb::server {

class StepLoop {
 public:
  struct Output {
    Driver::Tell tell;                                    // called with the updates of jobs
    std::function<void(const Figures& figures)> publish;  // gets the figures of each round
  };
  // Makes the loop, and publishes figures once, so that the caps are visible before the first job.
  // REQUIRES: `mailbox` outlives the loop.
  StepLoop(std::unique_ptr<Engine> engine, const DriverOptions& options, Mailbox* mailbox,
           Output output);

  // Runs until the mailbox is stopped and all jobs have ended.
  void Run();

 private:
  // Handles the new messages. If the last plan was idle, sleeps until there is one. Returns false
  // when the mailbox is stopped.
  [[nodiscard]] bool TakeMessages(const Plan& last);
  void Handle(Message message);
  void Accept(Job job);
  // Notes which owners have waiting jobs, and returns the state for a plan.
  [[nodiscard]] State Look();
  // Adds to a state of the pool what the owners were served and the measured times.
  [[nodiscard]] State Complete(State state) const;
  [[nodiscard]] Snapshot MakeSnapshot() const;
  void CarryOut(const Plan& plan);
  void End(const Plan::End& end);
  void Step(const Plan& plan);
  // Runs one step for all of these jobs. If an error cannot be attributed to one of them, steps
  // each by itself.
  void StepTogether(std::span<JobRun* const> who, bool reads_alone);
  void StepAlone(JobRun* run);
  // Appends the tokens that the job chooses as long as its session has computed them already.
  void TakeComputed(JobId id);
  // Charges the job's owner for a token and for the guesses after it that the step computed.
  void Appended(JobRun* run, const Status& status, double seconds, size_t num_guesses = 0);
  // Tells the job that its token was appended, and lets it choose the next.
  void NoteAppended(JobRun* run, const Status& status, double seconds);
  void Read(JobRun* run, const Status& status);
  // Handles an error that refused a step before it changed anything.
  void Refused(JobRun* run, const Status& status);
  void BeginAnswer(JobRun* run);
  // Chooses the job's next token, or ends the job if its generation is over.
  void Choose(JobRun* run);
  // Ends the job if `failure` has a value. Returns whether it has.
  bool HasEnded(JobRun* run, const SessionPool::Failure& failure);
  void Finish(JobRun* run, FinishReason reason, const Status& error);
  // Sends all updates of jobs, and publishes the figures.
  void Tell();

  const EngineClock clock_;
  Mailbox* const mailbox_;
  const Output output_;
  const bool has_store_;
  Figures figures_;
  SessionPool pool_;
  StoredPrompts stored_;
  FairShares shares_;
  std::vector<JobUpdate> ended_;  // unsent last updates of jobs that have ended
};

}  // namespace ebb::server

#endif  // EBB_SERVER_ENGINE_STEP_LOOP_H_

// The loop of the engine's thread: takes messages in, asks the schedule what comes next, carries
// that out, steps, and sends the updates of jobs. A job ends once: its end is sent, and the job is
// gone from the pool, in the same round.
//
// Thread safety: belongs to the engine's thread.
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
    Driver::Tell tell;                                    // gets the updates of jobs
    std::function<void(const Figures& figures)> publish;  // gets the figures after each round
  };
  // Publishes figures, so that caps are shown before the first job. `mailbox` outlives it.
  StepLoop(std::unique_ptr<Engine> engine, const DriverOptions& options, Mailbox* mailbox,
           Output output);

  // Returns when the mailbox is stopped and all jobs have ended.
  void Run();

 private:
  // Takes messages; after a plan that did nothing, waits for one. Returns false when it is over.
  [[nodiscard]] bool TakeMessages(const Plan& last);
  void Handle(Message message);
  void Accept(Job job);
  [[nodiscard]] State Look();
  void CarryOut(const Plan& plan);
  void End(const Plan::End& end);
  void Step(const Plan& plan);
  // Steps all in one batch, or each by itself if an error cannot be attributed to one of them.
  void StepTogether(std::span<JobRun* const> who, bool reads_alone);
  void StepAlone(JobRun* run);
  void Appended(JobRun* run, const Status& status, double seconds);
  void Read(JobRun* run, const Status& status);
  // Handles an error that stopped a step before it changed anything.
  void Refused(JobRun* run, const Status& status);
  void BeginAnswer(JobRun* run);
  // Chooses the next token of a job, or ends it.
  void Choose(JobRun* run);
  // Returns whether `failure` has ended the job.
  bool HasEnded(JobRun* run, const SessionPool::Failure& failure);
  void Finish(JobRun* run, FinishReason reason, const Status& error);
  // Sends what has changed since it was called last.
  void Tell();

  const EngineClock clock_;
  Mailbox* const mailbox_;
  const Output output_;
  const bool has_store_;
  Figures figures_;
  SessionPool pool_;
  StoredPrompts stored_;
  FairShares shares_;
  std::vector<JobUpdate> ended_;  // the last updates of jobs that are over
};

}  // namespace ebb::server

#endif  // EBB_SERVER_ENGINE_STEP_LOOP_H_

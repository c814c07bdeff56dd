// Mailbox is the queue of messages to the engine's thread, read in the order in which they were
// posted.
//
// Thread safety: any thread may post; only the engine's thread calls Take().
#ifndef EBB_SERVER_ENGINE_MAILBOX_H_
#define EBB_SERVER_ENGINE_MAILBOX_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "src/base/threads/mutex.h"
#include "src/server/engine/job.h"
#include "src/server/engine/job_view.h"
#include "src/server/engine/prefix_store.h"

namespace ebb::server {

struct CancelJob {
  JobId id = 0;
};
// Ends the job's thought with the next token, or as soon as the thought begins.
struct EndJobThought {
  JobId id = 0;
};
// Discards the session that JobEnd::resting named.
struct DiscardSession {
  uint64_t resting = 0;
};
struct TakeSnapshot {
  std::function<void(Snapshot)> tell;
};
struct TraceJob {
  JobId id = 0;
  std::function<void(std::optional<TokenFates>)> tell;
};
struct ExplainToken {
  JobId id = 0;
  Position position = 0;
  std::function<void(std::optional<TokenReasons>)> tell;
};
// PromptLookedUp is the answer of the PrefixStore to the lookup of a job's prompt.
struct PromptLookedUp {
  JobId id = 0;
  std::string key;
  SessionOptions session;
  std::optional<FetchedPrefix> fetched;
};
using Message = std::variant<Job, CancelJob, EndJobThought, DiscardSession, TakeSnapshot, TraceJob,
                             ExplainToken, PromptLookedUp>;

class Mailbox {
 public:
  // `most_waiting` limits the number of jobs in the queue.
  explicit Mailbox(size_t most_waiting) : most_waiting_(most_waiting) {}

  // Posts all of the jobs or none. Errors: QueueFull (too many are waiting); InvalidArgument (more
  // than can ever wait); Cancelled (after Stop()).
  [[nodiscard]] Status Submit(std::vector<Job> jobs);
  void Post(Message message);
  // Refuses jobs from now on.
  void Stop();

  struct Delivery {
    std::vector<Message> messages;
    bool is_stopped = false;
  };
  // Returns all messages and removes them. If there are none, waits for one, for Stop() or until
  // the time `until`.
  [[nodiscard]] Delivery Take(std::optional<std::chrono::steady_clock::time_point> until);
  // Sets how many of the jobs that Take() has delivered still wait.
  void SetWaiting(size_t num_waiting);

 private:
  const size_t most_waiting_;
  Mutex mutex_;
  CondVar wake_;
  std::vector<Message> messages_ EBB_GUARDED_BY(mutex_);
  size_t num_submitted_ EBB_GUARDED_BY(mutex_) = 0;  // jobs in `messages_`
  size_t num_waiting_ EBB_GUARDED_BY(mutex_) = 0;    // delivered jobs that still wait
  bool is_stopped_ EBB_GUARDED_BY(mutex_) = false;
};

}  // namespace ebb::server

#endif  // EBB_SERVER_ENGINE_MAILBOX_H_

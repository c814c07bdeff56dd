// Mailbox is the queue of messages to the engine's thread, which reads them in the order of
// posting.
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
// Destroys the session that a job left in memory under the number JobEnd::resting.
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
// PromptLookedUp holds the entry that the PrefixStore found for a job's prompt.
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
  // Makes an empty mailbox that accepts jobs as long as fewer than `most_waiting` wait.
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
  // Removes and returns all messages. If there are none, sleeps until one is posted, Stop() is
  // called or the time `until` has come (nullopt: no limit).
  [[nodiscard]] Delivery Take(std::optional<std::chrono::steady_clock::time_point> until);
  // Sets how many jobs that Take() has returned still wait to start. They count in the limit of
  // Submit().
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

// Messages to the engine's thread: one queue, read in the order in which they were posted.
//
// Thread safety: any thread may post; the engine's thread takes.
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
// Its thought ends with the next token, or as soon as it begins.
struct EndJobThought {
  JobId id = 0;
};
// Discards a session that JobEnd::resting named.
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
// The answer of the PrefixStore to the lookup of a job's prompt.
struct PromptLookedUp {
  JobId id = 0;
  std::string key;
  SessionOptions session;
  std::optional<FetchedPrefix> fetched;
};
using Message = std::variant<Job, CancelJob, EndJobThought, DiscardSession, TakeSnapshot, TraceJob,
                             PromptLookedUp>;

class Mailbox {
 public:
  // most_waiting: jobs that wait for their turn.
  explicit Mailbox(size_t most_waiting) : most_waiting_(most_waiting) {}

  // Posts all of the jobs or none. Errors: QueueFull (too many are waiting); InvalidArgument (more
  // than can ever wait); Cancelled (after Stop()).
  [[nodiscard]] Status Submit(std::vector<Job> jobs);
  void Post(Message message);
  // Jobs are refused from now on.
  void Stop();

  struct Delivery {
    std::vector<Message> messages;
    bool is_stopped = false;
  };
  // Takes all messages; if there are none, waits for one, for Stop() or for `until`.
  [[nodiscard]] Delivery Take(std::optional<std::chrono::steady_clock::time_point> until);
  // Sets how many of the jobs that were taken still wait.
  void SetWaiting(size_t num_waiting);

 private:
  const size_t most_waiting_;
  Mutex mutex_;
  CondVar wake_;
  std::vector<Message> messages_ EBB_GUARDED_BY(mutex_);
  size_t num_submitted_ EBB_GUARDED_BY(mutex_) = 0;  // jobs among the messages
  size_t num_waiting_ EBB_GUARDED_BY(mutex_) = 0;    // jobs that were taken and wait
  bool is_stopped_ EBB_GUARDED_BY(mutex_) = false;
};

}  // namespace ebb::server

#endif  // EBB_SERVER_ENGINE_MAILBOX_H_

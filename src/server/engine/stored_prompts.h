// StoredPrompts moves prompts between the prefix cache in memory (PrefixCache) and the session
// store (PrefixStore). For a waiting job it looks up a prompt that memory lacks, and it offers
// cached prompts to the store.
//
// Thread safety: used only on the engine's thread. The store's answers arrive through the mailbox.
#ifndef EBB_SERVER_ENGINE_STORED_PROMPTS_H_
#define EBB_SERVER_ENGINE_STORED_PROMPTS_H_

#include <map>
#include <memory>
#include <string>

#include "src/server/engine/mailbox.h"
#include "src/server/engine/prefix_store.h"
#include "src/server/engine/session_pool.h"

namespace ebb::server {

class StoredPrompts {
 public:
  // Makes the link between cache and store. If `store` is null, nothing is looked up or stored.
  // REQUIRES: all other arguments outlive this.
  StoredPrompts(std::shared_ptr<PrefixStore> store, SessionPool* pool, Mailbox* mailbox,
                const EngineClock* clock, const Figures* figures)
      : store_(std::move(store)),
        pool_(pool),
        mailbox_(mailbox),
        clock_(clock),
        figures_(figures) {}

  // Starts a lookup of the waiting job's prompt in the store, unless memory has most of it. The job
  // must not start until the answer arrives or a time limit has passed.
  void LookUp(JobRun* run);
  // Handles the store's answer to a job's lookup: keeps the fetched prompt in the prefix cache. The
  // job may have ended by then.
  void Take(const PromptLookedUp& answer);
  // Must be called when a job starts. A lookup that is still running counts as a failure of the
  // store, which is then not used for a while.
  void Begins(JobId id);
  void Ends(JobId id) { lookups_.erase(id); }

  // Offers to the store a prompt that has been cached for its settling time; if there is none yet,
  // sets `plan->wake_at` to when there is.
  void StoreNext(Plan* plan);
  // Offers all cached prompts to the store, for at most 10 seconds; called when the server stops.
  void StoreAll();

 private:
  struct Lookup {
    std::string key;
    bool is_asked = false;  // false: another lookup of the key runs first
  };
  [[nodiscard]] double PatienceFor(const JobRun& run, size_t num_there) const;
  // Loads a fetched prompt as a session and puts it in the prefix cache. Returns false if the file
  // is damaged or does not match its record.
  [[nodiscard]] bool Adopt(const std::string& key, SessionOptions session,
                           const FetchedPrefix& fetched);
  void Store(const PrefixCache::Unstored& prefix);

  const std::shared_ptr<PrefixStore> store_;
  SessionPool* const pool_;
  Mailbox* const mailbox_;
  const EngineClock* const clock_;
  const Figures* const figures_;
  std::map<JobId, Lookup> lookups_;
};

}  // namespace ebb::server

#endif  // EBB_SERVER_ENGINE_STORED_PROMPTS_H_

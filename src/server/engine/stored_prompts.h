// StoredPrompts moves prompts between the prefix cache in memory (PrefixCache) and the session
// store (PrefixStore): it looks up the prompts of waiting jobs that memory lacks, and offers cached
// prompts to the store.
//
// Thread safety: belongs to the engine's thread. The store's answers come through the mailbox.
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
  // `store`: null stores nothing. REQUIRES: all others outlive this object.
  StoredPrompts(std::shared_ptr<PrefixStore> store, SessionPool* pool, Mailbox* mailbox,
                const EngineClock* clock, const Figures* figures)
      : store_(std::move(store)),
        pool_(pool),
        mailbox_(mailbox),
        clock_(clock),
        figures_(figures) {}

  // Looks up the prompt of a waiting job in the store, unless memory has most of it. The job is
  // held until the answer arrives or a time limit has passed.
  void LookUp(JobRun* run);
  // Handles the store's answer to the lookup of a job, which may have ended meanwhile: keeps the
  // fetched prompt in the prefix cache.
  void Take(const PromptLookedUp& answer);
  // Notes that a job starts and no longer waits for the store. A lookup still under way counts as a
  // failure of the store, which is then left alone for a while.
  void Begins(JobId id);
  void Ends(JobId id) { lookups_.erase(id); }

  // Offers a cached prompt to the store if its settling time has passed, else lowers
  // `plan->wake_at` to that time.
  void StoreNext(Plan* plan);
  // Offers all cached prompts to the store, for at most 10 seconds; called when the server stops.
  void StoreAll();

 private:
  struct Lookup {
    std::string key;
    bool is_asked = false;  // false: waits for another lookup of the same key
  };
  [[nodiscard]] double PatienceFor(const JobRun& run, size_t num_there) const;
  // Resumes a fetched prompt and keeps it in the prefix cache. Returns false if the file is damaged
  // or does not match its record.
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

// The traffic between kept prompts (PrefixCache) and the session store (PrefixStore): looks up the
// prompts of waiting jobs that memory lacks, and offers kept prompts to the store.
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
  // `store`: null stores nothing. All others outlive it.
  StoredPrompts(std::shared_ptr<PrefixStore> store, SessionPool* pool, Mailbox* mailbox,
                const EngineClock* clock, const Figures* figures)
      : store_(std::move(store)),
        pool_(pool),
        mailbox_(mailbox),
        clock_(clock),
        figures_(figures) {}

  // Asks the store for the prompt of a waiting job, unless memory has most of it, and holds the job
  // until the answer arrives or the job has waited for long enough.
  void LookUp(JobRun* run);
  // Takes the store's answer to the lookup of a job, which may have ended meanwhile.
  void Take(const PromptLookedUp& answer);
  // A job begins or ends, and waits for the store no more.
  void Begins(JobId id);
  void Ends(JobId id) { lookups_.erase(id); }

  // Offers a kept prompt to the store if its time has come, else sets when the plan wakes for it.
  void StoreNext(Plan* plan);
  // When the server stops.
  void StoreAll();

 private:
  struct Lookup {
    std::string key;
    bool is_asked = false;  // else the store is looking up another prompt of the same key
  };
  [[nodiscard]] double PatienceFor(const JobRun& run, size_t num_there) const;
  // Resumes a fetched prompt and keeps it in memory. Returns false if the file is damaged or does
  // not match its record.
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

// Stores the KV rows of prompts in the session store, so that prefix caching survives the process:
// the same server after a restart, and every other server with the same store, resumes the rows
// instead of reading the prompt, with the bits of reading it.
//
// An entry consists of a session file and a StoredPrefix, and its id is the hash of the latter.
// Entries are immutable, so several servers may write the same one. Entries that are damaged, or do
// not hold what their record says, are removed. When all entries together exceed `most_bytes`, the
// least recently used ones are removed first; an entry that is not used for `lifetime` expires.
//
// The store may be slow, full or unreachable. No member but Stop() waits for it, and after a
// failure no request uses it for `back_off` seconds.
//
// Thread safety: all members but Create() and Stop() may be called from any thread. Callbacks run
// on a thread of the PrefixStore.
#ifndef EBB_SERVER_ENGINE_PREFIX_STORE_H_
#define EBB_SERVER_ENGINE_PREFIX_STORE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ebb/status.h"
#include "ebb/types.h"
#include "src/server/engine/stored_prefix.h"
#include "src/store/session_store.h"

namespace ebb::server {

struct PrefixStoreOptions {
  uint64_t most_bytes = 0;       // limit for all entries together; 0 stores nothing
  double lifetime = 7 * 86400;   // seconds until an unused entry expires
  size_t least_tokens = 512;     // shorter prompts are neither stored nor looked up
  double settling = 1;           // seconds in the prefix cache before a prompt is stored
  double settling_if_busy = 30;  // the same while the engine has requests
  double least_patience = 0.25;  // bounds of the seconds that a request waits for the store
  double most_patience = 15;
  double back_off = 10;  // seconds without the store after a failure
};

// FetchedPrefix is an entry that was fetched from the store. The receiver removes the file.
struct FetchedPrefix {
  std::string id;
  StoredPrefix prefix;
  std::string file;  // the session file
};

class PrefixStore {
 public:
  // kTenant is the tenant of all entries in the store. API keys cannot have this name.
  static constexpr const char* kTenant = "/prefixes";

  // Creates a PrefixStore on `store`. `rows`: DescribeRows() of the engine. `model`: the model's
  // fingerprint for manifests. Errors: Io (no folder for files can be made).
  static Result<std::unique_ptr<PrefixStore>> Create(std::unique_ptr<store::SessionStore> store,
                                                     std::string rows, std::string model,
                                                     const PrefixStoreOptions& options);
  ~PrefixStore();
  PrefixStore(const PrefixStore&) = delete;
  PrefixStore& operator=(const PrefixStore&) = delete;

  [[nodiscard]] const PrefixStoreOptions& options() const;

  // Fetches the entry that has the longest prefix of `prompt`, if that has at least `least` tokens;
  // ignores entries of more than `most_bytes`. Calls `then` with nothing if there is no such entry
  // or the store fails. Returns false, and never calls `then`, while the store is backed off.
  using Found = std::function<void(std::optional<FetchedPrefix>)>;
  [[nodiscard]] bool Find(const std::string& key, std::vector<Token> prompt, size_t least,
                          uint64_t most_bytes, Found then);
  // Keeps requests from using the store for `back_off` seconds, since a request waited too long for
  // the answer to Find().
  void GiveUp();
  // Returns whether the store is not backed off and few writes are queued.
  [[nodiscard]] bool CanPut() const;
  // Returns whether a prompt deserves an entry: it is long enough, and clearly longer than its
  // longest prefix that is stored already.
  [[nodiscard]] bool Wants(const std::string& key, std::span<const Token> tokens) const;
  // Returns a path for SaveSession(), unique in the process. OwnerOf() returns the `extra` for the
  // same call, which binds the file to `key`.
  [[nodiscard]] std::string NewFile() const;
  [[nodiscard]] std::string OwnerOf(const std::string& key) const;
  // Queues a session file that holds these tokens for writing. Removes the file afterwards.
  void Put(const std::string& key, std::span<const Token> tokens, std::string file);
  // Marks the entry with the longest prefix of `tokens` as used now.
  void Use(const std::string& key, std::span<const Token> tokens);
  // Removes an entry whose file is damaged or does not match its record.
  void DropDamaged(const std::string& id);

  // Returns the figures for /metrics.
  [[nodiscard]] std::string MetricsText() const;
  // Waits at most `seconds` for queued writes, and drops the others. No callback runs afterwards.
  // REQUIRES: no other member is called at the same time or later, except MetricsText().
  void Stop(double seconds);

 private:
  PrefixStore();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ebb::server

#endif  // EBB_SERVER_ENGINE_PREFIX_STORE_H_

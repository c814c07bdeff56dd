// PrefixStore stores the KV rows of prompts in the session store, so that prefix caching survives
// the process. After a restart, this server, or any other with the same store, loads the rows
// instead of reading the prompt, and gets the same bits.
//
// An entry is a session file and a StoredPrefix; its id is the hash of the StoredPrefix. Entries
// are immutable, so that several servers may write the same one. An entry that is damaged or does
// not match its record is removed. When all entries exceed `most_bytes`, the least recently used
// ones are removed; an entry that is not used for `lifetime` expires.
//
// The store may be slow, full or unreachable. Only Stop() waits for it, and after a failure no
// request uses it for `back_off` seconds.
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
  uint64_t most_bytes = 0;       // limit of all entries together; 0: nothing is stored
  double lifetime = 7 * 86400;   // seconds until an unused entry expires
  size_t least_tokens = 512;     // shorter prompts are neither stored nor looked up
  double settling = 1;           // seconds in the prefix cache before it is stored
  double settling_if_busy = 30;  // the same, while the engine has requests
  double least_patience = 0.25;  // limits of the seconds that a request waits for it
  double most_patience = 15;
  double back_off = 10;  // seconds without use of the store after a failure
};

// FetchedPrefix is an entry that was copied from the store to a local file. The receiver must
// remove the file.
struct FetchedPrefix {
  std::string id;
  StoredPrefix prefix;
  std::string file;  // path of the session file
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

  // Fetches the entry with the longest prefix of `prompt` if that has at least `least` tokens and
  // the entry at most `most_bytes` bytes. Calls `then` with nullopt if there is none or the store
  // fails. Returns false, and never calls `then`, if the store is not used after a failure
  // (`back_off`).
  using Found = std::function<void(std::optional<FetchedPrefix>)>;
  [[nodiscard]] bool Find(const std::string& key, std::vector<Token> prompt, size_t least,
                          uint64_t most_bytes, Found then);
  // Must be called when a request has waited too long for Find(): no request then uses the store
  // for `back_off` seconds.
  void GiveUp();
  // Returns whether Put() may be called: few writes are queued, and the store has not failed
  // recently.
  [[nodiscard]] bool CanPut() const;
  // Returns whether a prompt deserves an entry: it is long enough, and clearly longer than its
  // longest prefix that is stored already.
  [[nodiscard]] bool Wants(const std::string& key, std::span<const Token> tokens) const;
  // Return a new path for SaveSession(), unique in the process, and the `extra` for the same call,
  // which binds the file to `key`.
  [[nodiscard]] std::string NewFile() const;
  [[nodiscard]] std::string OwnerOf(const std::string& key) const;
  // Queues a session file that holds these tokens to be written to the store, and then removes the
  // file.
  void Put(const std::string& key, std::span<const Token> tokens, std::string file);
  // Marks the entry with the longest prefix of `tokens` as used now, so that it is removed last.
  void Use(const std::string& key, std::span<const Token> tokens);
  // Removes an entry whose file is damaged or does not match its record.
  void DropDamaged(const std::string& id);

  // Returns the figures for /metrics.
  [[nodiscard]] std::string MetricsText() const;
  // Waits at most `seconds` for queued writes, and cancels the others. No callback runs afterwards.
  // REQUIRES: no other member is called at the same time or later, except MetricsText().
  void Stop(double seconds);

 private:
  PrefixStore();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ebb::server

#endif  // EBB_SERVER_ENGINE_PREFIX_STORE_H_

// Prompts whose rows outlive the process: what was read once lies in the session store, from which
// this server after a restart, and any other one with the same store, takes it back bit for bit.
//
// An entry is a session file and a StoredPrefix, under the hash of the latter. Entries never
// change, so that several servers may write one at a time; one that is damaged, or is not what its
// record says, is removed and read anew. Those that were used longest ago go first when all
// together are larger than they may be, and those that nobody has used for their lifetime go by
// themselves.
//
// The store may be slow, full or away: nothing here blocks the engine's thread, and after a failure
// the store is left alone for a while.
//
// Thread safety: all members but Create() and Stop() may be called from any thread. Callbacks come
// on a thread of the store.
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
  uint64_t most_bytes = 0;       // of all entries together; 0: nothing is stored
  double lifetime = 7 * 86400;   // seconds that an entry stays without being used
  size_t least_tokens = 512;     // shorter prompts are not worth an entry
  double settling = 1;           // seconds that a prompt is kept in memory before it is stored
  double settling_if_busy = 30;  // the same while requests are being answered
  double least_patience = 0.25;  // seconds that a request waits for the store at the least
  double most_patience = 15;     // and at the most
  double back_off = 10;          // seconds without the store after it failed
};

// An entry's session file, which its receiver removes.
struct FetchedPrefix {
  std::string id;
  StoredPrefix prefix;
  std::string file;
};

class PrefixStore {
 public:
  // The tenant of the entries in the store; no API key has this name.
  static constexpr const char* kTenant = "/prefixes";

  // `rows`: DescribeRows() of the engine. `model`: the fingerprint that manifests show. Errors: Io
  // (no folder for files).
  static Result<std::unique_ptr<PrefixStore>> Create(std::unique_ptr<store::SessionStore> store,
                                                     std::string rows, std::string model,
                                                     const PrefixStoreOptions& options);
  ~PrefixStore();
  PrefixStore(const PrefixStore&) = delete;
  PrefixStore& operator=(const PrefixStore&) = delete;

  [[nodiscard]] const PrefixStoreOptions& options() const;

  // Fetches the entry that has the most tokens of a prompt, of those of at most `most_bytes`, where
  // it has at least `least` of them. `then` gets nothing where there is none, or where the store
  // fails. False: the store is left alone for now, and `then` is never called.
  using Found = std::function<void(std::optional<FetchedPrefix>)>;
  [[nodiscard]] bool Find(const std::string& key, std::vector<Token> prompt, size_t least,
                          uint64_t most_bytes, Found then);
  // A request waited in vain for an answer to Find(): the store is left alone for a while.
  void GiveUp();
  // Whether Put() would write soon: the store is not left alone, and few writes are waiting.
  [[nodiscard]] bool CanPut() const;
  // Whether a prompt of these tokens is worth an entry: it is long enough, and what the store has
  // of it is much less.
  [[nodiscard]] bool Wants(const std::string& key, std::span<const Token> tokens) const;
  // A path for SaveSession(), different each time, and the `extra` that binds the file to `key`.
  [[nodiscard]] std::string NewFile() const;
  [[nodiscard]] std::string OwnerOf(const std::string& key) const;
  // Writes the session of a file that holds these tokens, and removes the file.
  void Put(const std::string& key, std::span<const Token> tokens, std::string file);
  // Rows of a prompt that begins so were used, from memory or from the store: the entry that has
  // the most of it stays for its lifetime from now on.
  void Use(const std::string& key, std::span<const Token> tokens);
  // Removes an entry whose session is not what its record says.
  void DropDamaged(const std::string& id);

  // For /metrics.
  [[nodiscard]] std::string MetricsText() const;
  // Writes what was put, for at most so many seconds; what is left then is not written. No callback
  // comes after it. REQUIRES: no other member is being called, and none is called later.
  void Stop(double seconds);

 private:
  PrefixStore();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ebb::server

#endif  // EBB_SERVER_ENGINE_PREFIX_STORE_H_

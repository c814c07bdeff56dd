// PrefixStore::Impl has an index of the entries and two threads: one reads from the store and one
// writes to it, so that a request never waits for a write.
//
// Other servers write to the store too, so that the index may be out of date. An entry is therefore
// described again before it is fetched.
#ifndef EBB_SERVER_ENGINE_PREFIX_STORE_IMPL_H_
#define EBB_SERVER_ENGINE_PREFIX_STORE_IMPL_H_

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/thread_pool.hpp>

#include "src/base/threads/mutex.h"
#include "src/server/engine/prefix_store.h"
#include "src/server/engine/scratch_folder.h"

namespace ebb::server {

// Converts seconds to a duration.
[[nodiscard]] inline std::chrono::duration<double> InSeconds(double seconds) {
  return std::chrono::duration<double>(seconds);
}

// kTouchEveryMs is the least time between two writes of an entry's last use to the store.
inline constexpr int64_t kTouchEveryMs = 60'000;

// IndexedPrefix is an entry of the index.
struct IndexedPrefix {
  StoredPrefix prefix;
  uint64_t bytes = 0;
  int64_t used_ms = 0;       // last use as the store has it
  int64_t used_here_ms = 0;  // last use by this server; 0: never
};

struct PrefixStore::Impl {
  using Clock = std::chrono::steady_clock;

  Impl(std::unique_ptr<store::SessionStore> store_in, std::string rows_in, std::string model_in,
       const PrefixStoreOptions& options_in, ScratchFolder scratch_in)
      : store(std::move(store_in)),
        rows(std::move(rows_in)),
        model(std::move(model_in)),
        options(options_in),
        scratch(std::move(scratch_in)) {}

  // Looks up the entry with the longest prefix of `prompt`, fetches it and calls `then` with it.
  // This function and those below run on one of the two threads.
  void Look(const StoredPrefix& wanted, const std::vector<Token>& prompt, size_t least,
            uint64_t most_bytes, const Found& then);
  [[nodiscard]] Status Refresh(bool now);
  // Reads the entry's description from the store and updates the index. Returns nullopt if the
  // entry does not exist, has another version, or was damaged and has been removed.
  [[nodiscard]] Result<std::optional<store::Manifest>> Describe(const std::string& id);
  [[nodiscard]] std::optional<FetchedPrefix> Fetch(const std::string& id);
  void Write(const StoredPrefix& prefix, const std::string& file);
  [[nodiscard]] Status WriteUnder(const store::Lease& lease, const StoredPrefix& prefix,
                                  const std::string& file);
  void RemoveBeginningsOf(const StoredPrefix& prefix, const std::string& id);
  // Removes the least recently used entries until the rest and `bytes` new bytes take at most
  // `most`. Returns false if they cannot.
  [[nodiscard]] Result<bool> MakeRoom(uint64_t bytes, uint64_t most);
  enum class Removal { kForRoom, kReplaced, kDamaged };
  void Remove(const std::string& id, Removal why);
  void DropDamaged(const std::string& id);
  void Touch();
  void EndWrite();
  void Fail(const Status& status);

  struct Best {
    std::string id;
    size_t num_tokens = 0;
    uint64_t bytes = 0;
  };
  [[nodiscard]] std::optional<Best> BestOf(const StoredPrefix& wanted,
                                           std::span<const Token> prompt, uint64_t most_bytes) const
      EBB_REQUIRES(mutex);
  [[nodiscard]] uint64_t TotalBytes() const EBB_REQUIRES(mutex);
  [[nodiscard]] bool IsBackedOff() const EBB_REQUIRES(mutex) {
    return Clock::now() < backed_off_until;
  }

  const std::unique_ptr<store::SessionStore> store;
  const std::string rows;
  const std::string model;
  const PrefixStoreOptions options;
  const ScratchFolder scratch;

  mutable Mutex mutex;
  CondVar changed;
  std::map<std::string, IndexedPrefix> index EBB_GUARDED_BY(mutex);
  // Holds ids that the store lists but that have no entry readable by this version, with the time
  // at which this was found.
  std::map<std::string, Clock::time_point> absent EBB_GUARDED_BY(mutex);
  std::optional<Clock::time_point> listed EBB_GUARDED_BY(mutex);
  Clock::time_point backed_off_until EBB_GUARDED_BY(mutex) = {};
  int64_t touched_ms EBB_GUARDED_BY(mutex) = 0;
  size_t num_lookups EBB_GUARDED_BY(mutex) = 0;    // queued or running
  size_t num_writes EBB_GUARDED_BY(mutex) = 0;     // queued or running
  bool is_stopping EBB_GUARDED_BY(mutex) = false;  // queued writes are dropped
  // Counts holds totals since the server began.
  struct Counts {
    uint64_t hits = 0, misses = 0, tokens = 0, fetched_bytes = 0;
    uint64_t written = 0, written_bytes = 0, failures = 0;
    uint64_t dropped_for_room = 0, dropped_damaged = 0;
  };
  Counts counted EBB_GUARDED_BY(mutex);

  boost::asio::thread_pool reading{1};
  boost::asio::thread_pool writing{1};
};

}  // namespace ebb::server

#endif  // EBB_SERVER_ENGINE_PREFIX_STORE_IMPL_H_

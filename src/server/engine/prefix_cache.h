// PrefixCache keeps prompts that were read, for later prompts with the same beginning. A cached
// prefix is the session that read it and is not stepped any more: a session that uses its rows
// shares its pages, and a hit gives the same bits as reading the prompt again (ebb/generate.h).
//
// Prefixes are found by their key and by comparing their tokens one by one; a prefix of another key
// is never found. The cache evicts the least recently used prefixes when they exceed its limit.
// When requests need their memory, it demotes prefixes to T1 before it evicts them.
//
// Thread safety: none; belongs to the engine's thread.
#ifndef EBB_SERVER_ENGINE_PREFIX_CACHE_H_
#define EBB_SERVER_ENGINE_PREFIX_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "ebb/engine.h"
#include "ebb/types.h"

namespace ebb::server {

// Returns a key for prefix caching. Prompts share rows only if their keys are equal: the same salt
// and the same session options.
[[nodiscard]] std::string PrefixKey(std::string_view salt, const SessionOptions& session);

// PrefixSource is a session that has the beginning of a prompt; num_tokens 0: there is none.
struct PrefixSource {
  Session* session = nullptr;
  size_t num_tokens = 0;
};

// Returns `session` if more tokens of `prompt` can be shared from it than from `best`, and enough
// to be worth it; else `best`.
[[nodiscard]] PrefixSource BetterSource(PrefixSource best, Session* session,
                                        std::span<const Token> prompt);

class PrefixCache {
 public:
  // `most_bytes` limits the bytes of pages and of the tables that describe them; 0: the cache is
  // off.
  explicit PrefixCache(uint64_t most_bytes) : most_bytes_(most_bytes) {}

  [[nodiscard]] bool is_on() const { return most_bytes_ > 0; }
  // Returns the prefix of `key` that has the most tokens of `prompt`, and marks it as used now. Its
  // session lives until the next call of any other function.
  [[nodiscard]] PrefixSource Find(std::string_view key, std::span<const Token> prompt);
  // Keeps the first `num_tokens` tokens of the session, its prompt, and frees the rows after them.
  // Drops the session if no other session could share its rows or if another prefix contains its
  // tokens. `unstored_since`: the time in seconds for NextUnstored(); nothing for a prompt that is
  // stored.
  void Keep(std::string key, size_t num_tokens, std::unique_ptr<Session> session,
            std::optional<double> unstored_since = {});

  // Unstored is a prefix that was not offered to the store. Its session lives until the next call
  // of any other function.
  struct Unstored {
    std::string key;
    Session* session = nullptr;
    double since = 0;
  };
  // Returns the unstored prefix with the smallest `since`; nothing if there is none.
  [[nodiscard]] std::optional<Unstored> NextUnstored() const;
  void SetStored(const Session* session);
  // Frees pages of T0: demotes the least recently used prefix to T1, or drops it if T1 has no room.
  // Chooses prefixes first whose pages of T0 no other session shares.
  enum class Evicted { kNothing, kDemotedToT1, kDropped };
  Evicted EvictOne();

  [[nodiscard]] uint64_t most_bytes() const { return most_bytes_; }
  [[nodiscard]] size_t size() const { return prefixes_.size(); }
  // Returns the bytes of all prefixes, as counted after the cache last changed. A page that k
  // sessions share counts as a kth in each of them.
  [[nodiscard]] uint64_t bytes();

 private:
  struct Prefix {
    std::string key;
    std::unique_ptr<Session> session;
    std::optional<double> unstored_since;
  };
  [[nodiscard]] bool MakePlaceFor(const Prefix& prefix);
  void Drop(std::list<Prefix>::iterator prefix);

  uint64_t most_bytes_;
  std::list<Prefix> prefixes_;  // most recently used first
  // Caches the bytes of `prefixes_`. Nothing: to be counted again, since the prefixes have changed
  // or other sessions may share other pages of them.
  std::optional<uint64_t> bytes_ = 0;
};

}  // namespace ebb::server

#endif  // EBB_SERVER_ENGINE_PREFIX_CACHE_H_

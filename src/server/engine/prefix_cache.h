// PrefixCache keeps prompts that were read, for later prompts with the same beginning. A cached
// prefix is the session that read it, which no longer takes steps. Other sessions share its pages;
// a hit gives the same bits as reading the prompt again (ebb/generate.h).
//
// A prefix is found by its key and by comparing its tokens one by one; prefixes of other keys are
// never found. Beyond its limit the cache evicts the least recently used prefixes. When requests
// need memory, it demotes prefixes to T1 before it evicts them.
//
// Thread safety: none; used only on the engine's thread.
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

// PrefixSource is a session whose first `num_tokens` tokens are those of a prompt; 0: no session
// is.
struct PrefixSource {
  Session* session = nullptr;
  size_t num_tokens = 0;
};

// Returns `session` if it shares more tokens with `prompt` than `best` does, and enough to be worth
// sharing; else returns `best`.
[[nodiscard]] PrefixSource BetterSource(PrefixSource best, Session* session,
                                        std::span<const Token> prompt);

class PrefixCache {
 public:
  // Makes a cache of at most `most_bytes` bytes of pages and tables; 0 turns the cache off.
  explicit PrefixCache(uint64_t most_bytes) : most_bytes_(most_bytes) {}

  [[nodiscard]] bool is_on() const { return most_bytes_ > 0; }
  // Returns the prefix of `key` that has the most tokens of `prompt`, and marks it as used now. Its
  // session lives until the next call of any other function.
  [[nodiscard]] PrefixSource Find(std::string_view key, std::span<const Token> prompt);
  // Takes over the session and keeps its first `num_tokens` tokens, the prompt; frees the rows
  // after them. Destroys the session instead if no other session could share its rows or if another
  // prefix begins with its tokens. `unstored_since`: the time in seconds for NextUnstored();
  // nullopt: the prompt is stored already.
  void Keep(std::string key, size_t num_tokens, std::unique_ptr<Session> session,
            std::optional<double> unstored_since = {});

  // Unstored is a prefix that was not yet offered to the PrefixStore. Its session lives until the
  // next call of any other function.
  struct Unstored {
    std::string key;
    Session* session = nullptr;
    double since = 0;
  };
  // Returns the prefix that has been unstored for the longest time; nullopt if there is none.
  [[nodiscard]] std::optional<Unstored> NextUnstored() const;
  void SetStored(const Session* session);
  // Frees pages of T0: demotes the least recently used prefix to T1, or drops it if T1 is full.
  // Prefers prefixes that share no T0 pages with other sessions.
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
  // Holds the bytes of `prefixes_`; nullopt: they must be counted again, because prefixes or the
  // sharing of their pages may have changed.
  std::optional<uint64_t> bytes_ = 0;
};

}  // namespace ebb::server

#endif  // EBB_SERVER_ENGINE_PREFIX_CACHE_H_

// Prompts that were read, kept for prompts that begin alike. A prefix is the session that read it
// and is not stepped any more: a session that takes its rows shares its pages, and the rows of a
// hit have the bits of reading the prompt again (ebb/generate.h).
//
// Prefixes are found by their key and their tokens, which are compared one by one: a prefix of
// another key is never found. The cache evicts prefixes, least recently used first, when they take
// more than their limit; when requests need their room, it demotes prefixes to T1 before it evicts
// them.
//
// Thread safety: none; it belongs to the engine's thread.
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

// Prompts of different keys have nothing in common: another salt, or sessions of other options.
[[nodiscard]] std::string PrefixKey(std::string_view salt, const SessionOptions& session);

// The session that has the beginning of a prompt; num_tokens 0: there is none.
struct PrefixSource {
  Session* session = nullptr;
  size_t num_tokens = 0;
};

// `best`, or `session` where more of `prompt` can be taken from it, and enough to be worth it.
[[nodiscard]] PrefixSource BetterSource(PrefixSource best, Session* session,
                                        std::span<const Token> prompt);

class PrefixCache {
 public:
  // most_bytes: of pages and of what describes them; 0: nothing is kept.
  explicit PrefixCache(uint64_t most_bytes) : most_bytes_(most_bytes) {}

  [[nodiscard]] bool is_on() const { return most_bytes_ > 0; }
  // The prefix of this key that has the most of `prompt`; it counts as used now. Its session lives
  // until the next call of any other function.
  [[nodiscard]] PrefixSource Find(std::string_view key, std::span<const Token> prompt);
  // Keeps the first `num_tokens` tokens of the session, its prompt, and gives back the rows behind
  // them. A prefix that no other session could take, or that another prefix contains already, is
  // not kept. `unstored_since`: the time in seconds for NextUnstored(); nothing for a prompt that
  // is stored.
  void Keep(std::string key, size_t num_tokens, std::unique_ptr<Session> session,
            std::optional<double> unstored_since = {});

  // A prefix that was not offered to the store. Its session lives until the next call of any other
  // function.
  struct Unstored {
    std::string key;
    Session* session = nullptr;
    double since = 0;
  };
  // Returns the one with the smallest `since`.
  [[nodiscard]] std::optional<Unstored> NextUnstored() const;
  void SetStored(const Session* session);
  // Releases pages of T0: demotes the least recently used prefix to T1, or drops it if T1 has no
  // room. Prefixes whose pages of T0 no other session shares come first.
  enum class Evicted { kNothing, kDemotedToT1, kDropped };
  Evicted EvictOne();

  [[nodiscard]] uint64_t most_bytes() const { return most_bytes_; }
  [[nodiscard]] size_t size() const { return prefixes_.size(); }
  // Counted at the last change. Pages that k sessions hold count as a kth.
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
  std::list<Prefix> prefixes_;  // the one that was used last comes first
  // The bytes of `prefixes_`; nothing: the prefixes have changed, or other sessions may share other
  // pages of them.
  std::optional<uint64_t> bytes_ = 0;
};

}  // namespace ebb::server

#endif  // EBB_SERVER_ENGINE_PREFIX_CACHE_H_

// Prompts that were read, kept for prompts that begin alike. A prefix is the session that read it,
// which nobody steps any more: who takes its rows holds its pages together with it, and what a hit
// gives has the bits of reading anew (ebb/generate.h).
//
// Prefixes are found by their key and their tokens, which are compared one by one: what belongs to
// another key is never found. They go, those that were used longest ago first, when they take more
// than they may; when requests need their room they sink to T1 before they go.
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

// Who has the beginning of a prompt; num_tokens 0: nobody.
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
  // them. Nothing is kept of what nobody could take, or what another prefix has already.
  // `unstored_since`: the time in seconds for NextUnstored(); nothing for a prompt that is stored.
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
  // Gives pages back to those who need them: the prefix that was used longest ago, of those that
  // hold pages of T0 alone if there are any, puts its rows into T1 or, where it cannot, goes.
  enum class Given { kNothing, kSunk, kDropped };
  Given GiveWay();

  [[nodiscard]] uint64_t most_bytes() const { return most_bytes_; }
  [[nodiscard]] size_t size() const { return prefixes_.size(); }
  // Counted at the last change. Pages that k sessions hold count as a kth: what is in use anyway
  // costs the less.
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
  // The bytes of `prefixes_`; nothing: they have changed, or somebody may hold other pages of them.
  std::optional<uint64_t> bytes_ = 0;
};

}  // namespace ebb::server

#endif  // EBB_SERVER_ENGINE_PREFIX_CACHE_H_

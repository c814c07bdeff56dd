// StoredPrefix is the record of a stored prompt without its rows: who may use it, and a chain of
// hashes over its blocks of tokens. By the hashes, a new prompt finds how many of its first tokens
// the entry has.
//
// The hashes only select an entry. Users of PrefixStore also compare the record with the session
// file that they fetched, and BeginPromptFrom() compares the tokens one by one.
#ifndef EBB_SERVER_ENGINE_STORED_PREFIX_H_
#define EBB_SERVER_ENGINE_STORED_PREFIX_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ebb/status.h"
#include "ebb/types.h"

namespace ebb::server {

// kPrefixBlockTokens is the number of tokens in a hashed block. Prompts share only whole blocks.
inline constexpr size_t kPrefixBlockTokens = 64;

// Returns the SHA-256, as 64 hexadecimal digits, of all that prompts must agree on to share rows.
// `rows`: DescribeRows() of the engine. `key`: PrefixKey() of tenant, salt and session options. The
// hash reveals neither.
[[nodiscard]] std::string PrefixOwner(std::string_view rows, std::string_view key);

struct StoredPrefix {
  std::string owner;
  uint64_t num_tokens = 0;
  // Holds chained hashes: hashes[i] is over the first (i + 1) * kPrefixBlockTokens tokens; the last
  // one is over all tokens.
  std::vector<uint64_t> hashes;

  friend bool operator==(const StoredPrefix&, const StoredPrefix&) = default;
};

[[nodiscard]] StoredPrefix DescribePrefix(const std::string& owner, std::span<const Token> tokens);

// Returns how many first tokens the stored prompt shares with `tokens`, judging by the hashes:
// whole blocks, or all of the stored prompt; 0 if their owners differ. REQUIRES: described ==
// DescribePrefix(..., tokens).
[[nodiscard]] size_t CommonTokens(const StoredPrefix& stored, const StoredPrefix& described,
                                  std::span<const Token> tokens);

// Encodes a record; docs/dev/formats.md describes the format.
[[nodiscard]] std::string EncodeStoredPrefix(const StoredPrefix& prefix);
// Decodes a record. Errors: Corrupt; Unsupported (another version).
[[nodiscard]] Result<StoredPrefix> DecodeStoredPrefix(std::string_view bytes);

// Returns the id of the entry: the SHA-256 of the encoded record, so that all servers give the same
// prompt the same id.
[[nodiscard]] std::string StoredPrefixId(const StoredPrefix& prefix);

}  // namespace ebb::server

#endif  // EBB_SERVER_ENGINE_STORED_PREFIX_H_

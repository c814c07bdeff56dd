// Describes a stored prompt without its rows: who may use it, and a chain of hashes over its
// blocks, by which a prompt finds how many of its first tokens an entry has.
//
// Hashes only select an entry. PrefixStore's users compare the record with the session file that
// they fetched, and BeginPromptFrom() compares tokens one by one.
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

// Tokens of a hashed block. A part of a block that two prompts have in common is not found.
inline constexpr size_t kPrefixBlockTokens = 64;

// Returns the SHA-256, as 64 hexadecimal digits, of all that prompts must agree on to share rows.
// `rows`: DescribeRows() of the engine. `key`: PrefixKey() of tenant, salt and session options. The
// hash reveals neither.
[[nodiscard]] std::string PrefixOwner(std::string_view rows, std::string_view key);

struct StoredPrefix {
  std::string owner;
  uint64_t num_tokens = 0;
  // hashes[i] is over the first (i + 1) * kPrefixBlockTokens tokens, the last one over all tokens.
  std::vector<uint64_t> hashes;

  friend bool operator==(const StoredPrefix&, const StoredPrefix&) = default;
};

[[nodiscard]] StoredPrefix DescribePrefix(const std::string& owner, std::span<const Token> tokens);

// Returns the number of tokens that `tokens` and the stored prompt have in common according to
// their hashes: whole blocks, or all of the stored prompt. 0 for another owner. REQUIRES: described
// == DescribePrefix(..., tokens).
[[nodiscard]] size_t CommonTokens(const StoredPrefix& stored, const StoredPrefix& described,
                                  std::span<const Token> tokens);

// docs/dev/formats.md has the format.
[[nodiscard]] std::string EncodeStoredPrefix(const StoredPrefix& prefix);
// Errors: Corrupt; Unsupported (another version).
[[nodiscard]] Result<StoredPrefix> DecodeStoredPrefix(std::string_view bytes);

// Returns the id of the entry: the SHA-256 of the encoded record, so that all servers give the same
// prompt the same id.
[[nodiscard]] std::string StoredPrefixId(const StoredPrefix& prefix);

}  // namespace ebb::server

#endif  // EBB_SERVER_ENGINE_STORED_PREFIX_H_

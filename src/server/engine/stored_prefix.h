// A prompt whose rows lie in the session store, as it is known without its rows: who may take them,
// and a hash for each of its beginnings, so that a longer prompt finds how much of it is stored.
//
// A record is found by its hashes and never believed: PrefixStore compares it with the session that
// was fetched, and whoever takes rows compares tokens one by one.
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

// Tokens of a hashed block. A prompt that has only part of a block in common with a stored one is
// not found by that part.
inline constexpr size_t kPrefixBlockTokens = 64;

// Names, as 64 hexadecimal digits of a SHA-256, those prompts that may share rows: `rows` is what
// DescribeRows() says of the engine, `key` what PrefixKey() says of tenant, salt and options.
// Nothing of either can be read from it.
[[nodiscard]] std::string PrefixOwner(std::string_view rows, std::string_view key);

struct StoredPrefix {
  std::string owner;
  uint64_t num_tokens = 0;
  // Element i is a hash of the first (i + 1) * kPrefixBlockTokens tokens; the last one is of all of
  // them.
  std::vector<uint64_t> hashes;

  friend bool operator==(const StoredPrefix&, const StoredPrefix&) = default;
};

[[nodiscard]] StoredPrefix DescribePrefix(const std::string& owner, std::span<const Token> tokens);

// How many tokens at the beginning of `tokens`, whose description is `described`, the stored prompt
// has, as far as hashes tell: whole blocks, or all of the stored prompt. 0 for another owner.
[[nodiscard]] size_t CommonTokens(const StoredPrefix& stored, const StoredPrefix& described,
                                  std::span<const Token> tokens);

// As docs/dev/formats.md has it.
[[nodiscard]] std::string EncodeStoredPrefix(const StoredPrefix& prefix);
// Errors: Corrupt; Unsupported (another version).
[[nodiscard]] Result<StoredPrefix> DecodeStoredPrefix(std::string_view bytes);

// The id under which the store has it: the SHA-256 of its encoding, so that all servers that store
// the same prompt write the same entry.
[[nodiscard]] std::string StoredPrefixId(const StoredPrefix& prefix);

}  // namespace ebb::server

#endif  // EBB_SERVER_ENGINE_STORED_PREFIX_H_

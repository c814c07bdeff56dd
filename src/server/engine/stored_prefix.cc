#include "src/server/engine/stored_prefix.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sodium.h>

#include "src/store/chunks.h"

namespace ebb::server {
namespace {

constexpr std::string_view kMagic = "ebb-prefix 1\n";
constexpr size_t kOwnerBytes = 2 * crypto_hash_sha256_BYTES;

std::string Sha256Of(std::string_view bytes) {
  std::array<unsigned char, crypto_hash_sha256_BYTES> hash = {};
  crypto_hash_sha256(hash.data(), reinterpret_cast<const unsigned char*>(bytes.data()),
                     bytes.size());
  return fmt::format("{:02x}", fmt::join(hash, ""));
}

template <typename T>
void AppendNumber(T value, std::string* to) {
  for (size_t i = 0; i < sizeof(T); ++i) {
    to->push_back(static_cast<char>(value & 0xff));
    value >>= 8;
  }
}

uint64_t NumberAt(std::string_view bytes, size_t offset) {
  uint64_t value = 0;
  for (size_t i = sizeof(value); i-- > 0;) {
    value = value << 8 | static_cast<unsigned char>(bytes[offset + i]);
  }
  return value;
}

// Returns the hash of a block together with all blocks before it, whose hash is `before`.
uint64_t ChainHash(uint64_t before, std::span<const Token> block) {
  std::string bytes;
  AppendNumber(before, &bytes);
  for (const Token token : block) AppendNumber(static_cast<uint32_t>(token), &bytes);
  return store::HashOf(bytes);
}

size_t NumBlocks(uint64_t num_tokens) {
  return static_cast<size_t>((num_tokens + kPrefixBlockTokens - 1) / kPrefixBlockTokens);
}

}  // namespace

std::string PrefixOwner(std::string_view rows, std::string_view key) {
  return Sha256Of(fmt::format("{}:{}|{}", rows.size(), rows, key));
}

StoredPrefix DescribePrefix(const std::string& owner, std::span<const Token> tokens) {
  StoredPrefix prefix = {.owner = owner, .num_tokens = tokens.size(), .hashes = {}};
  uint64_t hash = store::HashOf(owner);
  for (size_t begin = 0; begin < tokens.size(); begin += kPrefixBlockTokens) {
    hash =
        ChainHash(hash, tokens.subspan(begin, std::min(kPrefixBlockTokens, tokens.size() - begin)));
    prefix.hashes.push_back(hash);
  }
  return prefix;
}

size_t CommonTokens(const StoredPrefix& stored, const StoredPrefix& described,
                    std::span<const Token> tokens) {
  if (stored.owner != described.owner) return 0;
  const auto num_whole =
      static_cast<size_t>(std::min(stored.num_tokens, described.num_tokens) / kPrefixBlockTokens);
  size_t num_alike = 0;
  while (num_alike < num_whole && stored.hashes[num_alike] == described.hashes[num_alike]) {
    ++num_alike;
  }
  const size_t common = num_alike * kPrefixBlockTokens;
  const auto rest = static_cast<size_t>(stored.num_tokens - common);
  const bool may_have_rest = rest > 0 && rest < kPrefixBlockTokens &&
                             num_alike + 1 == stored.hashes.size() &&
                             tokens.size() >= stored.num_tokens;
  if (!may_have_rest) return common;
  const uint64_t before =
      num_alike == 0 ? store::HashOf(stored.owner) : stored.hashes[num_alike - 1];
  const bool has_rest = ChainHash(before, tokens.subspan(common, rest)) == stored.hashes.back();
  return has_rest ? common + rest : common;
}

std::string EncodeStoredPrefix(const StoredPrefix& prefix) {
  std::string bytes(kMagic);
  bytes += prefix.owner;
  AppendNumber(prefix.num_tokens, &bytes);
  for (const uint64_t hash : prefix.hashes) AppendNumber(hash, &bytes);
  return bytes;
}

Result<StoredPrefix> DecodeStoredPrefix(std::string_view bytes) {
  constexpr size_t kHeader = kMagic.size() + kOwnerBytes + sizeof(uint64_t);
  if (!bytes.starts_with(kMagic)) {
    return Unsupported("a stored prompt: expected a record of version 1, found another one");
  }
  if (bytes.size() < kHeader) return Corrupt("a stored prompt: its record is cut off");
  StoredPrefix prefix = {.owner = std::string(bytes.substr(kMagic.size(), kOwnerBytes)),
                         .num_tokens = NumberAt(bytes, kMagic.size() + kOwnerBytes),
                         .hashes = {}};
  const size_t rest = bytes.size() - kHeader;
  const bool is_whole = rest % sizeof(uint64_t) == 0 && prefix.num_tokens <= UINT32_MAX &&
                        NumBlocks(prefix.num_tokens) == rest / sizeof(uint64_t);
  if (!is_whole || prefix.num_tokens == 0) {
    return Corrupt(fmt::format("a stored prompt: expected hashes of {} tokens, found {} bytes",
                               prefix.num_tokens, rest));
  }
  for (size_t at = kHeader; at < bytes.size(); at += sizeof(uint64_t)) {
    prefix.hashes.push_back(NumberAt(bytes, at));
  }
  return prefix;
}

std::string StoredPrefixId(const StoredPrefix& prefix) {
  return Sha256Of(EncodeStoredPrefix(prefix));
}

}  // namespace ebb::server

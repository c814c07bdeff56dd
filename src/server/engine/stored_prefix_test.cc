#include "src/server/engine/stored_prefix.h"

#include <numeric>

#include <gtest/gtest.h>

namespace ebb::server {
namespace {

std::vector<Token> CountedTokens(size_t num_tokens, Token first = 0) {
  std::vector<Token> tokens(num_tokens);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

size_t CommonWith(const StoredPrefix& stored, const std::vector<Token>& prompt,
                  const std::string& owner) {
  return CommonTokens(stored, DescribePrefix(owner, prompt), prompt);
}

TEST(StoredPrefix, APromptFindsWholeBlocksOrAllOfAStoredOne) {
  const std::string owner = PrefixOwner("rows", "key");
  const std::vector<Token> tokens = CountedTokens(200);
  const StoredPrefix stored = DescribePrefix(owner, tokens);
  EXPECT_EQ(stored.hashes.size(), 4u);
  EXPECT_EQ(CommonWith(stored, tokens, owner), 200u);
  EXPECT_EQ(CommonWith(stored, CountedTokens(1000), owner), 200u);
  EXPECT_EQ(CommonWith(stored, CountedTokens(199), owner), 192u);
  EXPECT_EQ(CommonWith(stored, CountedTokens(128), owner), 128u);
  EXPECT_EQ(CommonWith(stored, CountedTokens(127), owner), 64u);
  EXPECT_EQ(CommonWith(stored, CountedTokens(63), owner), 0u);
  EXPECT_EQ(CommonWith(stored, {}, owner), 0u);
  for (const size_t differs : {size_t{0}, size_t{63}, size_t{64}, size_t{150}, size_t{199}}) {
    std::vector<Token> other = CountedTokens(300);
    other[differs] = -1;
    EXPECT_EQ(CommonWith(stored, other, owner), differs / 64 * 64) << differs;
  }
}

TEST(StoredPrefix, PromptsShorterThanABlockAreFoundAsAWhole) {
  const std::string owner = PrefixOwner("rows", "key");
  const StoredPrefix stored = DescribePrefix(owner, CountedTokens(40));
  EXPECT_EQ(CommonWith(stored, CountedTokens(41), owner), 40u);
  EXPECT_EQ(CommonWith(stored, CountedTokens(39), owner), 0u);
  EXPECT_EQ(CommonWith(stored, CountedTokens(41, 1), owner), 0u);
}

TEST(StoredPrefix, AnotherOwnerFindsNothing) {
  const std::vector<Token> tokens = CountedTokens(200);
  const StoredPrefix stored = DescribePrefix(PrefixOwner("rows", "key"), tokens);
  EXPECT_EQ(CommonWith(stored, tokens, PrefixOwner("rows", "other")), 0u);
  EXPECT_EQ(CommonWith(stored, tokens, PrefixOwner("others", "key")), 0u);
  // The boundary between `rows` and `key` is part of the hash.
  EXPECT_NE(PrefixOwner("a|1", "b"), PrefixOwner("a", "1|b"));
  EXPECT_NE(StoredPrefixId(stored),
            StoredPrefixId(DescribePrefix(PrefixOwner("rows", "other"), tokens)));
}

TEST(StoredPrefix, ARecordComesBackAsItWas) {
  for (const size_t num_tokens : {size_t{1}, size_t{64}, size_t{65}, size_t{1000}}) {
    const StoredPrefix stored =
        DescribePrefix(PrefixOwner("rows", "key"), CountedTokens(num_tokens));
    const auto decoded = DecodeStoredPrefix(EncodeStoredPrefix(stored));
    ASSERT_TRUE(decoded.ok()) << decoded.status().ToString();
    EXPECT_EQ(*decoded, stored);
  }
}

TEST(StoredPrefix, ARecordThatIsDamagedIsRefused) {
  const std::string bytes =
      EncodeStoredPrefix(DescribePrefix(PrefixOwner("rows", "key"), CountedTokens(200)));
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(DecodeStoredPrefix(bytes.substr(0, size)).ok()) << size;
  }
  EXPECT_FALSE(DecodeStoredPrefix(bytes + "x").ok());
  EXPECT_FALSE(DecodeStoredPrefix(bytes + std::string(8, 'x')).ok());
  std::string other_version = bytes;
  other_version[11] = '2';
  EXPECT_EQ(DecodeStoredPrefix(other_version).status().code(), StatusCode::kUnsupported);
  std::string longer = bytes;
  longer[13 + 64 + 7] = '\x7f';  // the highest byte of the number of tokens
  EXPECT_EQ(DecodeStoredPrefix(longer).status().code(), StatusCode::kCorrupt);
}

}  // namespace
}  // namespace ebb::server

#include "src/policy/selectors/key_blocks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "hwy/targets.h"
#include "src/policy/selectors/half.h"

namespace ebb {
namespace {

constexpr int kBlockStreams = 3;

std::vector<uint16_t> SomeEntry(size_t size, std::mt19937* random) {
  std::normal_distribution<float> number;
  std::vector<uint16_t> entry(size);
  for (uint16_t& x : entry) x = F16Of(number(*random));
  return entry;
}

struct Products {
  std::vector<float> products, squares;
  bool operator==(const Products&) const = default;
};

Products Multiply(const KeyBlocks& blocks, const std::vector<float>& q, size_t num_queries,
                  size_t num_entries, int vectors, int num_parts) {
  const size_t stride = KeyBlocks::RoundUp(num_entries);
  Products result = {std::vector<float>(num_queries * stride),
                     std::vector<float>(vectors == 2 ? num_queries * stride : 0)};
  for (int part = 0; part < num_parts; ++part) {
    blocks.Multiply(1, q, num_entries, part, num_parts, stride, result.products.data(),
                    vectors == 2 ? result.squares.data() : nullptr);
  }
  return result;
}

TEST(KeyBlocks, ProductsAreThoseOfTheVectorsInAnyInstructionSetAndNumberOfParts) {
  std::mt19937 random(3);
  std::normal_distribution<float> number;
  constexpr size_t kDim = 24, kEntries = 53;
  for (const int vectors : {1, 2}) {
    for (const size_t num_queries : {1, 2, 3, 4, 7}) {
      KeyBlocks blocks(kBlockStreams, kDim, vectors);
      blocks.MakeRoom(kEntries);
      std::vector<std::vector<uint16_t>> entries;
      for (size_t entry = 0; entry < kEntries; ++entry) {
        entries.push_back(SomeEntry(vectors * kDim, &random));
        for (int stream = 0; stream < kBlockStreams; ++stream) {
          blocks.Put(stream, entry, stream == 1 ? entries.back() : entries.front());
        }
      }
      std::vector<float> q(num_queries * kDim);
      for (float& x : q) x = number(random);
      const Products expected = Multiply(blocks, q, num_queries, kEntries, vectors, 1);
      const size_t stride = KeyBlocks::RoundUp(kEntries);
      for (size_t i = 0; i < num_queries; ++i) {
        for (size_t entry = 0; entry < kEntries; ++entry) {
          double product = 0, square = 0;
          for (size_t c = 0; c < kDim; ++c) {
            const double x = q[i * kDim + c];
            product += x * FloatOfF16(entries[entry][c]);
            if (vectors == 2) square += x * x * FloatOfF16(entries[entry][kDim + c]);
          }
          EXPECT_NEAR(expected.products[i * stride + entry], product, 1e-4);
          if (vectors == 2) {
            EXPECT_NEAR(expected.squares[i * stride + entry], square, 1e-4);
          }
        }
      }
      for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
        hwy::SetSupportedTargetsForTest(target);
        hwy::GetChosenTarget().Update(hwy::SupportedTargets());
        for (const int num_parts : {1, 2, 5}) {
          EXPECT_EQ(Multiply(blocks, q, num_queries, kEntries, vectors, num_parts), expected)
              << hwy::TargetName(target);
        }
        hwy::SetSupportedTargetsForTest(0);
        hwy::GetChosenTarget().Update(hwy::SupportedTargets());
      }
    }
  }
}

TEST(KeyBlocks, EntriesStayWhileRoomGrowsAndShrinks) {
  std::mt19937 random(4);
  KeyBlocks blocks(kBlockStreams, 8, 2);
  const std::vector<uint16_t> entry = SomeEntry(16, &random);
  blocks.MakeRoom(5);
  for (int stream = 0; stream < kBlockStreams; ++stream) blocks.Put(stream, 4, entry);
  blocks.MakeRoom(10000);
  const size_t most = blocks.CapacityBytes();
  EXPECT_EQ(most, KeyBlocks::BytesFor(kBlockStreams, 8, 2, 10000));
  blocks.Shrink(5);
  EXPECT_LT(blocks.CapacityBytes(), most);
  std::vector<uint16_t> found(16);
  for (int stream = 0; stream < kBlockStreams; ++stream) {
    blocks.Get(stream, 4, found);
    EXPECT_EQ(found, entry);
  }
}

}  // namespace
}  // namespace ebb

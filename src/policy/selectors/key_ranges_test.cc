#include "src/policy/selectors/key_ranges.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "hwy/targets.h"
#include "tests/support/numbers.h"

namespace ebb {
namespace {

using testing::ElementsAre;

// Two of them.
struct Keys {
  std::vector<float> one, other;
};

// Exact in f16.
Keys RandomKeys(size_t dim, std::mt19937* random) {
  std::normal_distribution<float> number;
  Keys keys = {std::vector<float>(dim), std::vector<float>(dim)};
  for (float& x : keys.one) x = std::round(256 * number(*random)) / 256;
  for (float& x : keys.other) x = std::round(256 * number(*random)) / 256;
  return keys;
}

// The tests use a stream between two others.
constexpr int kStream = 1, kStreams = 3;

// Behind the pages another one: the newest has no bound.
KeyRanges RangesOf(const std::vector<Keys>& pages) {
  KeyRanges ranges(kStreams, static_cast<int>(pages[0].one.size()));
  for (const Keys& keys : pages) {
    for (int stream = 0; stream < kStreams; ++stream) ranges.AddPage(stream);
    ranges.Widen(kStream, ranges.num_pages(kStream) - 1, keys.one);
    ranges.Widen(kStream, ranges.num_pages(kStream) - 1, keys.other);
  }
  ranges.AddPage(kStream);
  return ranges;
}

// [queries][pages but the newest]
std::vector<std::vector<float>> BoundsOf(const KeyRanges& ranges, std::span<const float> q,
                                         size_t num_queries, int num_parts = 1) {
  const size_t stride = ranges.BoundsStride(kStream);
  std::vector<float> bounds(num_queries * stride, -7);
  for (int part = 0; part < num_parts; ++part) ranges.Bounds(kStream, q, part, num_parts, bounds);
  std::vector<std::vector<float>> of_queries;
  for (size_t i = 0; i < num_queries; ++i) {
    const auto begin = bounds.begin() + static_cast<ptrdiff_t>(i * stride);
    of_queries.emplace_back(begin, begin + static_cast<ptrdiff_t>(ranges.num_pages(kStream) - 1));
  }
  return of_queries;
}

double BoundOf(std::span<const float> q, const Keys& keys) {
  double bound = 0;
  for (size_t c = 0; c < q.size(); ++c) {
    bound += std::max(double{q[c]} * keys.one[c], double{q[c]} * keys.other[c]);
  }
  return bound;
}

TEST(KeyRanges, BoundTheProductsOfEveryQueryAndPageAtEverySize) {
  std::mt19937 random(3);
  std::normal_distribution<float> number;
  for (const size_t dim : {1, 8, 15, 16, 64, 80, 128}) {
    for (size_t num_queries = 1; num_queries <= 9; ++num_queries) {
      for (const size_t num_pages : {1, 15, 16, 17, 40}) {
        std::vector<float> q(num_queries * dim);
        std::vector<Keys> pages;
        for (float& x : q) x = number(random);
        while (pages.size() < num_pages) pages.push_back(RandomKeys(dim, &random));
        const auto bounds = BoundsOf(RangesOf(pages), q, num_queries);
        for (size_t i = 0; i < num_queries; ++i) {
          for (size_t page = 0; page < num_pages; ++page) {
            const double expected = BoundOf(std::span(q).subspan(i * dim, dim), pages[page]);
            ASSERT_NEAR(bounds[i][page], expected, 1e-5 * static_cast<double>(dim)) << dim;
          }
        }
      }
    }
  }
}

TEST(KeyRanges, BoundTheSameInAnyNumberOfPartsAndEveryInstructionSet) {
  std::mt19937 random(4);
  std::normal_distribution<float> number;
  for (const size_t dim : {64, 100}) {
    std::vector<float> q(7 * dim);
    std::vector<Keys> pages;
    for (float& x : q) x = number(random);
    while (pages.size() < 50) pages.push_back(RandomKeys(dim, &random));
    pages[3].one[5] = 3e-7f;  // subnormal
    const KeyRanges ranges = RangesOf(pages);
    const auto expected = BoundsOf(ranges, q, 7);
    for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
      hwy::SetSupportedTargetsForTest(target);
      hwy::GetChosenTarget().Update(hwy::SupportedTargets());
      for (const int num_parts : {1, 2, 3, 9}) {
        EXPECT_EQ(BoundsOf(ranges, q, 7, num_parts), expected) << hwy::TargetName(target);
      }
      hwy::SetSupportedTargetsForTest(0);
      hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    }
  }
}

TEST(KeyRanges, ABoundThatIsNotFiniteIsZero) {
  for (const float bad : {kNan, kInfinity, -kInfinity}) {
    std::vector<float> q(2 * 32, 1.0f);
    const std::vector<float> ones(32, 1.0f);
    q[5] = bad;
    EXPECT_THAT(BoundsOf(RangesOf({{ones, ones}, {ones, ones}}), q, 2),
                ElementsAre(ElementsAre(0, 0), ElementsAre(32, 32)));
  }
}

// Rows come to any page: a step of several tokens fills more than the newest.
TEST(KeyRanges, APageIsWidenedWhereverItStands) {
  std::mt19937 random(5);
  std::vector<Keys> pages;
  while (pages.size() < 20) pages.push_back(RandomKeys(8, &random));
  const KeyRanges one_by_one = RangesOf(pages);
  KeyRanges all_at_once(kStreams, 8);
  for (size_t i = 0; i < one_by_one.num_pages(kStream); ++i) all_at_once.AddPage(kStream);
  for (size_t page = pages.size(); page-- > 0;) {
    all_at_once.Widen(kStream, page, pages[page].other);
    all_at_once.Widen(kStream, page, pages[page].one);
  }
  EXPECT_EQ(one_by_one.Numbers(kStream), all_at_once.Numbers(kStream));
}

// Each of several streams for itself.
TEST(KeyRanges, RetainKeepsWhatStaysInItsOrder) {
  std::mt19937 random(6);
  constexpr size_t kDim = 8, kPages = 40, kNumbers = 2 * kDim;
  for (int run = 0; run < 50; ++run) {
    KeyRanges ranges(kStreams, kDim);
    for (size_t page = 0; page < kPages; ++page) {
      for (int stream = 0; stream < kStreams; ++stream) {
        ranges.AddPage(stream);
        ranges.Widen(stream, page, RandomKeys(kDim, &random).one);
      }
    }
    for (int stream = 0; stream < kStreams; ++stream) {
      const std::vector<uint16_t> before = ranges.Numbers(stream);
      std::vector<uint32_t> left(kPages);
      const uint32_t share = static_cast<uint32_t>(run + stream) % 5;  // 0: none stays
      for (uint32_t& of_page : left) of_page = random() % 4 < share ? 3 : 0;
      std::vector<uint16_t> expected;
      for (size_t page = 0; page < kPages; ++page) {
        if (left[page] == 0) continue;
        expected.insert(expected.end(), before.begin() + page * kNumbers,
                        before.begin() + (page + 1) * kNumbers);
      }
      ranges.Retain(stream, left);
      EXPECT_EQ(ranges.Numbers(stream), expected);
      // It goes on: the newest that stayed is widened, and others come.
      const std::vector<float> key(kDim, 100.0f);
      if (ranges.num_pages(stream) > 0) {
        ranges.Widen(stream, ranges.num_pages(stream) - 1, key);
      }
      for (size_t c = 0; c < kDim && !expected.empty(); ++c) {
        expected[expected.size() - kDim + c] = 0x5640;  // 100
      }
      ranges.AddPage(stream);
      std::vector<uint16_t> numbers = ranges.Numbers(stream);
      numbers.resize(numbers.size() - kNumbers);
      EXPECT_EQ(numbers, expected);
    }
  }
}

TEST(KeyRanges, ComeBackFromTheirNumbers) {
  std::mt19937 random(7);
  std::vector<Keys> pages;
  while (pages.size() < 33) pages.push_back(RandomKeys(8, &random));
  const KeyRanges ranges = RangesOf(pages);
  KeyRanges again = RangesOf({pages[1], pages[0]});
  const std::vector<uint16_t> of_another = again.Numbers(kStream + 1);
  again.SetNumbers(kStream, ranges.Numbers(kStream));
  EXPECT_EQ(again.Numbers(kStream), ranges.Numbers(kStream));
  EXPECT_EQ(again.Numbers(kStream + 1), of_another);
  const std::vector<float> q(8, 0.5f);
  EXPECT_EQ(BoundsOf(again, q, 1), BoundsOf(ranges, q, 1));
}

// A page's range takes four bytes a channel.
TEST(KeyRanges, TakeNoMemoryUpToTheRoomThatWasMade) {
  KeyRanges ranges(kStreams, 8);
  ranges.MakeRoom(1000);
  const size_t bytes = ranges.CapacityBytes();
  for (int page = 0; page < 1000; ++page) {
    for (int stream = 0; stream < kStreams; ++stream) ranges.AddPage(stream);
  }
  EXPECT_EQ(ranges.CapacityBytes(), bytes);
}

TEST(KeyRanges, GiveMemoryBack) {
  constexpr int kDim = 64, kPages = 4000, kMostBytes = kStreams * kPages * kDim * 4;
  KeyRanges ranges(kStreams, kDim);
  for (int page = 0; page < kPages; ++page) {
    for (int stream = 0; stream < kStreams; ++stream) ranges.AddPage(stream);
  }
  EXPECT_LE(ranges.CapacityBytes(), kMostBytes * 1.3);
  std::vector<uint32_t> left(kPages, 0);
  std::fill_n(left.begin(), kPages / 10, 1);
  for (int stream = 0; stream < kStreams; ++stream) ranges.Retain(stream, left);
  EXPECT_LE(ranges.CapacityBytes(), kMostBytes / 10 * 2);
}

TEST(KeyRanges, RoundToF16) {
  const auto bound = [](float key, float q) {
    const std::vector<float> of_q = {q};
    return BoundsOf(RangesOf({{{key}, {key}}}), of_q, 1)[0][0];
  };
  for (const float sign : {1.0f, -1.0f}) {
    EXPECT_EQ(bound(sign * 1.0f, 1), sign);
    EXPECT_EQ(bound(sign * (1 + 0x1p-11f), 1), sign);                    // a tie, to the even one
    EXPECT_EQ(bound(sign * (1 + 0x1.8p-10f), 1), sign * (1 + 0x1p-9f));  // the other way
    EXPECT_EQ(bound(sign * (1 + 0x1.1p-11f), 1), sign * (1 + 0x1p-10f));
    EXPECT_EQ(bound(sign * 0x1p-14f, 1), sign * 0x1p-14f);
    EXPECT_EQ(bound(sign * 0x1.8p-24f, 1), sign * 0x1p-23f);  // subnormal
    EXPECT_EQ(bound(sign * 2047.9f, 1), sign * 2048);
    EXPECT_EQ(bound(sign * 1e9f, 1), sign * 65504);
    EXPECT_EQ(bound(sign * kInfinity, 1), sign * 65504);
  }
  EXPECT_EQ(bound(kNan, 3), 0);
}

}  // namespace
}  // namespace ebb

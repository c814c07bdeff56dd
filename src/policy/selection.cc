#include "src/policy/selection.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <limits>

#include "src/policy/score_loops.h"

namespace ebb {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

constexpr size_t kBlock = 128;  // rows

float Key(float score) { return score == score ? score : kInfinity; }

// Returns the row that leaves first. A policy that is one row over its budget in each of 90 groups
// at every step needs only this row, so it makes one pass: the minimum of each block, then a second
// look at one block.
uint32_t FirstRow(std::span<const float> scores, std::span<const RowRange> candidates) {
  float best = kInfinity;
  RowRange best_block;
  for (const RowRange& range : candidates) {
    for (size_t begin = range.begin; begin < range.end; begin += kBlock) {
      const RowRange block = {begin, std::min(begin + kBlock, range.end)};
      const float lowest = LowestScore(scores.subspan(block.begin, block.end - block.begin));
      if (lowest <= best) {  // of equal scores the last
        best = lowest;
        best_block = block;
      }
    }
  }
  for (size_t i = best_block.end; i-- > best_block.begin;) {
    if (Key(scores[i]) == best) return static_cast<uint32_t>(i);
  }
  assert(false && "the block that held the minimum holds it");
  return 0;
}

// Encodes a row's place in the order of leaving as one integer. Selecting among flat integers is
// several times faster than among rows that look up their scores, which 90 groups of 8,000 rows
// need.
uint64_t OrderOf(float score, uint32_t row) {
  const uint32_t bits = std::bit_cast<uint32_t>(Key(score) + 0.0f);  // + 0: one zero, not two
  const uint32_t ascending = (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
  return uint64_t{ascending} << 32 | uint32_t{~row};
}

uint32_t RowOf(uint64_t order) { return ~static_cast<uint32_t>(order); }

}  // namespace

size_t CountRows(std::span<const RowRange> ranges) {
  size_t num_rows = 0;
  for (const RowRange& range : ranges) num_rows += range.end - range.begin;
  return num_rows;
}

size_t RankAmong(std::span<const float> scores, std::span<const RowRange> candidates, size_t row) {
  const uint64_t own = OrderOf(scores[row], static_cast<uint32_t>(row));
  size_t rank = 1;
  for (const RowRange& range : candidates) {
    for (size_t i = range.begin; i < range.end; ++i) {
      if (OrderOf(scores[i], static_cast<uint32_t>(i)) < own) ++rank;
    }
  }
  return rank;
}

std::span<const uint32_t> RowSelection::First(std::span<const float> scores,
                                              std::span<const RowRange> candidates, size_t count) {
  rows_.clear();
  const size_t num_candidates = CountRows(candidates);
  count = std::min(count, num_candidates);
  if (count == 0) return {};
  if (count == 1) {
    rows_.push_back(FirstRow(scores, candidates));
    return rows_;
  }
  rows_.reserve(num_candidates);
  for (const RowRange& range : candidates) {
    for (size_t i = range.begin; i < range.end; ++i) rows_.push_back(static_cast<uint32_t>(i));
  }
  if (count < num_candidates) {
    const auto goes_before = [&](uint32_t a, uint32_t b) {
      const float key_a = Key(scores[a]);
      const float key_b = Key(scores[b]);
      return key_a != key_b ? key_a < key_b : a > b;
    };
    std::nth_element(rows_.begin(), rows_.begin() + count, rows_.end(), goes_before);
    rows_.resize(count);
    std::sort(rows_.begin(), rows_.end());
  }
  return rows_;
}

std::span<const uint32_t> RowSelection::Cut(std::span<const float> scores,
                                            std::span<const RowRange> candidates,
                                            std::span<const size_t> ends) {
  order_.clear();
  for (const RowRange& range : candidates) {
    for (size_t i = range.begin; i < range.end; ++i) {
      order_.push_back(OrderOf(scores[i], static_cast<uint32_t>(i)));
    }
  }
  assert(std::is_sorted(ends.begin(), ends.end()));
  assert(ends.empty() || ends.back() <= order_.size());
  auto before = order_.end();
  for (size_t i = ends.size(); i-- > 0;) {
    const auto end = order_.begin() + static_cast<ptrdiff_t>(ends[i]);
    std::nth_element(order_.begin(), end, before);
    before = end;
  }
  rows_.resize(order_.size());
  std::transform(order_.begin(), order_.end(), rows_.begin(), RowOf);
  return rows_;
}

}  // namespace ebb

// Plans the units of a step, their order, and which part computes each.
#include <algorithm>
#include <limits>

#include "src/attention/decode.h"

namespace ebb {
namespace {

// kBlockChunks is how many consecutive chunks of a kv head are planned before those of the next
// head. Memory is then read in long runs, a thread's units of all kv heads cover the same rows, and
// further tokens of a sequence find the block in the second-level cache. If selectors choose 1,024
// rows, a thread gets whole heads, and so all chosen rows of a page; with half as many chunks (8),
// reading was a tenth slower.
constexpr int kBlockChunks = 16;

constexpr size_t kNoUnit = std::numeric_limits<size_t>::max();

// Returns the cost of folding `rows` compressed rows, in full-precision rows: 5/8 of their number.
constexpr uint64_t CostOfCompressed(uint64_t rows) { return (rows * 5 + 7) / 8; }

// Returns the end of the target elements that a kv head's rows use.
size_t TargetsEnd(std::span<const uint32_t> mass_elements, size_t num_rows) {
  return mass_elements.empty() ? num_rows : mass_elements.back() + size_t{1};
}

}  // namespace

// Returns whether the last plan is valid for these queries too. It mostly is, because layers mostly
// have the same numbers of rows.
bool DecodeAttention::PlanFits(std::span<const DecodeQuery> queries) const {
  const size_t heads = shape_.num_kv_heads;
  if (planned_.size() != queries.size() * heads) return false;
  for (size_t i = 0; i < planned_.size(); ++i) {
    if (planned_[i] != HeadToPlan(queries[i / heads], static_cast<int>(i % heads))) return false;
  }
  return true;
}

DecodeAttention::PlannedHead DecodeAttention::HeadToPlan(const DecodeQuery& query, int kv_head) {
  const size_t rows = query.rows[kv_head].size();
  const size_t compressed = OfHead(query.compressed, kv_head).size();
  return {.rows = rows,
          .compressed = compressed,
          .targets_end =
              std::max({TargetsEnd(OfHead(query.mass_elements, kv_head), rows),
                        TargetsEnd(OfHead(query.compressed_mass_elements, kv_head), compressed)})};
}

void DecodeAttention::PlanUnit(const Unit& unit) {
  const auto [begin, end] = RowsOf(unit);
  const bool full = unit.kind == Kind::kFull;
  if (full) last_units_[size_t{unit.query} * shape_.num_kv_heads + unit.kv_head] = units_.size();
  units_.push_back(unit);
  rows_before_.push_back(rows_before_.back() +
                         (full ? end - begin : CostOfCompressed(end - begin)));
}

void DecodeAttention::PlanUnits(int begin, int end, Kind kind) {
  const int kv_heads = shape_.num_kv_heads;
  int most_chunks = 0;
  for (int query = begin; query < end; ++query) {
    for (int h = 0; h < kv_heads; ++h) {
      most_chunks = std::max(most_chunks, NumChunks(query, h, kind));
    }
  }
  for (int block = 0; block < most_chunks; block += kBlockChunks) {
    for (int h = 0; h < kv_heads; ++h) PlanBlock(begin, end, h, block, kind);
  }
}

void DecodeAttention::PlanBlock(int begin, int end, int kv_head, int block, Kind kind) {
  for (int first = begin, next = begin; first < end; first = next) {
    next = GroupEnd(first, end, kv_head, kind);
    for (int chunk = block; chunk < block + kBlockChunks; ++chunk) {
      for (int query = first; query < next; ++query) {
        if (chunk >= NumChunks(query, kv_head, kind)) continue;
        PlanUnit({.query = static_cast<uint32_t>(query),
                  .chunk = static_cast<uint32_t>(chunk),
                  .kv_head = static_cast<uint16_t>(kv_head),
                  .kind = kind});
      }
    }
  }
}

void DecodeAttention::PlanHeads(int query) {
  for (int h = 0; h < shape_.num_kv_heads; ++h) {
    planned_.push_back(HeadToPlan(queries_[query], h));
    const size_t blocks = (planned_.back().targets_end + kChunkRows - 1) / kChunkRows;
    num_mass_blocks_ = std::max(num_mass_blocks_, blocks);
  }
}

void DecodeAttention::Plan(std::span<const DecodeQuery> queries) {
  queries_ = queries;
  const int kv_heads =
      queries.empty() ? shape_.num_kv_heads : static_cast<int>(queries.front().rows.size());
  const bool same_heads = kv_heads == shape_.num_kv_heads;
  shape_.num_kv_heads = kv_heads;
  if (same_heads && PlanFits(queries)) return;
  const int num_queries = static_cast<int>(queries.size());
  units_.clear();
  planned_.clear();
  group_begins_.clear();
  last_units_.assign(queries.size() * shape_.num_kv_heads, kNoUnit);
  rows_before_.assign(1, 0);
  num_mass_blocks_ = 0;
  for (int query = 0; query < num_queries; ++query) PlanHeads(query);
  PlanUnits(0, num_queries, Kind::kFull);
  // Plan one group after another, since a thread holds the queries of one group in rounded form.
  for (int first = 0, next = 0; first < num_queries; first = next) {
    next = GroupEnd(first, num_queries, 0, Kind::kCompressed);
    for (int query = first; query < next; ++query) group_begins_.push_back(first);
    PlanUnits(first, next, Kind::kCompressed);
  }
}

// Returns the units of a part: consecutive ones, with the part's share of the rows.
DecodeAttention::UnitRange DecodeAttention::UnitsOf(int part, int num_parts) const {
  const auto end = rows_before_.end() - 1;
  const auto first_unit = [&](int i) -> size_t {
    if (i == num_parts) return units_.size();
    return std::lower_bound(rows_before_.begin(), end, Share(*end, i, num_parts)) -
           rows_before_.begin();
  };
  return {first_unit(part), first_unit(part + 1)};
}

bool DecodeAttention::FoldsLastChunk(int query, int kv_head, int part, int num_parts) const {
  const auto [begin, end] = UnitsOf(part, num_parts);
  const size_t last = last_units_[size_t(query) * shape_.num_kv_heads + kv_head];
  return begin <= last && last < end;
}

}  // namespace ebb

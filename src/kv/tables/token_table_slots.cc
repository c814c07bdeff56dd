// Moves rows to other slots of their tier: compacts sparse pages, and sorts rows by position.
#include <algorithm>
#include <bit>
#include <cassert>
#include <numeric>
#include <utility>

#include "src/kv/tables/token_table.h"

namespace ebb {
namespace {

// kNearSlots is the distance from the previous row's slot from which on a row counts as a stray:
// reading on past a few removed rows is still sequential.
constexpr uint32_t kNearSlots = 8;

}  // namespace

void TokenTable::Compact(Tier tier, size_t max_rows, std::vector<SlotMove>* moves,
                         std::vector<TablePage>* freed) {
  assert(moves->empty());
  if (NumFreeSlots(tier) < kRowsPerPage) return;
  const size_t num_drained = NumFreeSlots(tier) / kRowsPerPage;
  std::vector<uint32_t> pages;  // that may change, the sparsest first; among equals the last one
  pages.reserve(num_pages(tier));
  for (size_t page = used_.size(); page-- > 0;) {
    if (used_[page] == 0 || tier_of_[page] != tier || IsSealed(page)) continue;
    pages.push_back(static_cast<uint32_t>(page));
  }
  std::stable_sort(pages.begin(), pages.end(), [this](uint32_t a, uint32_t b) {
    return std::popcount(used_[a]) < std::popcount(used_[b]);
  });
  // The fullest pages have room for all rows of the sparsest ones, and draining the sparsest takes
  // the fewest moves.
  size_t into = pages.size() - 1;
  for (size_t i = 0; i < num_drained; ++i) {
    const uint32_t page = pages[i];
    if (moves->size() + std::popcount(used_[page]) > max_rows) break;
    for (uint64_t rows = used_[page]; rows != 0; rows &= rows - 1) {
      while (used_[pages[into]] == kFull) --into;
      const int hole = std::countr_one(used_[pages[into]]);
      used_[pages[into]] |= uint64_t{1} << hole;
      moves->push_back({.from = {page, static_cast<uint32_t>(std::countr_zero(rows))},
                        .to = {pages[into], static_cast<uint32_t>(hole)}});
    }
    used_[page] = 0;
    --num_pages_[Index(tier)];
    freed->push_back({page, tier});
  }
  RenameSlots(*moves);
  if (tier != Tier::kT2) num_slots_taken_ += moves->size();
  for (const uint32_t page : pages) SetOpen(page, used_[page] != 0 && used_[page] != kFull);
  ShrinkArrays();
}

void TokenTable::RenameSlots(std::span<const SlotMove> moves) {
  if (moves.empty()) return;
  std::vector<Slot> renamed(used_.size() * kRowsPerPage);  // by old slot
  std::iota(renamed.begin(), renamed.end(), Slot());
  for (const SlotMove& move : moves) renamed[move.from.value] = move.to;
  for (Slot& slot : slots_) slot = renamed[slot.value];
}

size_t TokenTable::CountStrays() {
  num_slots_taken_ = 0;
  size_t strays = 0;
  const Slot* before = nullptr;
  for (const Slot& slot : slots_) {
    if (TierOf(slot) == Tier::kT2) continue;
    // A lower slot wraps around to a large difference, and counts as a stray.
    if (before != nullptr && slot.value - before->value - 1 >= kNearSlots) ++strays;
    before = &slot;
  }
  return strays;
}

// Follows each cycle of slots: the first row waits in kSpareSlot, then each slot receives its row
// from the next slot of the cycle, until the waiting row is wanted.
void TokenTable::Sort(std::vector<SlotMove>* moves) {
  assert(num_pages(Tier::kT1) == 0 && num_sealed_ == 0);
  // Allocates all memory before it changes anything. A cycle of two rows takes three moves.
  std::vector<Slot> source(used_.size() * kRowsPerPage);  // by slot: where its row lies now
  moves->reserve(moves->size() + slots_.size() * 3 / 2);
  std::iota(source.begin(), source.end(), Slot());
  auto slot = slots_.begin();
  for (size_t page = 0; page < used_.size(); ++page) {
    if (tier_of_[page] == Tier::kT2) continue;
    for (uint64_t rows = used_[page]; rows != 0; rows &= rows - 1) {
      while (TierOf(*slot) == Tier::kT2) ++slot;
      const Slot to(static_cast<uint32_t>(page), static_cast<uint32_t>(std::countr_zero(rows)));
      source[to.value] = std::exchange(*slot++, to);
    }
  }
  for (Slot first; first.value < source.size(); ++first) {
    if (source[first.value] == first) continue;
    moves->push_back({first, kSpareSlot});
    Slot hole = first;
    while (source[hole.value] != first) {
      moves->push_back({source[hole.value], hole});
      hole = std::exchange(source[hole.value], hole);
    }
    moves->push_back({kSpareSlot, hole});
    source[hole.value] = hole;
  }
}

}  // namespace ebb

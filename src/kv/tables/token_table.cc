// Invariants of TokenTable: (1) positions_ ascends strictly; (2) a slot's bit in used_ is set
// exactly when one row has that slot; (3) used_[p] is 0 exactly when page p is absent, and the last
// one is not 0; (4) last_visible_ is empty exactly when num_hidden_later_ is 0; (5) an open page's
// bit is set in the array of its own tier alone; (6) a sealed page is present and not open.
#include "src/kv/tables/token_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>

#include "src/base/fetch_ahead.h"

namespace ebb {
namespace {

static_assert(kRowsPerPage == 64, "a page's slots are the bits of a word");

template <typename T>
void EraseAt(MappedArray<T>* array, std::span<const uint32_t> removed) {
  if (array->empty()) return;
  auto out = array->begin() + removed.front();
  for (size_t i = 0; i < removed.size(); ++i) {
    const auto begin = array->begin() + removed[i] + 1;
    const auto end = i + 1 < removed.size() ? array->begin() + removed[i + 1] : array->end();
    out = std::copy(begin, end, out);
  }
  array->erase(out, array->end());
}

template <typename T>
size_t BytesOf(const MappedArray<T>& array) {
  return array.capacity() * sizeof(T);
}

}  // namespace

size_t TokenTable::BytesFor(size_t num_rows, size_t num_pages) {
  const size_t words = (num_pages + 63) / 64;
  return sizeof(TokenTable) + MappedBytes<Slot>(num_rows) + MappedBytes<Position>(num_rows) +
         MappedBytes<uint64_t>(num_pages) + MappedBytes<Tier>(num_pages) +
         kTiers.size() * MappedBytes<uint64_t>(words);
}

size_t TokenTable::PagesNeeded(size_t num_rows, Tier tier) const {
  const size_t num_free = NumFreeSlots(tier);
  return num_rows <= num_free ? 0 : PagesFor(num_rows - num_free);
}

void TokenTable::ReserveRows(size_t num_rows) {
  const size_t total = slots_.size() + num_rows;
  GrowTo(&slots_, total);
  GrowTo(&positions_, total);
  if (!last_visible_.empty()) GrowTo(&last_visible_, total);
  // Reserves for all tiers, since any may get the new pages.
  const size_t page_end = used_.size() + PagesFor(num_rows);
  GrowTo(&used_, page_end);
  GrowTo(&tier_of_, page_end);
  for (auto& open : open_) GrowTo(&open, (page_end + 63) / 64);
}

bool TokenTable::IsOpen(size_t page) const {
  return (open_[Index(tier_of_[page])][page / 64] >> page % 64 & 1) != 0;
}

void TokenTable::SetOpen(size_t page, bool open) {
  const uint64_t bit = uint64_t{1} << page % 64;
  uint64_t& word = open_[Index(tier_of_[page])][page / 64];
  word = open ? word | bit : word & ~bit;
}

size_t TokenTable::AddPage(Tier tier, std::vector<TablePage>* added) {
  const auto page = static_cast<size_t>(std::find(used_.begin(), used_.end(), 0) - used_.begin());
  if (page == used_.size()) {
    used_.push_back(0);
    tier_of_.push_back(tier);
    for (auto& open : open_) open.resize((used_.size() + 63) / 64);
  }
  tier_of_[page] = tier;
  SetOpen(page, true);
  ++num_pages_[Index(tier)];
  added->push_back({static_cast<uint32_t>(page), tier});
  return page;
}

Slot TokenTable::TakeSlot(Tier tier, std::vector<TablePage>* added) {
  const auto& open = open_[Index(tier)];
  size_t page = 0;
  if (NumFreeSlots(tier) > 0) {
    const auto word = std::find_if(open.begin(), open.end(), [](uint64_t w) { return w != 0; });
    page = static_cast<size_t>(word - open.begin()) * 64 + std::countr_zero(*word);
  } else {
    page = AddPage(tier, added);
  }
  const int row = std::countr_one(used_[page]);
  used_[page] |= uint64_t{1} << row;
  ++num_rows_[Index(tier)];
  if (tier != Tier::kT2) ++num_slots_taken_;
  if (used_[page] == kFull) SetOpen(page, false);
  return {static_cast<uint32_t>(page), static_cast<uint32_t>(row)};
}

void TokenTable::Append(Position first, size_t num_rows, std::vector<TablePage>* added) {
  assert(positions_.empty() || first > positions_.back());
  ReserveRows(num_rows);
  if (!last_visible_.empty()) last_visible_.resize(slots_.size() + num_rows, kVisibleForEver);
  for (size_t i = 0; i < num_rows; ++i) {
    slots_.push_back(TakeSlot(Tier::kT0, added));
    positions_.push_back(first + static_cast<Position>(i));
  }
}

void TokenTable::Relocate(std::span<const uint32_t> rows, Tier tier, std::vector<SlotMove>* moves,
                          std::vector<TablePage>* added, std::vector<TablePage>* freed) {
  ReserveRows(rows.size());
  const size_t first = moves->size();
  for (const uint32_t row : rows) {
    assert(TierOf(slots_[row]) != tier);
    const SlotMove move = {.from = slots_[row], .to = TakeSlot(tier, added)};
    slots_[row] = move.to;
    moves->push_back(move);
  }
  // Frees old slots only now, so that no other row of this call takes one before its row is copied.
  for (const SlotMove& move : std::span(*moves).subspan(first)) FreeSlot(move.from, freed);
  ShrinkArrays();
}

void TokenTable::FreeSlot(Slot slot, std::vector<TablePage>* freed) {
  const size_t page = slot.page();
  const size_t tier = Index(tier_of_[page]);
  used_[page] &= ~(uint64_t{1} << slot.row());
  --num_rows_[tier];
  const bool sealed = IsSealed(page);
  if (sealed) ++num_closed_[tier];
  SetOpen(page, used_[page] != 0 && !sealed);
  if (used_[page] != 0) return;
  if (sealed) {
    num_closed_[tier] -= kRowsPerPage;
    SetSealed(page, false);
  }
  --num_pages_[tier];
  freed->push_back({static_cast<uint32_t>(page), tier_of_[page]});
}

// Frees the slot of a row; the caller removes the row from the arrays.
void TokenTable::FreeRow(uint32_t index, std::vector<TablePage>* freed) {
  FreeSlot(slots_[index], freed);
  if (!last_visible_.empty() && last_visible_[index] != kVisibleForEver) --num_hidden_later_;
}

void TokenTable::ShrinkArrays() {
  if (num_hidden_later_ == 0) last_visible_.clear();
  while (!used_.empty() && used_.back() == 0) used_.pop_back();
  tier_of_.resize(used_.size());
  for (auto& open : open_) {
    open.resize((used_.size() + 63) / 64);
    ShrinkToContents(&open);
  }
  ShrinkToContents(&tier_of_);
  ShrinkToContents(&slots_);
  ShrinkToContents(&positions_);
  ShrinkToContents(&last_visible_);
  ShrinkToContents(&used_);
}

void TokenTable::Remove(std::span<const uint32_t> removed, std::vector<TablePage>* freed) {
  if (removed.empty()) return;
  assert(removed.back() < slots_.size());
  for (const uint32_t index : removed) FreeRow(index, freed);
  EraseAt(&slots_, removed);
  EraseAt(&positions_, removed);
  EraseAt(&last_visible_, removed);
  ShrinkArrays();
}

void TokenTable::TruncateTo(Position end, std::vector<TablePage>* freed) {
  const auto num_left = static_cast<size_t>(
      std::lower_bound(positions_.begin(), positions_.end(), end) - positions_.begin());
  if (num_left == slots_.size()) return;
  for (size_t i = num_left; i < slots_.size(); ++i) FreeRow(static_cast<uint32_t>(i), freed);
  slots_.resize(num_left);
  positions_.resize(num_left);
  if (!last_visible_.empty()) last_visible_.resize(num_left);
  ShrinkArrays();
}

void TokenTable::SetLastVisible(uint32_t index, Position last) {
  assert(index < slots_.size());
  assert(last == kVisibleForEver || TierOf(slots_[index]) != Tier::kT2);
  if (last_visible_.empty()) {
    if (last == kVisibleForEver) return;
    GrowTo(&last_visible_, slots_.capacity());
    last_visible_.assign(slots_.size(), kVisibleForEver);
  }
  num_hidden_later_ -= last_visible_[index] != kVisibleForEver ? 1 : 0;
  num_hidden_later_ += last != kVisibleForEver ? 1 : 0;
  last_visible_[index] = last;
  if (num_hidden_later_ == 0) ShrinkArrays();
}

void TokenTable::ReserveSeals() { GrowTo(&sealed_, (used_.size() + 63) / 64); }

void TokenTable::SetSealed(size_t page, bool sealed) {
  const uint64_t bit = uint64_t{1} << page % 64;
  uint64_t& word = sealed_[page / 64];
  word = sealed ? word | bit : word & ~bit;
  sealed ? ++num_sealed_ : --num_sealed_;
  if (num_sealed_ == 0) sealed_.clear();
}

void TokenTable::Seal(size_t page) {
  assert(HasPage(page));
  if (IsSealed(page)) return;
  if (sealed_.size() <= page / 64) sealed_.resize((used_.size() + 63) / 64);
  SetSealed(page, true);
  SetOpen(page, false);
  num_closed_[Index(tier_of_[page])] += kRowsPerPage - std::popcount(used_[page]);
}

void TokenTable::Unseal(size_t page) {
  if (!IsSealed(page)) return;
  SetSealed(page, false);
  SetOpen(page, HasOpenSlot(page));
  num_closed_[Index(tier_of_[page])] -= kRowsPerPage - std::popcount(used_[page]);
}

void TokenTable::FetchAhead() const {
  ebb::FetchAhead<Slot>(slots_);
  ebb::FetchAhead<Position>(positions_);
  ebb::FetchAhead<uint64_t>(used_);
  ebb::FetchAhead<Tier>(tier_of_);
  ebb::FetchAhead<uint64_t>(open_[0]);
}

size_t TokenTable::table_bytes() const {
  return sizeof(*this) + BytesOf(slots_) + BytesOf(positions_) + BytesOf(last_visible_) +
         BytesOf(used_) + BytesOf(tier_of_) + BytesOf(open_[0]) + BytesOf(open_[1]) +
         BytesOf(open_[2]) + BytesOf(sealed_);
}

Status TokenTable::Validate() const {
  std::vector<uint64_t> used(used_.size());
  if (positions_.size() != slots_.size()) return Internal("positions and slots differ in number");
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (i > 0 && positions_[i] <= positions_[i - 1]) {
      return Internal(fmt::format("position {} follows {}", positions_[i], positions_[i - 1]));
    }
    const size_t page = slots_[i].page();
    const uint64_t bit = uint64_t{1} << slots_[i].row();
    if (page >= used.size() || (used[page] & bit) != 0) {
      return Internal(fmt::format("slot {} is out of range or taken twice", slots_[i].value));
    }
    used[page] |= bit;
  }
  std::array<size_t, kTiers.size()> num_pages = {};
  std::array<size_t, kTiers.size()> num_rows = {};
  std::array<size_t, kTiers.size()> num_closed = {};
  size_t num_sealed = 0;
  for (size_t page = 0; page < used.size(); ++page) {
    const uint64_t bit = uint64_t{1} << page % 64;
    const bool elsewhere = std::ranges::any_of(kTiers, [&](Tier tier) {
      return tier != tier_of_[page] && (open_[Index(tier)][page / 64] & bit) != 0;
    });
    if (used[page] != used_[page] || elsewhere || IsOpen(page) != HasOpenSlot(page) ||
        (IsSealed(page) && used[page] == 0)) {
      return Internal(fmt::format("the free slots of page {} are wrong", page));
    }
    num_pages[Index(tier_of_[page])] += used[page] != 0 ? 1 : 0;
    num_rows[Index(tier_of_[page])] += std::popcount(used[page]);
    if (!IsSealed(page)) continue;
    ++num_sealed;
    num_closed[Index(tier_of_[page])] += kRowsPerPage - std::popcount(used[page]);
  }
  if (num_sealed != num_sealed_ || num_closed != num_closed_) {
    return Internal(fmt::format("{} sealed pages have {} free slots, {} with {} counted",
                                num_sealed, fmt::join(num_closed, " + "), num_sealed_,
                                fmt::join(num_closed_, " + ")));
  }
  if (num_pages != num_pages_ || num_rows != num_rows_) {
    return Internal(fmt::format("{} pages hold {} rows, {} and {} were counted",
                                fmt::join(num_pages, " + "), fmt::join(num_rows, " + "),
                                fmt::join(num_pages_, " + "), fmt::join(num_rows_, " + ")));
  }
  const auto hidden = last_visible_.size() -
                      std::count(last_visible_.begin(), last_visible_.end(), kVisibleForEver);
  if (hidden != num_hidden_later_ || last_visible_.size() != (hidden == 0 ? 0 : slots_.size())) {
    return Internal(
        fmt::format("{} rows are hidden later, {} were counted", hidden, num_hidden_later_));
  }
  return OkStatus();
}

}  // namespace ebb

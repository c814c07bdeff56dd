// Saves and loads the state of a token table.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cassert>
#include <numeric>

#include "src/kv/tables/token_table.h"

namespace ebb {
namespace {

Status CheckPages(const TokenTableState& state) {
  size_t num_rows = 0;
  for (const TokenTableState::Page& page : state.pages) {
    if (page.used == 0) return InvalidArgument("a page without rows");
    if (std::ranges::find(TokenTable::kTiers, page.tier) == TokenTable::kTiers.end()) {
      return InvalidArgument("a page in a tier that has none");
    }
    num_rows += std::popcount(page.used);
  }
  if (num_rows != state.positions.size()) {
    return InvalidArgument(
        fmt::format("pages of {} rows and positions of {}", num_rows, state.positions.size()));
  }
  if (!state.last_visible.empty() && state.last_visible.size() != num_rows) {
    return InvalidArgument("some last visible positions are missing");
  }
  return OkStatus();
}

// Returns the slots of the rows, page after page.
std::vector<Slot> SlotsOf(std::span<const TokenTableState::Page> pages) {
  std::vector<Slot> slots;
  for (size_t page = 0; page < pages.size(); ++page) {
    for (uint64_t rows = pages[page].used; rows != 0; rows &= rows - 1) {
      slots.emplace_back(static_cast<uint32_t>(page),
                         static_cast<uint32_t>(std::countr_zero(rows)));
    }
  }
  return slots;
}

}  // namespace

TokenTableState TokenTable::State() const {
  TokenTableState state;
  for (size_t page = 0; page < used_.size(); ++page) {
    if (used_[page] != 0) state.pages.push_back({tier_of_[page], used_[page]});
  }
  std::vector<uint32_t> rows(slots_.size());
  std::iota(rows.begin(), rows.end(), 0);
  std::ranges::sort(rows, {}, [this](uint32_t row) { return slots_[row]; });
  for (const uint32_t row : rows) {
    state.positions.push_back(positions_[row]);
    if (!last_visible_.empty()) state.last_visible.push_back(last_visible_[row]);
  }
  return state;
}

Status TokenTable::Restore(const TokenTableState& state, std::vector<TablePage>* added) {
  assert(slots_.empty() && used_.empty());
  EBB_RETURN_IF_ERROR(CheckPages(state));
  const std::vector<Slot> slots = SlotsOf(state.pages);
  std::vector<uint32_t> order(slots.size());  // by position
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, {}, [&](uint32_t row) { return state.positions[row]; });
  for (size_t i = 0; i < order.size(); ++i) {
    const Position position = state.positions[order[i]];
    if (position < 0) return InvalidArgument(fmt::format("position {}", position));
    if (i > 0 && position == state.positions[order[i - 1]]) {
      return InvalidArgument(fmt::format("two rows at position {}", position));
    }
  }
  // From here on only memory can be missing, so everything is allocated before any change.
  added->reserve(added->size() + state.pages.size());
  ReserveRows(slots.size());
  if (!state.last_visible.empty()) GrowTo(&last_visible_, slots_.capacity());
  GrowTo(&used_, state.pages.size());
  GrowTo(&tier_of_, state.pages.size());
  for (auto& open : open_) GrowTo(&open, (state.pages.size() + 63) / 64);
  for (const uint32_t row : order) {
    slots_.push_back(slots[row]);
    positions_.push_back(state.positions[row]);
  }
  for (auto& open : open_) open.resize((state.pages.size() + 63) / 64);
  for (size_t page = 0; page < state.pages.size(); ++page) {
    const TokenTableState::Page& from = state.pages[page];
    used_.push_back(from.used);
    tier_of_.push_back(from.tier);
    SetOpen(page, from.used != kFull);
    ++num_pages_[Index(from.tier)];
    num_rows_[Index(from.tier)] += std::popcount(from.used);
    added->push_back({static_cast<uint32_t>(page), from.tier});
  }
  num_slots_taken_ = num_full_rows();
  for (size_t i = 0; i < order.size() && !state.last_visible.empty(); ++i) {
    SetLastVisible(static_cast<uint32_t>(i), state.last_visible[order[i]]);
  }
  return OkStatus();
}

}  // namespace ebb

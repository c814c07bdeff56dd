#include "src/sequence/roll_back.h"

#include <fmt/format.h>

#include <algorithm>

#include "src/base/checkpoints.h"

namespace ebb {
namespace {

// Returns the first position that the query at `position` sees through a window.
Position FirstSeen(Position position, int window) { return std::max(position - window + 1, 0); }

}  // namespace

size_t WindowCheckpoints::MostRows(int window, size_t num_rows, size_t checkpoints, size_t beyond) {
  return window == 0 ? num_rows : std::min(num_rows, (1 + checkpoints) * window + beyond);
}

uint64_t WindowCheckpoints::MostRows(const ModelShape& shape, size_t num_rows, size_t checkpoints,
                                     size_t beyond, size_t unit) {
  uint64_t sum = 0;
  for (int layer = 0; layer < shape.num_layers; ++layer) {
    const size_t rows = MostRows(shape.Window(layer), num_rows, checkpoints, beyond);
    sum += uint64_t{(rows + unit - 1) / unit * unit} * shape.NumKvHeads(layer);
  }
  return sum;
}

WindowCheckpoints::WindowCheckpoints(const ModelShape& shape, size_t most)
    : most_(most), windows_(shape.windows) {
  std::erase(windows_, 0);
  std::ranges::sort(windows_);
  windows_.erase(std::unique(windows_.begin(), windows_.end()), windows_.end());
}

void WindowCheckpoints::Keep(Position position, bool replaces) {
  if (!exists() || position <= 0) return;
  if (replaces && !positions_.empty()) positions_.pop_back();
  if (!positions_.empty() && positions_.back() >= position) return;
  positions_.push_back(position);
  if (positions_.size() <= most_) return;
  positions_.erase(positions_.begin() +
                   static_cast<ptrdiff_t>(CheckpointToDrop(positions_, kept_)));
}

void WindowCheckpoints::GoBackTo(Position end) {
  std::erase_if(positions_, [end](Position position) { return position > end; });
}

void WindowCheckpoints::FindGone(std::span<const Position> positions, int window, Position next,
                                 std::vector<uint32_t>* gone) const {
  const auto index_of = [&](Position position) {
    return static_cast<uint32_t>(std::ranges::lower_bound(positions, position) - positions.begin());
  };
  gone->clear();
  uint32_t at = 0;
  const auto add_up_to = [&](uint32_t end) {
    for (; at < end; ++at) gone->push_back(at);
  };
  const uint32_t end = index_of(FirstSeen(next, window));
  for (const Position checkpoint : positions_) {
    add_up_to(std::min(end, index_of(FirstSeen(checkpoint, window))));
    at = std::max(at, std::min(end, index_of(checkpoint)));
  }
  add_up_to(end);
}

// Returns the largest position up to `end` whose window lies within one run of surviving rows. Each
// run ends at a checkpoint or at `next`.
Position WindowCheckpoints::NearestInWindow(Position end, Position next, int window) const {
  if (window == 1) return end;  // a token sees its own row alone
  Position nearest = 0, run_begin = 0, run_end = 0;
  const auto add = [&](Position checkpoint) {
    const Position first = FirstSeen(checkpoint, window);
    if (first > run_end) run_begin = first;
    run_end = checkpoint;
    const Position last = std::min(end, run_end);
    if (FirstSeen(last, window) >= run_begin) nearest = std::max(nearest, last);
  };
  for (const Position checkpoint : positions_) add(checkpoint);
  add(next);
  return nearest;
}

Position WindowCheckpoints::NearestUpTo(Position end, Position next) const {
  for (bool moved = true; moved;) {
    moved = false;
    for (const int window : windows_) {
      const Position nearest = NearestInWindow(end, next, window);
      moved = moved || nearest != end;
      end = nearest;
    }
  }
  return end;
}

void WindowCheckpoints::Save(StateWriter* to) const {
  if (exists()) to->Numbers<Position>(positions_);
}

void WindowCheckpoints::Load(Position next, StateReader* from) {
  if (!exists()) return;
  positions_ = from->Numbers<Position>();
  Position after = 0;
  for (const Position position : positions_) {
    if (position <= after || position > next) {
      from->Fail(fmt::format("a checkpoint of windows at {} of {} tokens", position, next));
      return;
    }
    after = position;
  }
  if (positions_.size() > most_) from->Fail("too many checkpoints of windows");
}

Position RollBack::NearestUpTo(Position end, Position next) const {
  for (;;) {
    const Position nearest = windows_.NearestUpTo(state_.NearestUpTo(end), next);
    if (nearest == end) return end;
    end = nearest;
  }
}

// Checks that the cache still has the rows that left the sliding window before `next` and that
// queries would see again after a roll-back to `end`, and that the recurrent state at `end` exists.
Status RollBack::Check(Position end, Position next) const {
  if (const Position nearest = state_.NearestUpTo(end); nearest != end) {
    return Unsupported(
        fmt::format("cannot roll back from {} tokens to {}: the recurrent state of the model was "
                    "kept at the ends of prompts and of some messages alone; the nearest position "
                    "before is {}",
                    next, end, nearest));
  }
  const Position nearest = windows_.NearestUpTo(end, next);
  if (nearest == end) return OkStatus();
  return Unsupported(fmt::format(
      "cannot roll back from {} tokens to {}: layers with a sliding window of {} tokens "
      "have evicted rows that would be visible again; the nearest position before is {}",
      next, end, shape_.SmallestWindow(), NearestUpTo(nearest, next)));
}

void RollBack::Keep(Position next, std::span<const Position> within, bool keeps_windows,
                    bool lasts) {
  bool replaces = !newest_lasts_;
  state_.Keep(replaces);
  if (keeps_windows) {
    for (const Position position : within) {
      windows_.Keep(position, replaces);
      replaces = false;
    }
    windows_.Keep(next, replaces);
  }
  newest_lasts_ = lasts;
}

void RollBack::KeepAlways(Position position) {
  state_.KeepAlways(position);
  windows_.KeepAlways(position);
}

void RollBack::GoBackTo(Position end) {
  state_.GoBackTo(end);
  windows_.GoBackTo(end);
}

void RollBack::TakeFrom(const RollBack& other, Position end) {
  state_.TakeFrom(other.state_, end);
  windows_ = other.windows_;
  windows_.GoBackTo(end);
}

void RollBack::Save(StateWriter* to) const {
  state_.Save(to);
  windows_.Save(to);
}

void RollBack::Load(Position next, StateReader* from) {
  state_.Load(from);
  if (state_.exists() && from->status().ok() && state_.position() != next) {
    from->Fail(fmt::format("a recurrent state of {} tokens for {}", state_.position(), next));
  }
  windows_.Load(next, from);
}

}  // namespace ebb

#include "src/step/work/recurrent_state.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <iterator>
#include <new>
#include <utility>

#include "src/base/checkpoints.h"

namespace ebb {

RecurrentState::Memory RecurrentState::Allocate(size_t bytes) {
  Memory memory = hwy::AllocateAligned<std::byte>(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

size_t RecurrentState::memory_bytes() const {
  size_t bytes = (state_ == nullptr ? 0 : bytes_) + max_slots_ * bytes_;
  for (const Checkpoint& kept : checkpoints_) {
    bytes += bytes_ / static_cast<size_t>(kept.bytes.use_count());
  }
  return bytes;
}

void RecurrentState::Reserve() {
  if (state_ != nullptr) return;
  state_ = Allocate(bytes_);
  std::memset(state_.get(), 0, bytes_);
}

std::byte* RecurrentState::BeginStep() {
  position_ = -1;
  return state_.get();
}

void RecurrentState::ReserveAhead(size_t num_tokens) {
  Reserve();
  if (num_tokens <= max_slots_) return;
  slots_.reset();
  max_slots_ = 0;
  slots_ = Allocate(num_tokens * bytes_);
  max_slots_ = num_tokens;
}

template <typename Visitor>
void RecurrentState::ForEachSlots(const Visitor& visit) {
  for (const StatePart& part : parts_) {
    visit(state_.get() + part.offset, slots_.get() + num_slots_ * part.offset, part.bytes);
  }
}

std::byte* RecurrentState::BeginAhead(size_t num_tokens, std::span<const StatePart> parts) {
  assert(num_tokens <= max_slots_);
  num_slots_ = num_tokens;
  parts_ = parts;
  ForEachSlots([](const std::byte* state, std::byte* slots, size_t bytes) {
    std::memcpy(slots, state, bytes);
  });
  position_ = -1;
  return slots_.get();
}

void RecurrentState::TakeSlot(size_t slot) {
  ForEachSlots([slot](std::byte* state, const std::byte* slots, size_t bytes) {
    std::memcpy(state, slots + slot * bytes, bytes);
  });
  slots_left_ = slot;
}

void RecurrentState::EndAhead(Position position) {
  TakeSlot(num_slots_ - 1);
  position_ = position;
}

void RecurrentState::TakeNext() {
  if (!exists()) return;
  assert(slots_left_ > 0);
  TakeSlot(slots_left_ - 1);
  ++position_;
}

const std::byte* RecurrentState::At(Position position) const {
  if (position == position_) return state_.get();
  const auto found = std::ranges::find(checkpoints_, position, &Checkpoint::position);
  return found == checkpoints_.end() ? nullptr : found->bytes->get();
}

// Copies the state into a checkpoint at position_. The copy overwrites the checkpoint that is
// dropped, unless other sequences share that one; so there are never more than `most_` copies. All
// memory is allocated before anything changes.
void RecurrentState::Keep(bool replaces) try {
  if (!exists() || state_ == nullptr || position_ <= 0) return;
  const size_t num_kept = checkpoints_.size();
  if (num_kept > 0 && checkpoints_.back().position == position_) return;
  size_t goes = num_kept;  // index of the checkpoint to drop; num_kept: none
  if (replaces && num_kept > 0) {
    goes = num_kept - 1;
  } else if (num_kept >= most_) {
    std::vector<Position> positions;
    for (const Checkpoint& kept : checkpoints_) positions.push_back(kept.position);
    positions.push_back(position_);
    goes = CheckpointToDrop(positions, kept_);
  }
  checkpoints_.reserve(std::max(num_kept + 1, most_));
  const bool reuses = goes < num_kept && checkpoints_[goes].bytes.use_count() == 1;
  std::shared_ptr<Memory> copy =
      reuses ? checkpoints_[goes].bytes : std::make_shared<Memory>(Allocate(bytes_));
  std::memcpy(copy->get(), state_.get(), bytes_);
  if (goes < num_kept) checkpoints_.erase(checkpoints_.begin() + static_cast<ptrdiff_t>(goes));
  checkpoints_.push_back({.position = position_, .bytes = std::move(copy)});
} catch (const std::bad_alloc&) {
}

Position RecurrentState::NearestUpTo(Position end) const {
  if (!exists()) return end;
  Position nearest = position_ >= 0 && position_ <= end ? position_ : 0;
  for (const Checkpoint& checkpoint : checkpoints_) {
    if (checkpoint.position <= end) nearest = std::max(nearest, checkpoint.position);
  }
  return nearest;
}

void RecurrentState::GoBackTo(Position end) {
  if (!exists()) return;
  if (end != position_) {
    const std::byte* from = At(end);
    if (from == nullptr) {
      state_ = nullptr;  // position 0: the state is all zeros
    } else {
      std::memcpy(state_.get(), from, bytes_);
    }
    position_ = end;
  }
  std::erase_if(checkpoints_, [&](const Checkpoint& kept) { return kept.position > end; });
}

void RecurrentState::TakeFrom(const RecurrentState& other, Position end) {
  if (!exists()) return;
  const std::byte* from = other.At(end);
  if (end > 0 && from != nullptr) {
    if (state_ == nullptr) state_ = Allocate(bytes_);
    std::memcpy(state_.get(), from, bytes_);
  }
  position_ = end;
  kept_ = other.kept_;
  checkpoints_.clear();
  std::ranges::copy_if(other.checkpoints_, std::back_inserter(checkpoints_),
                       [end](const Checkpoint& kept) { return kept.position <= end; });
}

void RecurrentState::Save(StateWriter* to) const {
  if (!exists()) return;
  const auto save = [&](Position position, const std::byte* bytes) {
    to->Number<Position>(position);
    const auto* values = reinterpret_cast<const uint8_t*>(bytes);
    to->Numbers<uint8_t>(std::span(values, bytes == nullptr ? 0 : bytes_));
  };
  save(position_, state_.get());
  to->Number<uint8_t>(static_cast<uint8_t>(checkpoints_.size()));
  for (const Checkpoint& kept : checkpoints_) save(kept.position, kept.bytes->get());
}

void RecurrentState::Load(StateReader* from) {
  if (!exists()) return;
  const auto load = [&](Memory* bytes) {
    const auto position = from->Number<Position>();
    const std::vector<uint8_t> values = from->Numbers<uint8_t>();
    if (values.size() != bytes_ && !(values.empty() && position == 0)) {
      from->Fail("a recurrent state of another size");
      return Position{0};
    }
    if (!values.empty()) {
      *bytes = Allocate(bytes_);
      std::memcpy(bytes->get(), values.data(), bytes_);
    }
    return position;
  };
  position_ = load(&state_);
  checkpoints_.clear();
  const auto num_checkpoints = from->Number<uint8_t>();
  for (int i = 0; i < num_checkpoints && from->status().ok(); ++i) {
    auto bytes = std::make_shared<Memory>();
    const Position position = load(bytes.get());
    const Position after = checkpoints_.empty() ? 0 : checkpoints_.back().position;
    if (*bytes == nullptr || position <= after || position > position_) {
      from->Fail("checkpoints of a recurrent state that are out of order");
      return;
    }
    checkpoints_.push_back({.position = position, .bytes = std::move(bytes)});
  }
  if (position_ < 0) from->Fail("a recurrent state without a position");
}

}  // namespace ebb

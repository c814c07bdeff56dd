// Keeps checkpoints to which a sequence can roll back although its model has a recurrent state or
// layers with sliding windows. At a checkpoint the state is copied, and the rows within the windows
// are kept.
#ifndef EBB_SEQUENCE_ROLL_BACK_H_
#define EBB_SEQUENCE_ROLL_BACK_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ebb/state.h"
#include "ebb/status.h"
#include "ebb/types.h"
#include "src/step/work/recurrent_state.h"

namespace ebb {

// WindowCheckpoints lists the checkpoints of layers with sliding windows and finds the rows that
// such a layer may remove: those that neither a coming query nor the first query after a checkpoint
// sees. Rows kept for a checkpoint stay in their tables, outside the window of every coming query.
class WindowCheckpoints {
 public:
  // Returns the most rows of a kv head. A layer with a window has the window's rows, as many for
  // each checkpoint, and the `beyond` rows of a step; a layer without one (window 0) has num_rows.
  [[nodiscard]] static size_t MostRows(int window, size_t num_rows, size_t checkpoints,
                                       size_t beyond);
  // Returns the sum over all kv heads of the most rows, each rounded up to a multiple of `unit`.
  [[nodiscard]] static uint64_t MostRows(const ModelShape& shape, size_t num_rows,
                                         size_t checkpoints, size_t beyond, size_t unit);

  // Makes an object without checkpoints. For a model without windows it keeps none, and every
  // position can be rolled back to. `most`: limit of checkpoints.
  WindowCheckpoints(const ModelShape& shape, size_t most);

  [[nodiscard]] bool exists() const { return !windows_.empty(); }
  [[nodiscard]] bool empty() const { return positions_.empty(); }
  // Adds a checkpoint at the position of the next token. If `replaces`, drops the newest one;
  // otherwise drops CheckpointToDrop() if there are too many.
  void Keep(Position position, bool replaces);
  // Protects the checkpoint at this position, which may still be to come, from being dropped for
  // others.
  void KeepAlways(Position position) { kept_ = position; }
  // Removes the checkpoints after `end`.
  void GoBackTo(Position end);
  void Clear() { positions_.clear(); }

  // Replaces `gone` by the indices of the rows that can be removed: no query at `next` or later
  // sees them through a window, nor does the first query after a checkpoint. positions: the rows'
  // positions, ascending.
  void FindGone(std::span<const Position> positions, int window, Position next,
                std::vector<uint32_t>* gone) const;
  // Returns the largest position up to `end` at which all rows within the windows are still there.
  // REQUIRES: end <= next.
  [[nodiscard]] Position NearestUpTo(Position end, Position next) const;

  void Save(StateWriter* to) const;
  void Load(Position next, StateReader* from);
  [[nodiscard]] std::span<const Position> positions() const { return positions_; }

 private:
  // Implements NearestUpTo() for the layers with this window alone.
  [[nodiscard]] Position NearestInWindow(Position end, Position next, int window) const;

  size_t most_;                      // checkpoints
  Position kept_ = 0;                // CheckpointToDrop()'s
  std::vector<int> windows_;         // the sizes that layers have, ascending
  std::vector<Position> positions_;  // ascending
};

class RollBack {
 public:
  // Makes an object without checkpoints. `most`: limit of checkpoints.
  RollBack(const ModelShape& shape, size_t state_bytes, size_t most)
      : shape_(shape), state_(state_bytes, most), windows_(shape, most) {}

  [[nodiscard]] RecurrentState& state() { return state_; }
  [[nodiscard]] const RecurrentState& state() const { return state_; }
  [[nodiscard]] WindowCheckpoints& windows() { return windows_; }
  [[nodiscard]] const WindowCheckpoints& windows() const { return windows_; }
  // Returns whether some positions can be rolled back to only with a checkpoint.
  [[nodiscard]] bool NeedsCheckpoints() const { return state_.exists() || windows_.exists(); }

  // Checks that the sequence can roll back to `end`. Errors: Unsupported if a layer's window has
  // lost rows that queries from `end` on see, or if there is no copy of the recurrent state at
  // `end`. next: the position of the next token.
  [[nodiscard]] Status Check(Position end, Position next) const;
  // Returns the largest position up to `end` that can be rolled back to.
  [[nodiscard]] Position NearestUpTo(Position end, Position next) const;

  // Keeps a checkpoint of the recurrent state at `next` and, if `keeps_windows`, checkpoints of
  // windows at `next` and at the positions `within` the step that ended there. Unless `lasts`, the
  // next checkpoint replaces this one.
  void Keep(Position next, std::span<const Position> within, bool keeps_windows, bool lasts);
  // Protects the newest checkpoint from being replaced by the next one.
  void KeepNewest() { newest_lasts_ = true; }
  // Protects the checkpoint at this position, which may still be to come, from being dropped for
  // others.
  void KeepAlways(Position position);
  void GoBackTo(Position end);
  // Copies the checkpoints of `other` up to `end`. May throw std::bad_alloc. REQUIRES: see
  // RecurrentState::TakeFrom().
  void TakeFrom(const RollBack& other, Position end);

  void Save(StateWriter* to) const;
  void Load(Position next, StateReader* from);

 private:
  const ModelShape shape_;
  RecurrentState state_;
  WindowCheckpoints windows_;
  bool newest_lasts_ = true;  // else it is that of a piece of a prompt
};

}  // namespace ebb

#endif  // EBB_SEQUENCE_ROLL_BACK_H_

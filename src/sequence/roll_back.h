// The positions that a sequence can go back to although its model has a recurrent state or layers
// with sliding windows: checkpoints, at which the state was copied and the rows of windows are
// kept.
#ifndef EBB_SEQUENCE_ROLL_BACK_H_
#define EBB_SEQUENCE_ROLL_BACK_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ebb/state.h"
#include "ebb/status.h"
#include "ebb/types.h"
#include "src/step/recurrent_state.h"

namespace ebb {

// Lists the rows behind the windows of layers that a sequence keeps: those that the next query
// would see at a checkpoint. They stay in their tables, outside the window of every query to come.
class WindowCheckpoints {
 public:
  // Returns the most rows of a kv head: with a window those in it and behind so many checkpoints,
  // and the `beyond` rows of a step; without one (0) num_rows.
  [[nodiscard]] static size_t MostRows(int window, size_t num_rows, size_t checkpoints,
                                       size_t beyond);
  // Returns the sum over all kv heads, of each in multiples of `unit`.
  [[nodiscard]] static uint64_t MostRows(const ModelShape& shape, size_t num_rows,
                                         size_t checkpoints, size_t beyond, size_t unit);

  // Without windows nothing is kept, and any position can be gone back to. `most`: checkpoints.
  WindowCheckpoints(const ModelShape& shape, size_t most);

  [[nodiscard]] bool exists() const { return !windows_.empty(); }
  [[nodiscard]] bool empty() const { return positions_.empty(); }
  // Adds a checkpoint at the position of the next token. It replaces the newest one if `replaces`;
  // otherwise CheckpointToDrop() goes if there are too many.
  void Keep(Position position, bool replaces);
  // The checkpoint at this position, once it is there, is not dropped for others.
  void KeepAlways(Position position) { kept_ = position; }
  // Forgets the checkpoints behind `end`.
  void GoBackTo(Position end);
  void Clear() { positions_.clear(); }

  // Lists the indices of rows at these ascending positions that neither the query at `next` and
  // later ones nor those behind a checkpoint see through a window.
  void FindGone(std::span<const Position> positions, int window, Position next,
                std::vector<uint32_t>* gone) const;
  // The largest position up to `end` whose windows still have all rows. REQUIRES: end <= next.
  [[nodiscard]] Position NearestUpTo(Position end, Position next) const;

  void Save(StateWriter* to) const;
  void Load(Position next, StateReader* from);
  [[nodiscard]] std::span<const Position> positions() const { return positions_; }

 private:
  // NearestUpTo() of the layers with this window.
  [[nodiscard]] Position NearestInWindow(Position end, Position next, int window) const;

  size_t most_;                      // checkpoints
  Position kept_ = 0;                // CheckpointToDrop()'s
  std::vector<int> windows_;         // the sizes that layers have, ascending
  std::vector<Position> positions_;  // ascending
};

class RollBack {
 public:
  // `most`: checkpoints that are kept at once.
  RollBack(const ModelShape& shape, size_t state_bytes, size_t most)
      : shape_(shape), state_(state_bytes, most), windows_(shape, most) {}

  [[nodiscard]] RecurrentState& state() { return state_; }
  [[nodiscard]] const RecurrentState& state() const { return state_; }
  [[nodiscard]] WindowCheckpoints& windows() { return windows_; }
  [[nodiscard]] const WindowCheckpoints& windows() const { return windows_; }
  // Whether some positions cannot be gone back to without a checkpoint.
  [[nodiscard]] bool NeedsCheckpoints() const { return state_.exists() || windows_.exists(); }

  // Unsupported where rows that are seen from position `end` on have left the window of a layer, or
  // the recurrent state was not kept there. next: the position of the token to come.
  [[nodiscard]] Status Check(Position end, Position next) const;
  // Returns the largest position up to `end` that can be gone back to.
  [[nodiscard]] Position NearestUpTo(Position end, Position next) const;

  // Keeps the state at `next`, and the rows of windows there and at the positions `within` the step
  // that ended there, unless `keeps_windows` is false. The next checkpoint takes the place of this
  // one, unless it `lasts`.
  void Keep(Position next, std::span<const Position> within, bool keeps_windows, bool lasts);
  // Keeps the newest checkpoint when the next one comes.
  void KeepNewest() { newest_lasts_ = true; }
  // Keeps the checkpoint at this position, once it is there, whatever others come.
  void KeepAlways(Position position);
  void GoBackTo(Position end);
  // Takes what `other` has up to `end`. May throw std::bad_alloc. REQUIRES: see
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

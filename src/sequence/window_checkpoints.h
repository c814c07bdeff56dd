// Lists the rows behind the windows of layers that a sequence keeps, so that it can go back: those
// that the next query would see at a checkpoint. They stay in their tables, outside the window of
// every query to come.
#ifndef EBB_SEQUENCE_WINDOW_CHECKPOINTS_H_
#define EBB_SEQUENCE_WINDOW_CHECKPOINTS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ebb/state.h"
#include "ebb/types.h"

namespace ebb {

class WindowCheckpoints {
 public:
  // Returns the most rows of all streams where layers without a window have num_rows, and others
  // their window, those of so many checkpoints and the `beyond` rows of a step. Each stream's count
  // in multiples of `unit`.
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

}  // namespace ebb

#endif  // EBB_SEQUENCE_WINDOW_CHECKPOINTS_H_

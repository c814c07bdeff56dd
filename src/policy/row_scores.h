// One float per row and group, kept in step with the rows: what most scorers are made of.
#ifndef EBB_POLICY_ROW_SCORES_H_
#define EBB_POLICY_ROW_SCORES_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ebb/state.h"
#include "ebb/status.h"

namespace ebb {

class RowScores {
 public:
  explicit RowScores(int num_groups);

  // Adds rows of score 0 to the end of the group and returns them, for the caller to fill.
  std::span<float> Append(int group, size_t num_rows);
  // Only the rows at these ascending indices survive.
  void Retain(int group, std::span<const uint32_t> kept);
  void SetAllToZero();
  [[nodiscard]] std::span<float> operator[](int group);
  void Expect(int group) const;  // see Scorer
  [[nodiscard]] Status Save(StateWriter* to) const;
  // Corrupt unless they are of as many groups.
  [[nodiscard]] Status Load(StateReader* from);

 private:
  std::vector<std::vector<float>> groups_;  // [num_groups][num_rows]
};

}  // namespace ebb

#endif  // EBB_POLICY_ROW_SCORES_H_

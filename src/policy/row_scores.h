// Keeps numbers for each row of each group, which gain and lose rows together with the cache. Most
// scorers are built from them.
#ifndef EBB_POLICY_ROW_SCORES_H_
#define EBB_POLICY_ROW_SCORES_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ebb/state.h"
#include "ebb/status.h"
#include "src/base/mapped_array.h"

namespace ebb {

// RowValues holds `width` numbers per row, group by group. T: float, int16_t, uint16_t or Position.
template <typename T>
class RowValues {
 public:
  // Returns the most bytes that `num_rows` rows in each of `num_groups` groups occupy.
  [[nodiscard]] static size_t BytesFor(size_t num_groups, size_t num_rows, size_t width = 1) {
    return num_groups * MappedBytes<T>(num_rows * width);
  }

  // Makes groups without rows. width: numbers per row.
  explicit RowValues(size_t num_groups, size_t width = 1);

  // Adds rows of zeros to the end of the group and returns them, for the caller to fill.
  std::span<T> Append(int group, size_t num_rows);
  // Removes all rows of the group except those at the ascending indices `kept`.
  void Retain(int group, std::span<const uint32_t> kept);
  void SetAllToZero();
  [[nodiscard]] std::span<T> operator[](int group);  // [num_rows, width]
  [[nodiscard]] std::span<const T> operator[](int group) const;
  [[nodiscard]] size_t num_rows(int group) const { return groups_[group].size() / width_; }
  void Prefetch(int group) const;  // see Scorer
  [[nodiscard]] Status Save(StateWriter* to) const;
  // Replaces the numbers by saved ones. Errors: Corrupt if they have another number of groups.
  [[nodiscard]] Status Load(StateReader* from);

 private:
  const size_t width_;
  std::vector<MappedArray<T>> groups_;  // [num_groups][num_rows, width]
};

using RowScores = RowValues<float>;

}  // namespace ebb

#endif  // EBB_POLICY_ROW_SCORES_H_

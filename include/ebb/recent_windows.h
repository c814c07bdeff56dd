// The recent windows: how many of the newest tokens keep their rows, or keep them in T0, whatever
// their scores are.
//
// SPDX-License-Identifier: MIT
#ifndef EBB_RECENT_WINDOWS_H_
#define EBB_RECENT_WINDOWS_H_

#include <string>

namespace [[gnu::visibility("default")]] ebb {

// The tokens that policies protect unless others are asked for ("Not All Thoughts Need HBM", 3.2).
inline constexpr int kDefaultWindow = 128;

// The draft of a lossless generation that names no policy: with these rows it agrees with the full
// cache on 995 tokens of 1,000 (SmolLM2's own stories, docs/user/lossless.md).
inline constexpr int kDraftSinks = 20;
inline constexpr int kDraftWindow = 512;

// Placements by position keep the first page of 64 rows and the newest rows in T0. Rows leave T0 by
// whole pages, so the number of newest rows there grows from `least` to `most` and starts over.
inline constexpr int kFirstRowsInT0 = 64;
struct RowRangeInT0 {
  int least = 0, most = 0;
};
// The ranges of T2Rows::kOld, all of whose old rows are in T2, and of T1Read::kSelect.
inline constexpr RowRangeInT0 kNewestBesideT2 = {65, 128};
inline constexpr RowRangeInT0 kNewestBesideSelectedT1 = {193, 256};

// Returns "the first 64 and the newest 65 to 128".
[[nodiscard]] inline std::string RowsInT0Text(const RowRangeInT0& newest) {
  return "the first " + std::to_string(kFirstRowsInT0) + " and the newest " +
         std::to_string(newest.least) + " to " + std::to_string(newest.most);
}

}  // namespace ebb

#endif  // EBB_RECENT_WINDOWS_H_

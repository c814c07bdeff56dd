// Defines the recent windows: the numbers of newest tokens whose rows stay in the cache, or in T0,
// with any scores.
//
// SPDX-License-Identifier: MIT
#ifndef EBB_RECENT_WINDOWS_H_
#define EBB_RECENT_WINDOWS_H_

#include <string>

namespace [[gnu::visibility("default")]] ebb {

// kDefaultWindow is the number of newest tokens that policies protect unless others are asked for
// ("Not All Thoughts Need HBM", 3.2).
inline constexpr int kDefaultWindow = 128;

// kDraftSinks and kDraftWindow are the first and the newest tokens whose rows the draft of a
// lossless generation keeps if no policy is named: its next token then equals the full cache's on
// 995 tokens of 1,000 (SmolLM2's own stories, docs/user/lossless.md).
inline constexpr int kDraftSinks = 20;
inline constexpr int kDraftWindow = 512;

// kFirstRowsInT0 is the number of first rows that placements by position keep in T0. They keep the
// newest rows there too, and move rows out by whole pages, so that the number of newest rows in T0
// grows from RowRangeInT0::least to ::most and then starts over.
inline constexpr int kFirstRowsInT0 = 64;
struct RowRangeInT0 {
  int least = 0, most = 0;
};
// kNewestBesideT2 holds where T2 holds all old rows (T2Rows::kOld), kNewestBesideSelectedT1 where
// decode steps read selected rows of T1 (T1Read::kSelect).
inline constexpr RowRangeInT0 kNewestBesideT2 = {65, 128};
inline constexpr RowRangeInT0 kNewestBesideSelectedT1 = {193, 256};

// Returns "the first 64 and the newest 65 to 128".
[[nodiscard]] inline std::string RowsInT0Text(const RowRangeInT0& newest) {
  return "the first " + std::to_string(kFirstRowsInT0) + " and the newest " +
         std::to_string(newest.least) + " to " + std::to_string(newest.most);
}

}  // namespace ebb

#endif  // EBB_RECENT_WINDOWS_H_

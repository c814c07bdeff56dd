// The recent windows: how many of the newest tokens keep their rows, or keep them in T0, whatever
// their scores are.
//
// SPDX-License-Identifier: MIT
#ifndef EBB_RECENT_WINDOWS_H_
#define EBB_RECENT_WINDOWS_H_

#include <string>

namespace [[gnu::visibility("default")]] ebb {

// The draft of a lossless generation that names no policy: with these rows it agrees with the full
// cache on 995 tokens of 1,000 (SmolLM2's own stories, docs/user/lossless.md).
inline constexpr int kDraftSinks = 20;
inline constexpr int kDraftWindow = 512;

// Where rows are placed by position, all but the first and the newest ones leave T0, by whole pages
// of 64: the first one stays, and the number of newest rows grows from `least` to `most` and begins
// anew.
inline constexpr int kFirstRowsInT0 = 64;
struct RowRangeInT0 {
  int least = 0, most = 0;
};
// Of a cache whose old rows are all in T2 (T2Rows::kOld), and of a T1 that is read selectively
// (T1Read::kSelect).
inline constexpr RowRangeInT0 kNewestBesideT2 = {65, 128};
inline constexpr RowRangeInT0 kNewestBesideSelectedT1 = {193, 256};

// Returns "the first 64 and the newest 65 to 128".
[[nodiscard]] inline std::string RowsInT0Text(const RowRangeInT0& newest) {
  return "the first " + std::to_string(kFirstRowsInT0) + " and the newest " +
         std::to_string(newest.least) + " to " + std::to_string(newest.most);
}

}  // namespace ebb

#endif  // EBB_RECENT_WINDOWS_H_

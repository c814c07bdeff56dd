// The memory hierarchy of "Not All Thoughts Need HBM" (3.2, Algorithm 1), as a user asks for it: T0
// fast memory and T1 capacity memory at full precision, T2 compressed, T3 evicted.
//
// SPDX-License-Identifier: MIT
#ifndef EBB_TIERS_H_
#define EBB_TIERS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "ebb/status.h"

namespace [[gnu::visibility("default")]] ebb {

// The number formats of T2. int8, int4 and int3 are rotated by a Hadamard matrix before they are
// rounded. kInt8Naive: int8 without the rotation that makes it accurate, as most prototypes have
// it; a control for experiments.
enum class CompressedType : uint8_t { kInt8, kInt4, kInt3, kInt8Naive };
// "int8", "int4", "int3", "int8_naive"
[[nodiscard]] std::string_view CompressedTypeName(CompressedType type);
[[nodiscard]] Result<CompressedType> ParseCompressedType(std::string_view name);

// The place of T1's rows.
enum class T1Place { kNone, kHost, kFile };
// "none", "host", "file"
[[nodiscard]] std::string_view T1PlaceName(T1Place place);

// The rows that TierSpec::evict_share is a share of: those that were ever unprotected, or, as
// Algorithm 1 has it, those that are still alive at each interval, which compounds.
enum class EvictOf { kGenerated, kAlive };

// The rows of T0 and T1 that a decode step reads. kSelect: in each layer and kv head, the pages of
// 64 rows that are estimated to receive the share TierSpec::t1_mass of the attention, and the first
// and newest rows; at most TierSpec::t1_rows rows.
enum class T1Read { kAll, kSelect };

// The fewest rows that TierSpec::t1_rows may name: the first 64 and the newest 256 are always read.
inline constexpr int kFewestSelectedRows = 384;

// The rows that T2 holds. kShare: the share TierSpec::t2_share of the unprotected rows, chosen by
// the policy. kOld: all rows, those of prompts too, except the first 64 and the newest 65 to 128.
enum class T2Rows { kShare, kOld };

struct TierSpec {
  // beta: the share in T0 of the unprotected rows that stay in full precision.
  double t0_share = 0.5;
  uint64_t t0_cap_bytes = 0;  // a hard cap on T0 instead; 0: none
  T1Place t1 = T1Place::kFile;
  std::string t1_path;        // a folder for the file; empty: the system's folder for such files
  uint64_t t1_cap_bytes = 0;  // 0: none
  T1Read t1_read = T1Read::kAll;
  double t1_mass = 0.9;  // of kSelect
  int t1_rows = 0;       // of kSelect, the first and newest rows included; 0: no limit
  // With kSelect, a kv head reads the pages that the queries of the token before chose where their
  // mean cosine with this token's queries is at least this, so that T1's file is read ahead. 0: the
  // choice is always this token's.
  double t1_reuse = 0;
  T2Rows t2_rows = T2Rows::kShare;
  double t2_share = 0;  // of the unprotected rows that are not evicted
  CompressedType t2_type = CompressedType::kInt8;
  double evict_share = 0;  // r
  // Evicts the rows that T0 and T1 do not hold, if T0 has a cap and T1 has one or does not exist;
  // so does an r above 0.
  bool evict_beyond_caps = false;
  EvictOf evict_of = EvictOf::kGenerated;
  // For a draft, whose rows are kept elsewhere: protected rows may go too, the oldest first but
  // for the first few of all.
  bool protected_may_go = false;

  bool operator==(const TierSpec&) const = default;
};

// Whether decode steps read selected rows; not where there are no tiers.
[[nodiscard]] inline bool ReadsSelectively(const std::optional<TierSpec>& tiers) {
  return tiers.has_value() && tiers->t1_read == T1Read::kSelect;
}

// Whether all old rows are compressed (T2Rows::kOld); not where there are no tiers.
[[nodiscard]] inline bool CompressesOldRows(const std::optional<TierSpec>& tiers) {
  return tiers.has_value() && tiers->t2_rows == T2Rows::kOld;
}
// Whether T0 and T2 hold all rows, with old rows in T2: EngineOptions::kv_cap_bytes then caps both.
[[nodiscard]] inline bool HoldsOldRowsInT2(const std::optional<TierSpec>& tiers) {
  return CompressesOldRows(tiers) && tiers->t1 == T1Place::kNone;
}
// Whether any rows go to T2.
[[nodiscard]] inline bool HasT2(const TierSpec& tiers) {
  return tiers.t2_rows == T2Rows::kOld || tiers.t2_share > 0;
}

// The bytes of pages that a sequence takes in each tier.
struct TierNeeds {
  // Held whatever share T0 is given: protected rows, and those that come between two decisions.
  uint64_t t0_floor_bytes = 0;
  // At the peak of each tier.
  uint64_t t0_bytes = 0;
  uint64_t t1_bytes = 0;
  uint64_t t2_bytes = 0;
};

// "50%" or "512MiB"; "none", "host[,SIZE]", "file[:PATH][,SIZE]"; "all" or
// "select[:mass=SHARE][,rows=N]" (or "select:rows=N"); "25%[:int8|int4|int3|int8_naive]" or
// "old[:...]"; "10%" or "caps"; "generated", "alive". InvalidArgument, naming what is expected, for
// anything else, which leaves the spec as it was.
[[nodiscard]] Status ParseT0(std::string_view text, TierSpec* spec);
[[nodiscard]] Status ParseT1(std::string_view text, TierSpec* spec);
[[nodiscard]] Status ParseT1Read(std::string_view text, TierSpec* spec);
[[nodiscard]] Status ParseT2(std::string_view text, TierSpec* spec);
[[nodiscard]] Status ParseEvict(std::string_view text, TierSpec* spec);
[[nodiscard]] Status ParseEvictOf(std::string_view text, TierSpec* spec);

}  // namespace ebb

#endif  // EBB_TIERS_H_

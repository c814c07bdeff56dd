// Defines the memory hierarchy of "Not All Thoughts Need HBM" (3.2, Algorithm 1) as a user asks for
// it: T0 is fast memory and T1 capacity memory, both at full precision; T2 holds compressed rows;
// T3 means evicted.
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

// CompressedType is the number format of T2. int8, int4 and int3 rotate a row by a Hadamard matrix
// before they round it. kInt8Naive is int8 without the rotation, which makes it less accurate; most
// prototypes do that, and experiments use it as a control.
enum class CompressedType : uint8_t { kInt8, kInt4, kInt3, kInt8Naive };
// Returns "int8", "int4", "int3" or "int8_naive".
[[nodiscard]] std::string_view CompressedTypeName(CompressedType type);
// Parses a name of CompressedTypeName(). Errors: InvalidArgument, listing the names.
[[nodiscard]] Result<CompressedType> ParseCompressedType(std::string_view name);

// T1Place says where T1 lies: there is no T1, in the host's memory, or in a file.
enum class T1Place { kNone, kHost, kFile };
// Returns "none", "host" or "file".
[[nodiscard]] std::string_view T1PlaceName(T1Place place);

// EvictOf names the rows that TierSpec::evict_share is a share of. kGenerated: the rows that were
// ever unprotected. kAlive, as in Algorithm 1: the rows that are still in the cache at each
// interval, so that the share compounds.
enum class EvictOf { kGenerated, kAlive };

// T1Read says which rows of T0 and T1 a decode step reads. kAll: all rows. kSelect: in each layer
// and kv head, the first rows, the newest rows, and the pages of 64 rows that are estimated to
// receive the share TierSpec::t1_mass of the attention; at most TierSpec::t1_rows rows together.
enum class T1Read { kAll, kSelect };

// kFewestSelectedRows is the least value of TierSpec::t1_rows other than 0: a selective step always
// reads the first 64 and the newest 256 rows.
inline constexpr int kFewestSelectedRows = 384;

// T2Rows says which rows T2 holds. kShare: the share TierSpec::t2_share of the unprotected rows,
// chosen by the policy. kOld: all rows, prompts included, except the first 64 and the newest 65 to
// 128.
enum class T2Rows { kShare, kOld };

// TierSpec describes the tiers of a cache: where T1 lies, the shares and caps of tiers, and what is
// evicted.
struct TierSpec {
  // Gives beta of Algorithm 1: of the unprotected rows that stay in full precision, the share that
  // T0 holds; T1 holds the rest.
  double t0_share = 0.5;
  uint64_t t0_cap_bytes = 0;  // a hard cap on T0 instead; 0: none
  T1Place t1 = T1Place::kFile;
  std::string t1_path;        // a folder for the file; empty: the system's folder for such files
  uint64_t t1_cap_bytes = 0;  // 0: none
  T1Read t1_read = T1Read::kAll;
  double t1_mass = 0.9;  // of kSelect
  int t1_rows = 0;       // of kSelect, the first and newest rows included; 0: no limit
  // Sets the least mean cosine of this token's and the previous token's queries at which a kv head,
  // with kSelect, reads again the pages that the previous token's queries chose; T1's file can then
  // be read ahead. 0: every token chooses its own pages.
  double t1_reuse = 0;
  T2Rows t2_rows = T2Rows::kShare;
  double t2_share = 0;  // of the unprotected rows that are not evicted
  CompressedType t2_type = CompressedType::kInt8;
  double evict_share = 0;  // r
  // Evicts the rows that T0 and T1 cannot hold, if T0 has a cap and T1 has a cap or does not exist.
  // An evict_share above 0 does the same.
  bool evict_beyond_caps = false;
  EvictOf evict_of = EvictOf::kGenerated;
  // Lets the placement evict protected rows too, oldest first but never the first few rows of the
  // sequence. Only drafts of lossless sessions set it: their store keeps every row.
  bool protected_may_go = false;

  bool operator==(const TierSpec&) const = default;
};

// Returns whether decode steps read selected rows (T1Read::kSelect); false without tiers.
[[nodiscard]] inline bool ReadsSelectively(const std::optional<TierSpec>& tiers) {
  return tiers.has_value() && tiers->t1_read == T1Read::kSelect;
}

// Returns whether all old rows are compressed (T2Rows::kOld); false without tiers.
[[nodiscard]] inline bool CompressesOldRows(const std::optional<TierSpec>& tiers) {
  return tiers.has_value() && tiers->t2_rows == T2Rows::kOld;
}
// Returns whether old rows lie in T2 and there is no T1. EngineOptions::kv_cap_bytes then caps T0
// and T2 together.
[[nodiscard]] inline bool HoldsOldRowsInT2(const std::optional<TierSpec>& tiers) {
  return CompressesOldRows(tiers) && tiers->t1 == T1Place::kNone;
}
// Returns whether any rows go to T2.
[[nodiscard]] inline bool HasT2(const TierSpec& tiers) {
  return tiers.t2_rows == T2Rows::kOld || tiers.t2_share > 0;
}

// TierNeeds holds the bytes of pages that a sequence takes in each tier.
struct TierNeeds {
  // Counts the bytes that a sequence needs in T0 whatever share T0 is given: protected rows, and
  // the rows that are added between two decisions of the policy.
  uint64_t t0_floor_bytes = 0;
  // Counts the bytes at each tier's own peak.
  uint64_t t0_bytes = 0;
  uint64_t t1_bytes = 0;
  uint64_t t2_bytes = 0;
};

// ParseT0() and the functions below parse the values of --t0, --t1, --t1-read, --t2, --evict and
// --evict-of into `spec`:
//
//   ParseT0:       "50%" or "512MiB"
//   ParseT1:       "none", "host[,SIZE]", "file[:PATH][,SIZE]"
//   ParseT1Read:   "all" or "select[:mass=SHARE][,rows=N][,reuse=COSINE]" (or "select:rows=N")
//   ParseT2:       "25%[:int8|int4|int3|int8_naive]" or "old[:...]"
//   ParseEvict:    "10%" or "caps"
//   ParseEvictOf:  "generated" or "alive"
//
// Errors: InvalidArgument, naming what is expected; `spec` is then unchanged.
[[nodiscard]] Status ParseT0(std::string_view text, TierSpec* spec);
[[nodiscard]] Status ParseT1(std::string_view text, TierSpec* spec);
[[nodiscard]] Status ParseT1Read(std::string_view text, TierSpec* spec);
[[nodiscard]] Status ParseT2(std::string_view text, TierSpec* spec);
[[nodiscard]] Status ParseEvict(std::string_view text, TierSpec* spec);
[[nodiscard]] Status ParseEvictOf(std::string_view text, TierSpec* spec);

}  // namespace ebb

#endif  // EBB_TIERS_H_

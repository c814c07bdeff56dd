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

#include "ebb/recent_windows.h"
#include "ebb/status.h"

namespace [[gnu::visibility("default")]] ebb {

// CompressedType is the number format of T2. int8, int4, int3 and int2 rotate a row by a Hadamard
// matrix before they round it. int2 has keys of 3 and values of 2 bits. kInt8Naive is int8 without
// the rotation, which makes it less accurate; most prototypes do that, and experiments use it as a
// control.
enum class CompressedType : uint8_t { kInt8, kInt4, kInt3, kInt8Naive, kInt2 };
// Returns "int8", "int4", "int3", "int2" or "int8_naive".
[[nodiscard]] std::string_view CompressedTypeName(CompressedType type);
// Parses a name of CompressedTypeName(). Errors: InvalidArgument, listing the names.
[[nodiscard]] Result<CompressedType> ParseCompressedType(std::string_view name);

// kInt2HeadStep is the number that divides the sizes of heads whose rows int2 can hold.
inline constexpr int kInt2HeadStep = 64;
[[nodiscard]] constexpr bool HoldsHeads(CompressedType type, int head_dim) {
  return type != CompressedType::kInt2 || head_dim % kInt2HeadStep == 0;
}
// Checks that rows of this type can be of heads of this size, and on a device. Errors: Unsupported,
// naming another type.
[[nodiscard]] Status CheckCompressedType(CompressedType type, int head_dim, bool on_device);

// T1Place is the place of T1: none (there is no T1), the host's memory, or a file.
enum class T1Place { kNone, kHost, kFile };
// Returns "none", "host" or "file".
[[nodiscard]] std::string_view T1PlaceName(T1Place place);

// EvictOf names the rows that TierShares::evict_share is a share of. kGenerated: all unprotected
// rows, evicted ones included. kAlive, which is Algorithm 1: the rows that are still in the cache
// at each interval, so that the share compounds.
enum class EvictOf { kGenerated, kAlive };

// T1Read selects the rows of T0 and T1 that a decode step reads. kAll: all rows. kSelect: in each
// layer and kv head, the first rows, the newest rows, and the pages of 64 rows that are estimated
// to receive the share TierShares::t1_mass of the attention; at most TierShares::t1_rows rows
// together.
enum class T1Read { kAll, kSelect };

// kFewestSelectedRows is the least value of TierShares::t1_rows other than 0: a selective step
// always reads the first 64 and the newest 256 rows.
inline constexpr int kFewestSelectedRows = 384;

// T2Rows selects the rows that T2 holds. kShare: the share TierShares::t2_share of the unprotected
// rows, chosen by the policy. kOld: all rows, prompts included, except the first and the newest
// (TierShares::t2_first and t2_newest).
enum class T2Rows { kShare, kOld };

// EngineTiers selects the tiers that the sessions of an engine may use in addition to T0, and caps
// each tier for all sessions together.
struct EngineTiers {
  uint64_t t0_cap_bytes = 0;  // 0: none
  // Selects the place of T1; nullopt: a file, or the host's memory if the device is an accelerator.
  std::optional<T1Place> t1 = {};
  std::string t1_path = {};   // a folder for the file; empty: the system's folder for such files
  uint64_t t1_cap_bytes = 0;  // 0: none
  std::optional<CompressedType> t2_type = {};  // nothing: there is no T2
  // Selects the component that keeps the rows within the caps. False: each session, which places
  // its rows as if the caps were for it alone. True: the caller, who steps several sessions under
  // the same caps; a session then places rows by its shares, and a step that a cap refuses changes
  // nothing.
  bool sessions_share_caps = false;

  bool operator==(const EngineTiers&) const = default;
};

// TierShares selects, for a session, the rows in each tier of its engine, the rows to evict, and
// the rows that steps read.
struct TierShares {
  // Gives beta of Algorithm 1: of the unprotected rows that stay in full precision, the share that
  // T0 holds; T1 holds the rest. Nothing: as many rows as EngineTiers::t0_cap_bytes has room for;
  // if T0 has no cap, the share kDefaultT0Share.
  std::optional<double> t0_share = {};
  T1Read t1_read = T1Read::kAll;
  double t1_mass = 0.9;  // of kSelect
  int t1_rows = 0;       // of kSelect, the first and newest rows included; 0: no limit
  // Sets the least mean cosine of this token's and the previous token's queries at which a kv head,
  // with kSelect, reads again the pages that the previous token's queries chose; T1's file can then
  // be read ahead. 0: every token chooses its own pages.
  double t1_reuse = 0;
  T2Rows t2_rows = T2Rows::kShare;
  // t2_first and t2_newest count the first rows, and the newest rows at least, that kOld keeps in
  // full precision. Rows are compressed in blocks of t2_newest positions, of 64 at most, so that up
  // to a block more of the newest rows stay.
  int t2_first = kFirstRowsInT0;
  int t2_newest = kNewestBesideT2.least;
  double t2_share = 0;     // a share of the unprotected rows that are not evicted
  double evict_share = 0;  // r
  // Evicts the rows that T0 and T1 cannot hold, if T0 has a cap and T1 has a cap or does not exist.
  // An evict_share above 0 does the same.
  bool evict_beyond_caps = false;
  EvictOf evict_of = EvictOf::kGenerated;

  bool operator==(const TierShares&) const = default;
};

// kDefaultT0Share is the share of rows in T0 if neither TierShares nor a cap says how many T0
// holds.
inline constexpr double kDefaultT0Share = 0.5;

// kDefaultT2Type is the format of T2 if a setting says which rows T2 holds but no format. Texts
// about a setting without T2 name it too, where they must name a format.
inline constexpr CompressedType kDefaultT2Type = CompressedType::kInt8;

// TierSetting holds the tiers of an engine and of a session, as a line of options gives them.
struct TierSetting {
  EngineTiers engine = {};
  TierShares shares = {};

  bool operator==(const TierSetting&) const = default;
};

// Returns the tiers of a cache that compresses its old rows and has no T1: `--kv-type q4`.
[[nodiscard]] inline TierSetting CompressedCache(CompressedType type) {
  return {.engine = {.t1 = T1Place::kNone, .t2_type = type}, .shares = {.t2_rows = T2Rows::kOld}};
}

// Returns whether decode steps read selected rows (T1Read::kSelect); false without tiers.
[[nodiscard]] inline bool ReadsSelectively(const std::optional<TierShares>& shares) {
  return shares.has_value() && shares->t1_read == T1Read::kSelect;
}
// Returns whether all old rows are compressed (T2Rows::kOld); false without tiers.
[[nodiscard]] inline bool CompressesOldRows(const std::optional<TierShares>& shares) {
  return shares.has_value() && shares->t2_rows == T2Rows::kOld;
}
// Returns whether any rows go to T2.
[[nodiscard]] inline bool HasT2(const TierShares& shares) {
  return shares.t2_rows == T2Rows::kOld || shares.t2_share > 0;
}
// Returns whether rows may be evicted.
[[nodiscard]] inline bool Evicts(const TierShares& shares) {
  return shares.evict_share > 0 || shares.evict_beyond_caps;
}

// TierNeeds holds the bytes of pages that a sequence takes in each tier.
struct TierNeeds {
  // Counts the bytes that a sequence needs in T0 with any share of T0: protected rows, and the rows
  // that are added between two decisions of the policy.
  uint64_t t0_floor_bytes = 0;
  // Counts the bytes at each tier's own peak.
  uint64_t t0_bytes = 0;
  uint64_t t1_bytes = 0;
  uint64_t t2_bytes = 0;
};

// Returns the format of T2 that --kv-type "q8", "q4", "q3" or "q2" names; such a value is short for
// no T1 and all old rows in T2. Returns nothing for other names.
[[nodiscard]] std::optional<CompressedType> CompressedKvType(std::string_view name);

// ParseT0() and the functions below parse the values of --t0, --t1, --t1-read, --t2, --evict and
// --evict-of into `tiers`:
//
//   ParseT0:       "50%" or "512MiB"
//   ParseT1:       "none", "host[,SIZE]", "file[:PATH][,SIZE]"
//   ParseT1Read:   "all" or "select[:mass=SHARE][,rows=N][,reuse=COSINE]" (or "select:rows=N")
//   ParseT2:       "25%[:int8|int4|int3|int2|int8_naive]" or "old[:...][,first=N][,newest=N]"
//   ParseEvict:    "10%" or "caps"
//   ParseEvictOf:  "generated" or "alive"
//
// Errors: InvalidArgument, naming the expected format; `tiers` is then unchanged.
[[nodiscard]] Status ParseT0(std::string_view text, TierSetting* tiers);
[[nodiscard]] Status ParseT1(std::string_view text, TierSetting* tiers);
[[nodiscard]] Status ParseT1Read(std::string_view text, TierSetting* tiers);
[[nodiscard]] Status ParseT2(std::string_view text, TierSetting* tiers);
[[nodiscard]] Status ParseEvict(std::string_view text, TierSetting* tiers);
[[nodiscard]] Status ParseEvictOf(std::string_view text, TierSetting* tiers);

}  // namespace ebb

#endif  // EBB_TIERS_H_

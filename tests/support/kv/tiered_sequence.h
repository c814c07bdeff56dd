// Caches with all tiers, small, and a naive model of what they hold: for every group a map from
// position to the bytes of the row and the tier it lies in.
#ifndef EBB_TESTS_SUPPORT_KV_TIERED_SEQUENCE_H_
#define EBB_TESTS_SUPPORT_KV_TIERED_SEQUENCE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "src/attention/attention.h"
#include "src/device/backend_device.h"
#include "src/io/page_file.h"
#include "src/kv/sequence_cache.h"
#include "src/rows/arena.h"

namespace ebb {

inline constexpr ModelShape kTiersShape = {
    .num_layers = 3, .num_q_heads = 2, .num_kv_heads = 2, .head_dim = 16};
inline constexpr int kTiersStreams = kTiersShape.num_layers * kTiersShape.num_kv_heads;
// Pages of 4096 bytes, the least that a file takes.
inline constexpr PageFormat kTiersFormat = {.type = RowType::kF16, .head_dim = 16};

struct TiersOptions {
  DeviceSpec device;
  T1Place t1 = T1Place::kFile;
  CompressedType t2 = CompressedType::kInt8;
  bool t2_on_device = false;
  size_t t0_cap_bytes = size_t{64} << 20;
  size_t t1_cap_bytes = 0;  // 0: none
  size_t t2_cap_bytes = size_t{64} << 20;
  FaultHook faults;
};

struct TiersForTest {
  std::unique_ptr<BackendDevice> backend;  // null: the processor
  std::unique_ptr<Arena> t0, t1, t2;
  std::unique_ptr<PageFile> t1_file;
  CacheStores stores;

  explicit TiersForTest(const TiersOptions& options);
  // Nobody owns a page, and nothing is kept mapped or on the disk.
  void ExpectEmpty() const;
};

// Of the first `num_rows` rows, every `step`-th to a tier.
[[nodiscard]] std::vector<RowMove> Every(uint32_t step, uint32_t num_rows, Tier to);

// Stages every layer, as a step does.
Status Stage(SequenceCache& cache);

using RowBytes = std::vector<std::byte>;

struct ModelRow {
  Tier tier = Tier::kT0;
  // [streams of the group]
  std::vector<RowBytes> full;        // key, then value
  std::vector<RowBytes> compressed;  // as the row is in T2, or was when it last was there
};

// A cache and its model, changed together.
class TieredSequence {
 public:
  TieredSequence(const TiersForTest& tiers, Granularity granularity, uint64_t seed);

  // What the cache says; the model follows when that is OK.
  Status Append(int num_tokens);
  Status Move(int group, const std::vector<RowMove>& moves);
  Status Move(const std::map<int, std::vector<RowMove>>& moves_of_groups);
  void Remove(int group, const std::vector<uint32_t>& removed);
  void TruncateTo(Position end);
  // Lets the cache rest in bytes and fills a new one, in the same stores, from them.
  Status Reload();

  // The lists, the tables and the accounting, without a look at the rows.
  void ExpectLists() const;
  // Every row of every tier, as a step would read it.
  void ExpectBytes() const;

  [[nodiscard]] SequenceCache& cache() const { return *cache_; }
  [[nodiscard]] std::span<const std::map<Position, ModelRow>> groups() const { return groups_; }
  [[nodiscard]] Position next() const { return next_; }
  void Skip(Position positions) { next_ += positions; }
  // Rows that were compressed again to other bytes than before, and all that were compressed again.
  [[nodiscard]] int num_drifted() const { return num_drifted_; }
  [[nodiscard]] int num_compressed_again() const { return num_compressed_again_; }

 private:
  [[nodiscard]] RowBytes NewRow();
  void MoveInModel(int group, const std::vector<RowMove>& moves);
  void ChooseCentres(int group, const std::vector<RowMove>& moves);
  [[nodiscard]] const float* CentreOf(int group, size_t stream) const;  // null: none was chosen
  void Compress(int group, ModelRow* row);
  void Decompress(int group, ModelRow* row) const;
  [[nodiscard]] RowBytes RowAt(const std::byte* key) const;
  void ExpectStream(int layer, int head, const std::map<Position, ModelRow>& group,
                    int stream) const;

  const CacheStores stores_;
  std::unique_ptr<SequenceCache> cache_;
  std::vector<std::map<Position, ModelRow>> groups_;
  std::vector<std::vector<std::vector<float>>> centres_;  // [groups][streams][head size]
  std::mt19937_64 random_;
  Position next_ = 0;
  int64_t rows_evicted_ = 0;
  int num_drifted_ = 0;
  int num_compressed_again_ = 0;
};

}  // namespace ebb

#endif  // EBB_TESTS_SUPPORT_KV_TIERED_SEQUENCE_H_

// Owns the memory and files of an engine's tiers, which its sessions share.
#ifndef EBB_SEQUENCE_TIER_STORES_H_
#define EBB_SEQUENCE_TIER_STORES_H_

#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "ebb/engine.h"
#include "ebb/report.h"
#include "ebb/status.h"
#include "src/attention/attention.h"
#include "src/attention/trellis.h"
#include "src/device/backend_device.h"
#include "src/io/page_file.h"
#include "src/kv/sequence_cache.h"
#include "src/rows/arena.h"

namespace ebb {

// CacheUse selects the contents of a cache: a session's rows, or, in a lossless session, the
// draft's rows or all rows.
enum class CacheUse { kSession, kDraft, kStore };

// Returns the error for EngineOptions::kv_cap_bytes with tiers that it does not cap.
[[nodiscard]] Status RefuseCapOfCache();

class TierStores {
 public:
  static Result<TierStores> Create(const EngineOptions& options, const LoadedModel& model,
                                   const PageFormat& format, const AttentionKernel& kernel);

  [[nodiscard]] Device* device() const { return caches_.device; }
  // Returns the accelerator; null: the device is the processor.
  [[nodiscard]] BackendDevice* backend() const { return backend_.get(); }

  // Returns the stores that a session's cache uses.
  [[nodiscard]] const CacheStores& caches() const { return caches_; }
  // Returns the stores for this use. A draft has no T1, and a store has no T2; T0's cap does not
  // count a store's new rows on their way to T1.
  [[nodiscard]] CacheStores caches(CacheUse use) const;
  // Makes CacheStores::key_metrics for streams of this shape, which the caller fills in before the
  // first row goes to T2.
  std::span<float> MakeKeyMetrics(const ModelShape& shape) {
    key_metrics_.resize(shape.NumStreams() * KeyMetricFloats(shape.head_dim));
    caches_.key_metrics = key_metrics_;
    return key_metrics_;
  }
  [[nodiscard]] Arena* t0() const { return t0_.get(); }
  // Returns whether rows of T2, if there are any, lie in a device's memory.
  [[nodiscard]] bool HasT2OnDevice() const { return t2_on_device_; }
  // Returns memory of sparse extents to the system, copying at most `max_bytes` in each tier.
  // Returns the largest number of bytes copied in one tier.
  size_t Compact(size_t max_bytes);
  [[nodiscard]] ArenaAccounting accounting(Tier tier) const;
  [[nodiscard]] ArenaAccounting newest_accounting() const;  // of stores with a T1

 private:
  Status CreateDevice(const EngineOptions& options, const LoadedModel& model,
                      const PageFormat& format);
  // Creates T2. cap: the cap that T0 and T2 share; null: T2 has none.
  Status CreateT2(CompressedType type, const PageFormat& format,
                  const std::shared_ptr<SharedCap>& cap);
  Status CreateT1(const EngineTiers& tiers, const PageFormat& format);

  std::unique_ptr<BackendDevice> backend_;  // null: the device is the processor
  std::unique_ptr<Arena> t0_;
  std::unique_ptr<Arena> newest_;      // of stores
  std::unique_ptr<Arena> t1_;          // null: T1 is a file, or there is none
  std::unique_ptr<PageFile> t1_file_;  // null: T1 is memory, or there is none
  std::unique_ptr<Arena> t2_;          // null: no T2
  bool t2_on_device_ = false;
  std::vector<float> key_metrics_;
  CacheStores caches_;
};

}  // namespace ebb

#endif  // EBB_SEQUENCE_TIER_STORES_H_

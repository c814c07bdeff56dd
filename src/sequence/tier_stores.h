// The memory and files of an engine's tiers, shared by its sessions.
#ifndef EBB_SEQUENCE_TIER_STORES_H_
#define EBB_SEQUENCE_TIER_STORES_H_

#include <memory>
#include <optional>

#include "ebb/engine.h"
#include "ebb/report.h"
#include "ebb/status.h"
#include "src/attention/attention.h"
#include "src/device/backend_device.h"
#include "src/io/page_file.h"
#include "src/kv/sequence_cache.h"
#include "src/rows/arena.h"

namespace ebb {

// The contents of a cache: a session's rows, those that a lossless one drafts with, or all of its
// rows.
enum class CacheUse { kSession, kDraft, kStore };

class TierStores {
 public:
  static Result<TierStores> Create(const EngineOptions& options, const LoadedModel& model,
                                   const PageFormat& format, const AttentionKernel& kernel);

  [[nodiscard]] Device* device() const { return caches_.device; }
  // Null: the device is the processor.
  [[nodiscard]] BackendDevice* backend() const { return backend_.get(); }

  // The stores that a session's cache may use.
  [[nodiscard]] const CacheStores& caches() const { return caches_; }
  // A draft has no T1, a store no T2; a store's rows on their way to T1 are not under T0's cap.
  [[nodiscard]] CacheStores caches(CacheUse use) const;
  [[nodiscard]] Arena* t0() const { return t0_.get(); }
  // Whether the rows of T2, where there are any, lie in the memory of a device.
  [[nodiscard]] bool HasT2OnDevice() const { return t2_on_device_; }
  // Whether a session may ask for `wanted`: InvalidArgument when the engine, which was made with
  // `tiers`, was not made for it.
  [[nodiscard]] Status Check(const std::optional<TierSpec>& tiers, const TierSpec& wanted,
                             CacheUse use) const;
  // Gives sparse extents back to the system, copying at most `max_bytes` in each tier. Returns the
  // most bytes that were copied in one.
  size_t Compact(size_t max_bytes);
  [[nodiscard]] ArenaAccounting accounting(Tier tier) const;
  [[nodiscard]] ArenaAccounting newest_accounting() const;  // of stores with a T1

 private:
  Status CreateDevice(const EngineOptions& options, const LoadedModel& model,
                      const PageFormat& format);
  // cap: of T0 and T2 together; null: T2 has none.
  Status CreateT2(const TierSpec& tiers, const PageFormat& format,
                  const std::shared_ptr<SharedCap>& cap);
  Status CreateT1(const TierSpec& tiers, const PageFormat& format);

  std::unique_ptr<BackendDevice> backend_;  // null: the device is the processor
  std::unique_ptr<Arena> t0_;
  std::unique_ptr<Arena> newest_;      // of stores
  std::unique_ptr<Arena> t1_;          // null: T1 is a file, or there is none
  std::unique_ptr<PageFile> t1_file_;  // null: T1 is memory, or there is none
  std::unique_ptr<Arena> t2_;          // null: no T2
  bool t2_on_device_ = false;
  CacheStores caches_;
};

}  // namespace ebb

#endif  // EBB_SEQUENCE_TIER_STORES_H_

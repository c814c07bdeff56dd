#include "src/sequence/tier_stores.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "src/attention/ggml_records.h"
#include "src/base/text/size_text.h"
#include "src/rows/compressed_pages.h"
#include "src/step/device/device_use.h"
#include "src/step/device/ggml_rows.h"

namespace ebb {
namespace {

// Names the arena in errors.
Result<std::unique_ptr<Arena>> MakeArena(std::string_view name, size_t page_bytes,
                                         uint64_t cap_bytes, Device* device, MemoryKind memory,
                                         StatusCode full = StatusCode::kT0Full,
                                         std::shared_ptr<SharedCap> shared_cap = nullptr) {
  constexpr uint64_t kNoCap = std::numeric_limits<int64_t>::max();
  auto arena = Arena::Create({.page_bytes = page_bytes,
                              .cap_bytes = cap_bytes == 0 ? kNoCap : cap_bytes,
                              .device = device,
                              .memory = memory,
                              .full = full,
                              .shared_cap = std::move(shared_cap)});
  if (arena.ok()) return arena;
  return arena.status().WithPrefix(name);
}

ArenaAccounting Accounting(const Arena& arena) {
  const ArenaStats stats = arena.stats();
  return {.reserved_bytes = stats.reserved_bytes,
          .used_bytes = stats.used_bytes,
          .peak_bytes = stats.peak_reserved_bytes,
          .pledged_bytes = stats.pledged_bytes,
          .cap_bytes = arena.cap_bytes()};
}

}  // namespace

Status RefuseCapOfCache() {
  return InvalidArgument("kv_cap_bytes",
                         "cannot be combined with these tiers, which take caps on T0 and T1; a "
                         "compressed cache without a T1 takes it");
}

Result<TierStores> TierStores::Create(const EngineOptions& options, const LoadedModel& model,
                                      const PageFormat& format, const AttentionKernel& kernel) {
  TierStores stores;
  uint64_t t0_cap = options.kv_cap_bytes;
  const uint64_t least_cap = options.tiers.has_value() ? 2 * kExtentBytes : kExtentBytes;
  if (options.tiers.has_value() && t0_cap > 0 &&
      (options.tiers->t1 != T1Place::kNone || !options.tiers->t2_type.has_value())) {
    return RefuseCapOfCache();
  }
  if (t0_cap > 0 && t0_cap < least_cap) {
    const ComparedSizes sizes(least_cap, t0_cap);
    return InvalidArgument(
        "kv_cap_bytes", fmt::format("expected at least {}, found {}", sizes.first, sizes.second));
  }
  std::shared_ptr<SharedCap> of_t0_and_t2;
  if (options.tiers.has_value()) {
    if (t0_cap > 0) {
      of_t0_and_t2 = std::make_shared<SharedCap>(SharedCap{.cap_bytes = t0_cap});
    } else {
      t0_cap = options.tiers->t0_cap_bytes;
    }
  }
  EBB_RETURN_IF_ERROR(stores.CreateDevice(options, model, format));
  Device* const device = stores.device();
  EBB_ASSIGN_OR_RETURN(
      stores.t0_,
      MakeArena(options.tiers.has_value() ? "T0" : "the cache", format.PageBytes(), t0_cap, device,
                MemoryKind::kDevice, StatusCode::kT0Full, of_t0_and_t2));
  EBB_ASSIGN_OR_RETURN(stores.newest_, MakeArena("the newest rows", format.PageBytes(), 0, device,
                                                 MemoryKind::kDevice));
  stores.caches_.t0 = stores.t0_.get();
  stores.caches_.kernel = &kernel;
  if (!options.tiers.has_value()) return stores;

  EBB_RETURN_IF_ERROR(stores.CreateT1(*options.tiers, format));
  if (options.tiers->t2_type.has_value()) {
    EBB_RETURN_IF_ERROR(stores.CreateT2(*options.tiers->t2_type, format, of_t0_and_t2));
  }
  return stores;
}

Status TierStores::CreateDevice(const EngineOptions& options, const LoadedModel& model,
                                const PageFormat& format) {
  if (options.device.kind == DeviceKind::kCpu) {
    if (options.t1_mode != T1Mode::kCompute) return OkStatus();
    return InvalidArgument(
        "t1_mode",
        "compute needs a device with memory of its own; here host and device share one, and "
        "T1 is read in place anyway");
  }
  const std::string& name = options.device.name;
  const uint64_t memory = options.device.memory_bytes;
  if (memory > 0 && memory < kExtentBytes) {
    return InvalidArgument(fmt::format("device {}: a memory of {}; T0 takes at least {}", name,
                                       SizeText(memory), SizeText(kExtentBytes)));
  }
  if (format.type != RowType::kF16) {
    return Unsupported(fmt::format("device {}: rows are kept as f16 there", name));
  }
  if (options.tiers.has_value() && options.tiers->t1 != T1Place::kNone &&
      kExtentBytes % format.PageBytes() != 0) {
    return Unsupported(
        fmt::format("device {}: T1 with heads of {} channels", name, format.head_dim));
  }
  EBB_ASSIGN_OR_RETURN(backend_, BackendDevice::Create(options.device, format.RowStride()));
  caches_.device = backend_.get();
  t2_on_device_ = RunsRowAttention(*backend_, model);
  return OkStatus();
}

Status TierStores::CreateT1(const EngineTiers& tiers, const PageFormat& format) {
  if (tiers.t1 == T1Place::kHost) {
    EBB_ASSIGN_OR_RETURN(t1_, MakeArena("T1", format.PageBytes(), tiers.t1_cap_bytes, device(),
                                        MemoryKind::kPinned, StatusCode::kT1Full));
    caches_.t1 = t1_.get();
  } else if (tiers.t1 == T1Place::kFile) {
    EBB_ASSIGN_OR_RETURN(t1_file_, PageFile::Create({.folder = tiers.t1_path,
                                                     .page_bytes = format.PageBytes(),
                                                     .cap_bytes = tiers.t1_cap_bytes}));
    caches_.t1_file = t1_file_.get();
  }
  return OkStatus();
}

// Lays out T2's pages. On a device, a page must begin where a row of its buffer begins.
Status TierStores::CreateT2(CompressedType type, const PageFormat& format,
                            const std::shared_ptr<SharedCap>& cap) {
  caches_.compressed = CompressedFormat::Of(format, type);
  if (backend_ != nullptr && !t2_on_device_ && FitsGgmlBlocks(format.head_dim)) {
    CompressedFormat blocks = caches_.compressed;
    blocks.in_ggml_blocks = true;
    EBB_ASSIGN_OR_RETURN(t2_on_device_, ReadsGgmlRecords(backend_.get(), blocks));
    if (t2_on_device_) caches_.compressed = blocks;
  }
  size_t page_bytes = caches_.compressed.PageBytes();
  if (t2_on_device_) {
    page_bytes = CompressedPageBytesOnDevice(caches_.compressed);
  }
  EBB_ASSIGN_OR_RETURN(t2_,
                       MakeArena("T2", page_bytes, cap == nullptr ? 0 : cap->cap_bytes, device(),
                                 t2_on_device_ ? MemoryKind::kRecords : MemoryKind::kPinned,
                                 StatusCode::kT0Full, cap));
  caches_.t2 = t2_.get();
  return OkStatus();
}

CacheStores TierStores::caches(CacheUse use) const {
  CacheStores caches = caches_;
  if (use == CacheUse::kDraft) {
    caches.t1 = nullptr;
    caches.t1_file = nullptr;
  } else if (use == CacheUse::kStore) {
    // A store without T1 keeps its rows in T0 for good, so T0's cap counts them.
    const bool has_t1 = t1_ != nullptr || t1_file_ != nullptr;
    if (has_t1) caches.t0 = newest_.get();
    caches.t2 = nullptr;
    caches.compressed = {};
  }
  return caches;
}

size_t TierStores::Compact(size_t max_bytes) {
  size_t most = std::max(t0_->Compact(max_bytes), newest_->Compact(max_bytes));
  if (t1_ != nullptr) most = std::max(most, t1_->Compact(max_bytes));
  if (t2_ != nullptr) most = std::max(most, t2_->Compact(max_bytes));
  return most;
}

ArenaAccounting TierStores::newest_accounting() const { return Accounting(*newest_); }

ArenaAccounting TierStores::accounting(Tier tier) const {
  if (tier == Tier::kT0) return Accounting(*t0_);
  if (tier == Tier::kT1 && t1_ != nullptr) return Accounting(*t1_);
  if (tier == Tier::kT2 && t2_ != nullptr) return Accounting(*t2_);
  if (tier != Tier::kT1 || t1_file_ == nullptr) return {};
  const PageFileStats stats = t1_file_->stats();
  return {.reserved_bytes = stats.file_bytes,
          .used_bytes = stats.num_pages * t1_file_->page_bytes(),
          .peak_bytes = stats.peak_file_bytes,
          .cap_bytes = t1_file_->cap_bytes()};
}

}  // namespace ebb

// InArena implements TierPages for a sequence whose pages lie in an arena.
#ifndef EBB_ROWS_ARENA_PAGES_H_
#define EBB_ROWS_ARENA_PAGES_H_

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "src/device/device.h"
#include "src/rows/tier_rows.h"

namespace ebb {

// InArena<Base> implements the functions of `Base`, TierPages or TierRows, that concern pages.
template <typename Base>
class InArena : public Base {
 public:
  using Access = TierPages::Access;
  using PageCopy = TierPages::PageCopy;

  // Holds pages of `arena`, which steps read in the memory of `device`. REQUIRES: both outlive
  // this.
  InArena(Arena* arena, Device* device) : arena_(arena), device_(device) {}
  ~InArena() override { (void)arena_->SetFloor(&holder_, 0); }  // lowering a floor cannot fail

  void Share(PageId page) override { arena_->Share(page); }
  [[nodiscard]] uint32_t num_holders(PageId page) const override {
    return arena_->num_holders(page);
  }
  [[nodiscard]] std::byte* Address(PageId page) const override { return arena_->Address(page); }
  [[nodiscard]] uint64_t generation() const override { return arena_->generation(); }

  Status Visit(std::span<const PageId> pages, Access access,
               const std::function<Status(size_t, std::byte*)>& visit) override {
    if (IsClosed()) return VisitCopies(pages, access, visit);
    for (size_t i = 0; i < pages.size(); ++i) {
      EBB_RETURN_IF_ERROR(visit(i, arena_->Address(pages[i])));
    }
    return OkStatus();
  }
  Status Copy(std::span<const PageCopy> pages) override {
    if (arena_->memory() == MemoryKind::kPinned) {
      for (const PageCopy& copy : pages) {
        std::memcpy(arena_->Address(copy.to), arena_->Address(copy.from), arena_->page_bytes());
      }
      return OkStatus();
    }
    std::vector<CopyPart> parts;
    for (const PageCopy& copy : pages) {
      parts.push_back({.from = arena_->Address(copy.from),
                       .to = arena_->Address(copy.to),
                       .num_bytes = arena_->page_bytes()});
    }
    return device_->CopyRows(parts);
  }

  // Keeps enough pages of the arena's cap for `num_bytes` bytes of this sequence, so that no other
  // holder can take them. Errors: those of Arena::SetFloor().
  Status SetFloor(uint64_t num_bytes) {
    const size_t page_bytes = arena_->page_bytes();
    return arena_->SetFloor(&holder_, num_bytes / page_bytes + (num_bytes % page_bytes > 0));
  }
  // Returns how many more pages this sequence can take.
  [[nodiscard]] size_t NumAvailable() const { return arena_->NumAvailable(holder_); }

 protected:
  void Release(PageRef page) override {
    arena_->Release(page.id(), page.is_of_another() ? nullptr : &holder_);
  }
  // Returns whether the pages lie in memory that the host can access only by copies of the device.
  [[nodiscard]] bool IsClosed() const {
    return device_->IsClosed() && arena_->memory() != MemoryKind::kPinned;
  }
  Arena* const arena_;
  Device* const device_;

 private:
  Status Reserve(std::span<const size_t> pages_of_layers, TierPages::Reserved* reserved) override {
    const size_t wanted =
        std::accumulate(pages_of_layers.begin(), pages_of_layers.end(), size_t{0});
    if (wanted <= reserved->num_pages) return OkStatus();
    EBB_RETURN_IF_ERROR(arena_->Reserve(wanted - reserved->num_pages, &holder_));
    reserved->num_pages = wanted;
    return OkStatus();
  }
  void EndReservation(TierPages::Reserved* reserved) override {
    arena_->EndReservation(std::exchange(reserved->num_pages, 0));
  }
  PageId Take(int /*layer*/, TierPages::Reserved* reserved) override {
    --reserved->num_pages;
    return arena_->Take(&holder_);
  }
  void ReserveReleases(size_t /*num_pages*/) override {}
  void EndReleases() override {}

  // Calls visit(i, memory) for copies of the pages in the host's memory. Downloads also pages that
  // are to be written, because `visit` may write a part of a page.
  Status VisitCopies(std::span<const PageId> pages, Access access,
                     const std::function<Status(size_t, std::byte*)>& visit) {
    const size_t page_bytes = arena_->page_bytes();
    const size_t at_once = std::max<size_t>(kEditBytes / page_bytes, 1);
    std::vector<std::byte> copies(std::min(at_once, pages.size()) * page_bytes);
    for (size_t first = 0; first < pages.size(); first += at_once) {
      std::vector<std::byte*> addresses;
      for (const PageId page : pages.subspan(first, std::min(at_once, pages.size() - first))) {
        addresses.push_back(arena_->Address(page));
      }
      EBB_RETURN_IF_ERROR(device_->ReadRows(addresses, page_bytes, copies.data()));
      for (size_t i = 0; i < addresses.size(); ++i) {
        EBB_RETURN_IF_ERROR(visit(first + i, copies.data() + i * page_bytes));
      }
      if (access == Access::kRead) continue;
      EBB_RETURN_IF_ERROR(device_->WriteRows(addresses, page_bytes, copies.data()));
    }
    return OkStatus();
  }

  PageHolder holder_;
};

// Implements TierRows::EditRows() for rows that the host can edit in place. REQUIRES: the host can
// access the arena's memory.
inline void EditInArena(std::span<const TierRows::Edit> edits, const Arena& arena,
                        const PageFormat& format, const TierRows::EditFunction& edit) {
  std::vector<RowAddress> addresses;
  for (size_t i = 0; i < edits.size(); ++i) {
    addresses.clear();
    for (const Slot slot : edits[i].rows->slots) {
      addresses.push_back(AddressOf(slot, edits[i].pages, arena, format));
    }
    edit(i, addresses);
  }
}

}  // namespace ebb

#endif  // EBB_ROWS_ARENA_PAGES_H_

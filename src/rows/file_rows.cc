#include "src/rows/file_rows.h"

#include <algorithm>
#include <new>
#include <utility>

#include "src/io/io_memory.h"
#include "src/rows/row_address.h"

namespace ebb {
namespace {

// kBatchBytes is the most bytes of pages that Visit() and Copy() have in memory at a time.
constexpr size_t kBatchBytes = size_t{4} << 20;

std::vector<uint32_t> PagesOf(std::span<const Slot> slots) {
  std::vector<uint32_t> pages;
  for (const Slot slot : slots) pages.push_back(slot.page());
  std::ranges::sort(pages);
  pages.erase(std::unique(pages.begin(), pages.end()), pages.end());
  return pages;
}

std::vector<uint32_t> PagesOf(std::span<const SlotMove> moves, Slot SlotMove::*slot) {
  std::vector<Slot> slots;
  for (const SlotMove& move : moves) slots.push_back(move.*slot);
  return PagesOf(slots);
}

// EditedPages lists the pages of a stream that are edited together. IndexOf() returns where the
// list has the page of a slot.
struct EditedPages {
  std::vector<uint32_t> indices;  // indices of the stream's pages, ascending

  [[nodiscard]] size_t IndexOf(Slot slot) const {
    return std::ranges::lower_bound(indices, slot.page()) - indices.begin();
  }
};

std::unique_ptr<PageLoader> LoaderFor(PageFile* file, T1Edits* edits, Device* device,
                                      size_t num_batches) {
  if (!device->IsClosed()) return std::make_unique<FilePageLoader>(file, edits);
  return std::make_unique<FileDevicePageLoader>(file, edits, device, num_batches);
}

}  // namespace

FileRows::FileRows(PageFile* file, Device* device, const PageFormat& format)
    : file_(file),
      format_(format),
      edits_(file, kEditBytes),
      stage_(LoaderFor(file, &edits_, device, T1Stage::kBuffers)),
      page_cache_(LoaderFor(file, &edits_, device, PageLoader::kMostBatches)) {}

Status FileRows::Reserve(std::span<const size_t> pages_of_layers, Reserved* reserved) {
  if (reserved->of_layers.size() < pages_of_layers.size()) {
    reserved->of_layers.resize(pages_of_layers.size());
  }
  for (size_t layer = 0; layer < pages_of_layers.size(); ++layer) {
    std::vector<PageId>& of_layer = reserved->of_layers[layer];
    if (pages_of_layers[layer] <= of_layer.size()) continue;
    const Status status = file_->Allocate(static_cast<int>(layer),
                                          pages_of_layers[layer] - of_layer.size(), &of_layer);
    if (!status.ok()) {
      EndReservation(reserved);
      return status;
    }
  }
  return OkStatus();
}

void FileRows::EndReservation(Reserved* reserved) {
  for (auto& of_layer : reserved->of_layers) {
    file_->Free(of_layer);
    of_layer.clear();
  }
}

PageId FileRows::Take(int layer, Reserved* reserved) {
  const PageId page = reserved->of_layers[layer].back();
  reserved->of_layers[layer].pop_back();
  return page;
}

// Collects the page for EndReleases(), because freeing many pages in one call is faster. Without
// memory for the list, it frees the page at once.
void FileRows::Release(PageRef page) try {
  page_cache_.Drop(page.id());
  released_.push_back(page.id());
} catch (const std::bad_alloc&) {
  edits_.Forget(page.id());
  file_->Free(page.id());
}

void FileRows::EndReleases() {
  if (released_.empty()) return;
  for (const uint32_t page : released_) edits_.Forget(page);
  file_->Free(released_);
  released_.clear();
}

Status FileRows::Read(std::span<const PageIo> pages) {
  EBB_ASSIGN_OR_RETURN(const auto ticket, file_->StartRead(pages));
  return file_->Wait(ticket);
}

Status FileRows::Write(std::span<const PageIo> pages) {
  EBB_ASSIGN_OR_RETURN(const auto ticket, file_->StartWrite(pages));
  return file_->Wait(ticket);
}

Status FileRows::Visit(std::span<const PageId> pages, Access access,
                       const std::function<Status(size_t, std::byte*)>& visit) {
  if (pages.empty()) return OkStatus();
  const size_t page_bytes = format_.PageBytes();
  const size_t at_once = std::clamp<size_t>(kBatchBytes / page_bytes, 1, pages.size());
  EBB_ASSIGN_OR_RETURN(const IoMemory memory, IoMemory::Map(at_once * page_bytes));
  for (size_t first = 0; first < pages.size(); first += at_once) {
    const size_t end = std::min(first + at_once, pages.size());
    std::vector<PageIo> requests;
    for (size_t i = first; i < end; ++i) {
      requests.push_back({.page = pages[i], .memory = memory.data() + (i - first) * page_bytes});
    }
    if (access == Access::kRead) EBB_RETURN_IF_ERROR(Read(requests));
    for (size_t i = first; i < end; ++i) {
      EBB_RETURN_IF_ERROR(visit(i, requests[i - first].memory));
    }
    if (access == Access::kRead) continue;
    for (const PageIo& request : requests) page_cache_.Drop(request.page);
    EBB_RETURN_IF_ERROR(Write(requests));
  }
  return OkStatus();
}

Status FileRows::Copy(std::span<const PageCopy> pages) {
  if (pages.empty()) return OkStatus();
  const size_t page_bytes = format_.PageBytes();
  const size_t at_once = std::clamp<size_t>(kBatchBytes / page_bytes, 1, pages.size());
  EBB_ASSIGN_OR_RETURN(const IoMemory memory, IoMemory::Map(at_once * page_bytes));
  for (size_t first = 0; first < pages.size(); first += at_once) {
    std::vector<PageIo> reads, writes;
    for (const PageCopy& copy : pages.subspan(first, std::min(at_once, pages.size() - first))) {
      std::byte* const at = memory.data() + reads.size() * page_bytes;
      reads.push_back({.page = copy.from, .memory = at});
      writes.push_back({.page = copy.to, .memory = at});
      page_cache_.Drop(copy.to);
    }
    EBB_RETURN_IF_ERROR(Read(reads));
    EBB_RETURN_IF_ERROR(Write(writes));
  }
  return OkStatus();
}

Status FileRows::ReserveEdits(const EditSize& size) {
  if (size.pages == 0) return OkStatus();
  const size_t page_bytes = format_.PageBytes();
  return edits_.Reserve(size.pages_of_stream * page_bytes, size.pages * page_bytes);
}

Status FileRows::EditRows(std::span<const Edit> edits, const EditFunction& edit) {
  std::vector<EditedPages> edited;  // page lists; edits with the same rows share one
  std::vector<size_t> edited_of;    // [edits]: index in `edited`
  size_t num_pages = 0;
  for (size_t i = 0; i < edits.size(); ++i) {
    if (i == 0 || edits[i].rows != edits[i - 1].rows) {
      edited.push_back({.indices = PagesOf(edits[i].rows->slots)});
    }
    edited_of.push_back(edited.size() - 1);
    num_pages += edited.back().indices.size();
  }
  std::vector<std::byte*> memory(num_pages);
  std::vector<std::byte**> memory_of;  // [edits]: addresses of the pages in memory
  std::vector<T1Edits::Unit> units(edits.size());
  std::byte** next = memory.data();
  for (size_t i = 0; i < edits.size(); ++i) {
    const Rows& rows = *edits[i].rows;
    memory_of.push_back(next);
    for (const uint32_t page : edited[edited_of[i]].indices) {
      const bool is_fresh = std::ranges::binary_search(rows.fresh, page);
      const auto access = rows.access == Access::kRead ? T1Edits::Access::kRead
                          : is_fresh                   ? T1Edits::Access::kWrite
                                                       : T1Edits::Access::kReadAndWrite;
      const PageId id = edits[i].pages[page].id();
      if (access != T1Edits::Access::kRead) page_cache_.Drop(id);
      units[i].push_back({.file_page = id, .access = access, .address = next++});
    }
  }
  std::vector<RowAddress> addresses;
  return edits_.Run(units, [&](size_t i) {
    addresses.clear();
    for (const Slot slot : edits[i].rows->slots) {
      std::byte* const page = memory_of[i][edited[edited_of[i]].IndexOf(slot)];
      addresses.push_back(RowOfPage(page, slot, format_));
    }
    edit(i, addresses);
  });
}

Status FileRows::MoveRows(std::span<const std::span<const SlotMove>> moves,
                          std::span<const std::span<const PageRef>> pages) {
  std::vector<T1Edits::Unit> units(moves.size());
  std::vector<EditedPages> edited(moves.size());
  std::vector<std::vector<std::byte*>> memory(moves.size());
  for (size_t i = 0; i < moves.size(); ++i) {
    const std::vector<uint32_t> written = PagesOf(moves[i], &SlotMove::to);
    std::ranges::set_union(written, PagesOf(moves[i], &SlotMove::from),
                           std::back_inserter(edited[i].indices));
    memory[i].resize(edited[i].indices.size());
    for (size_t k = 0; k < edited[i].indices.size(); ++k) {
      const uint32_t page = edited[i].indices[k];
      const PageId id = pages[i][page].id();
      const bool is_written = std::ranges::binary_search(written, page);
      if (is_written) page_cache_.Drop(id);
      units[i].push_back(
          {.file_page = id,
           .access = is_written ? T1Edits::Access::kReadAndWrite : T1Edits::Access::kRead,
           .address = &memory[i][k]});
    }
  }
  return edits_.Run(units, [&](size_t i) {
    const auto at = [&](Slot slot) {
      return RowOfPage(memory[i][edited[i].IndexOf(slot)], slot, format_);
    };
    for (const SlotMove& move : moves[i]) CopyRow(at(move.from), at(move.to), format_);
  });
}

}  // namespace ebb

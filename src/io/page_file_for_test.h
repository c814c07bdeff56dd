// Defines helpers for tests of page files: memory that direct I/O accepts, and contents that differ
// between pages.
#ifndef EBB_IO_PAGE_FILE_FOR_TEST_H_
#define EBB_IO_PAGE_FILE_FOR_TEST_H_

#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "src/io/page_file.h"

namespace ebb {

inline constexpr size_t kTestPageBytes = 16 << 10;
inline constexpr size_t kTestSegmentBytes = kTestPageBytes * kPagesPerSegment;

class PageMemory {
 public:
  PageMemory(size_t num_pages, size_t page_bytes)
      : page_bytes_(page_bytes),
        bytes_(static_cast<std::byte*>(std::aligned_alloc(kBlockBytes, num_pages * page_bytes)),
               &std::free) {
    std::memset(bytes_.get(), 0, num_pages * page_bytes);
  }
  std::byte* operator[](size_t i) const { return bytes_.get() + i * page_bytes_; }

  // Fills page i with contents that depend on `seed` and differ in every word.
  void Fill(size_t i, uint64_t seed) const {
    for (size_t w = 0; w < page_bytes_ / sizeof(uint64_t); ++w) {
      const uint64_t word = Word(seed, w);
      std::memcpy((*this)[i] + w * sizeof(word), &word, sizeof(word));
    }
  }
  [[nodiscard]] bool Holds(size_t i, uint64_t seed) const {
    for (size_t w = 0; w < page_bytes_ / sizeof(uint64_t); ++w) {
      const uint64_t word = Word(seed, w);
      if (std::memcmp((*this)[i] + w * sizeof(word), &word, sizeof(word)) != 0) return false;
    }
    return true;
  }

 private:
  static uint64_t Word(uint64_t seed, size_t w) {
    return (seed * 1000003 + w) * 0x9e3779b97f4a7c15;
  }

  size_t page_bytes_;
  std::unique_ptr<std::byte, decltype(&std::free)> bytes_;
};

inline Status WriteNow(PageFile* file, std::span<const PageIo> pages) {
  EBB_ASSIGN_OR_RETURN(const PageFile::Ticket ticket, file->StartWrite(pages));
  return file->Wait(ticket);
}

inline Status ReadNow(PageFile* file, std::span<const PageIo> pages) {
  EBB_ASSIGN_OR_RETURN(const PageFile::Ticket ticket, file->StartRead(pages));
  return file->Wait(ticket);
}

inline std::vector<uint32_t> AllocateNow(PageFile* file, int layer, size_t num_pages) {
  std::vector<uint32_t> pages;
  const Status status = file->Allocate(layer, num_pages, &pages);
  EXPECT_TRUE(status.ok()) << status.ToString();
  return pages;
}

// Returns requests that transfer pages[i] from or to page i of the memory.
inline std::vector<PageIo> Requests(std::span<const uint32_t> pages, const PageMemory& memory) {
  std::vector<PageIo> requests;
  for (size_t i = 0; i < pages.size(); ++i) requests.push_back({pages[i], memory[i]});
  return requests;
}

inline std::string EngineName(const testing::TestParamInfo<IoEngine>& info) {
  return info.param == IoEngine::kUring ? "IoUring" : "Threads";
}

// Returns why tests with these options cannot run here; empty if they can.
inline std::string WhyNot(const PageFileOptions& options) {
  const auto file = PageFile::Create(options);
  return file.ok() ? "" : file.status().ToString();
}

}  // namespace ebb

#endif  // EBB_IO_PAGE_FILE_FOR_TEST_H_

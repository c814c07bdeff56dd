// Tests which pages a layer gets, and how much space the file occupies.
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/io/page_file.h"
#include "src/io/page_file_for_test.h"
#include "tests/support/skip.h"
#include "tests/support/temp_folder.h"

namespace ebb {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr size_t kMediumPageBytes = 8 << 10;
constexpr size_t kMediumSegmentBytes = kMediumPageBytes * kPagesPerSegment;

class PageFileSpaceTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::string reason = WhyNot(Options());
    if (!reason.empty()) EBB_SKIP_WITHOUT("direct_io") << reason;
  }

  [[nodiscard]] PageFileOptions Options() const {
    return {.folder = folder_.File(""), .page_bytes = kMediumPageBytes};
  }

  static std::unique_ptr<PageFile> Make(const PageFileOptions& options) {
    auto file = PageFile::Create(options);
    EXPECT_TRUE(file.ok()) << file.status().ToString();
    return *std::move(file);
  }

  TempFolder folder_;
};

std::vector<uint32_t> Range(uint32_t begin, uint32_t end) {
  std::vector<uint32_t> pages(end - begin);
  std::iota(pages.begin(), pages.end(), begin);
  return pages;
}

TEST_F(PageFileSpaceTest, PagesOfALayerLieTogetherInSegments) {
  const auto file = Make(Options());
  EXPECT_EQ(AllocateNow(file.get(), 0, 10), Range(0, 10));
  EXPECT_EQ(AllocateNow(file.get(), 1, 70), Range(64, 134));
  EXPECT_EQ(AllocateNow(file.get(), 0, 54), Range(10, 64));
  EXPECT_EQ(AllocateNow(file.get(), 0, 1), Range(192, 193));
  EXPECT_EQ(AllocateNow(file.get(), 1, 1), Range(134, 135));
  EXPECT_EQ(file->stats().num_pages, 136u);
  EXPECT_EQ(file->stats().file_bytes, 4 * kMediumSegmentBytes);
}

TEST_F(PageFileSpaceTest, EveryLayerTakesWholeSegments) {
  constexpr uint64_t kSegmentBytes = uint64_t{kPagesPerSegment} * 16384;
  EXPECT_EQ(PageFile::BytesFor(0, 30, 16384), 0u);
  EXPECT_EQ(PageFile::BytesFor(1, 30, 16384), 30 * kSegmentBytes);
  EXPECT_EQ(PageFile::BytesFor(65, 30, 16384), 60 * kSegmentBytes);
}

TEST_F(PageFileSpaceTest, TheLowestHolesAreFilledFirst) {
  const auto file = Make(Options());
  AllocateNow(file.get(), 0, 128);
  for (const uint32_t page : {100u, 3u, 65u, 63u}) file->Free(page);
  std::vector<uint32_t> pages = {7};
  ASSERT_TRUE(file->Allocate(0, 3, &pages).ok());
  EXPECT_THAT(pages, ElementsAre(7, 3, 63, 65));
  EXPECT_THAT(AllocateNow(file.get(), 0, 2), ElementsAre(100, 128));
}

TEST_F(PageFileSpaceTest, AnEmptySegmentServesAnotherLayer) {
  const auto file = Make(Options());
  AllocateNow(file.get(), 0, 64);
  AllocateNow(file.get(), 1, 64);
  for (const uint32_t page : Range(0, 63)) file->Free(page);
  EXPECT_EQ(AllocateNow(file.get(), 1, 1), Range(128, 129));
  file->Free(63);
  EXPECT_EQ(file->stats().file_bytes, 2 * kMediumSegmentBytes);
  EXPECT_EQ(AllocateNow(file.get(), 2, 1), Range(0, 1));
  EXPECT_EQ(file->stats().file_bytes, 3 * kMediumSegmentBytes);
  EXPECT_EQ(file->stats().peak_file_bytes, 3 * kMediumSegmentBytes);
}

// kListBytes is the space that a file system may need for the list of a file's extents.
constexpr size_t kListBytes = 16 << 10;

TEST_F(PageFileSpaceTest, SpaceIsTakenFromTheDiskWithASegmentAndGivenBackWithIt) {
  const auto file = Make(Options());
  const std::vector<uint32_t> pages = AllocateNow(file.get(), 0, 200);
  EXPECT_GE(file->DiskBytes(), 4 * kMediumSegmentBytes);
  EXPECT_LE(file->DiskBytes(), 4 * kMediumSegmentBytes + kListBytes);
  const PageMemory memory(200, kMediumPageBytes);
  ASSERT_TRUE(WriteNow(file.get(), Requests(pages, memory)).ok());
  EXPECT_LE(file->DiskBytes(), 4 * kMediumSegmentBytes + kListBytes);
  for (const uint32_t page : Range(64, 128)) file->Free(page);
  EXPECT_GE(file->DiskBytes(), 3 * kMediumSegmentBytes);
  EXPECT_LE(file->DiskBytes(), 3 * kMediumSegmentBytes + kListBytes);
  for (const uint32_t page : Range(0, 64)) file->Free(page);
  for (const uint32_t page : Range(128, 200)) file->Free(page);
  EXPECT_LE(file->DiskBytes(), kListBytes);
  EXPECT_EQ(file->stats().file_bytes, 0u);
  EXPECT_EQ(file->stats().num_pages, 0u);
  EXPECT_EQ(file->stats().peak_file_bytes, 4 * kMediumSegmentBytes);
  EXPECT_GT(file->stats().table_bytes, 200u);
}

TEST_F(PageFileSpaceTest, AReusedPageMustBeWrittenBeforeItIsRead) {
  const auto file = Make(Options());
  const std::vector<uint32_t> pages = AllocateNow(file.get(), 0, 2);
  const PageMemory memory(2, kMediumPageBytes);
  ASSERT_TRUE(WriteNow(file.get(), Requests(pages, memory)).ok());
  file->Free(pages[0]);
  EXPECT_EQ(AllocateNow(file.get(), 0, 1), Range(0, 1));
  const Status status = ReadNow(file.get(), Requests(pages, memory));
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("page 0: it was never written"));
}

TEST_F(PageFileSpaceTest, TheCapIsHardAndReachingItChangesNothing) {
  PageFileOptions options = Options();
  options.cap_bytes = 3 * kMediumSegmentBytes - 1;  // rounds down to two segments
  const auto file = Make(options);
  AllocateNow(file.get(), 0, 60);
  AllocateNow(file.get(), 1, 1);
  std::vector<uint32_t> pages;
  const Status status = file->Allocate(0, 5, &pages);
  EXPECT_EQ(status.code(), StatusCode::kT1Full);
  EXPECT_THAT(status.message(),
              HasSubstr("5 more pages of 8 KiB need 512 KiB more of disk, but 1 MiB of "
                        "the page file's cap of 1.5 MiB are in use"));
  EXPECT_TRUE(pages.empty());
  EXPECT_EQ(file->stats().num_pages, 61u);
  EXPECT_LT(file->DiskBytes(), 3 * kMediumSegmentBytes);
  EXPECT_EQ(AllocateNow(file.get(), 0, 4), Range(60, 64));
  EXPECT_EQ(file->Allocate(2, SIZE_MAX - 10, &pages).code(), StatusCode::kOutOfMemory);
}

}  // namespace
}  // namespace ebb

// Tests a page file when the disk misbehaves.
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <random>
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

using ::testing::HasSubstr;

class PageFileFaultsTest : public testing::TestWithParam<IoEngine> {
 protected:
  void SetUp() override {
    PageFileOptions options = Options();
    options.faults = nullptr;
    const std::string reason = WhyNot(options);
    if (!reason.empty()) EBB_SKIP_WITHOUT("direct_io") << reason;
  }

  // Returns options with a hook that calls fault_, which tests set and change.
  [[nodiscard]] PageFileOptions Options() {
    return {.folder = folder_.File(""),
            .page_bytes = kTestPageBytes,
            .engine = GetParam(),
            .faults = [this](const DiskRequest& request) {
              return fault_ ? fault_(request) : DiskFault{};
            }};
  }

  static std::unique_ptr<PageFile> Make(const PageFileOptions& options) {
    auto file = PageFile::Create(options);
    EXPECT_TRUE(file.ok()) << file.status().ToString();
    return *std::move(file);
  }

  // Makes all calls of this kind fail.
  void Fail(DiskCall call, int error) {
    fault_ = [call, error](const DiskRequest& request) -> DiskFault {
      return {.error = request.call == call ? error : 0};
    };
  }

  TempFolder folder_;
  FaultHook fault_;
};

INSTANTIATE_TEST_SUITE_P(Engines, PageFileFaultsTest,
                         testing::Values(IoEngine::kUring, IoEngine::kThreads), EngineName);

TEST_P(PageFileFaultsTest, AFullDiskIsSaidByAllocateAndChangesNothing) {
  const auto file = Make(Options());
  AllocateNow(file.get(), 0, 60);
  int num_left = 2;
  fault_ = [&](const DiskRequest& request) -> DiskFault {
    return {.error = request.call == DiskCall::kReserve && num_left-- == 0 ? ENOSPC : 0};
  };
  std::vector<uint32_t> pages;
  const Status status = file->Allocate(0, 4 + 3 * 64, &pages);
  EXPECT_EQ(status.code(), StatusCode::kStorageFull);
  EXPECT_THAT(status.message(), HasSubstr("cannot reserve 1048576 bytes at offset 3145728"));
  EXPECT_THAT(status.message(), HasSubstr("No space left on device"));
  EXPECT_TRUE(pages.empty());
  EXPECT_EQ(file->stats().num_pages, 60u);
  EXPECT_EQ(file->stats().file_bytes, kTestSegmentBytes);
  EXPECT_EQ(file->stats().peak_file_bytes, kTestSegmentBytes);
  EXPECT_LT(file->DiskBytes(), 2 * kTestSegmentBytes);
  fault_ = nullptr;
  EXPECT_EQ(AllocateNow(file.get(), 0, 4 + 3 * 64).back(), 255u);
}

TEST_P(PageFileFaultsTest, SpaceThatIsNotTakenBackStaysCountedAndServesTheNextLayer) {
  PageFileOptions options = Options();
  options.cap_bytes = 2 * kTestSegmentBytes;
  const auto file = Make(options);
  const uint32_t first = AllocateNow(file.get(), 0, 1)[0];
  const uint32_t second = AllocateNow(file.get(), 1, 1)[0];
  Fail(DiskCall::kRelease, EIO);
  file->Free(second);
  EXPECT_EQ(file->stats().file_bytes, 2 * kTestSegmentBytes);
  fault_ = nullptr;
  file->Free(first);
  EXPECT_EQ(file->stats().file_bytes, kTestSegmentBytes);
  EXPECT_EQ(AllocateNow(file.get(), 2, 1)[0], second);
  EXPECT_EQ(file->stats().file_bytes, kTestSegmentBytes);
}

TEST_P(PageFileFaultsTest, NeighbouringSegmentsThatEmptyTogetherGoBackInOneCall) {
  const auto file = Make(Options());
  std::vector<uint32_t> pages = AllocateNow(file.get(), 0, 6 * kPagesPerSegment);
  const uint32_t kept = pages[3 * kPagesPerSegment + 5];
  std::erase(pages, kept);
  std::shuffle(pages.begin(), pages.end(), std::mt19937(3));
  std::vector<std::pair<uint64_t, size_t>> released;
  fault_ = [&](const DiskRequest& request) -> DiskFault {
    if (request.call == DiskCall::kRelease)
      released.emplace_back(request.offset, request.num_bytes);
    return {};
  };
  file->Free(pages);
  EXPECT_THAT(released,
              testing::ElementsAre(std::pair(0, 3 * kTestSegmentBytes),
                                   std::pair(4 * kTestSegmentBytes, 2 * kTestSegmentBytes)));
  EXPECT_EQ(file->stats().file_bytes, kTestSegmentBytes);
  EXPECT_EQ(file->stats().num_pages, 1u);
  file->Free(kept);
  EXPECT_EQ(file->stats().file_bytes, 0u);
  EXPECT_LE(file->DiskBytes(), kTestSegmentBytes / 2);
}

TEST_P(PageFileFaultsTest, ShortAndInterruptedTransfersAreCompleted) {
  std::mt19937 random(11);
  int num_faults = 0;
  const auto file = Make(Options());
  const std::vector<uint32_t> pages = AllocateNow(file.get(), 0, 200);
  fault_ = [&](const DiskRequest& request) -> DiskFault {
    if (request.call != DiskCall::kRead && request.call != DiskCall::kWrite) return {};
    ++num_faults;
    if (random() % 3 == 0) return {.error = random() % 2 == 0 ? EINTR : EAGAIN};
    // Transfer any number of bytes: the request for the rest must begin at a block again.
    return {.max_bytes = 1 + random() % (200 << 10)};
  };
  const PageMemory memory(200, kTestPageBytes);
  for (size_t i = 0; i < 200; ++i) memory.Fill(i, i);
  ASSERT_TRUE(WriteNow(file.get(), Requests(pages, memory)).ok());
  const PageMemory copy(200, kTestPageBytes);
  const Status status = ReadNow(file.get(), Requests(pages, copy));
  ASSERT_TRUE(status.ok()) << status.ToString();
  for (size_t i = 0; i < 200; ++i) ASSERT_TRUE(copy.Holds(i, i)) << i;
  EXPECT_GT(num_faults, 50);
  EXPECT_EQ(file->stats().bytes_read, 200 * kTestPageBytes);
  EXPECT_EQ(file->stats().bytes_written, 200 * kTestPageBytes);
}

TEST_P(PageFileFaultsTest, AReadThatFailsIsNamedAndOthersGoOn) {
  const auto file = Make(Options());
  const std::vector<uint32_t> pages = AllocateNow(file.get(), 0, 10);
  const PageMemory memory(10, kTestPageBytes);
  for (size_t i = 0; i < 10; ++i) memory.Fill(i, i);
  ASSERT_TRUE(WriteNow(file.get(), Requests(pages, memory)).ok());
  fault_ = [](const DiskRequest& request) -> DiskFault {
    return {.error = request.offset == 6 * kTestPageBytes ? EIO : 0};
  };
  const PageMemory copy(10, kTestPageBytes);
  const std::vector<PageIo> bad = {{pages[2], copy[2]}, {pages[6], copy[6]}, {pages[8], copy[8]}};
  const std::vector<PageIo> good = {{pages[0], copy[0]}, {pages[1], copy[1]}};
  const auto failing = file->StartRead(bad);
  const auto other = file->StartRead(good);
  ASSERT_TRUE(failing.ok() && other.ok());
  const Status status = file->Wait(*failing);
  EXPECT_EQ(status.code(), StatusCode::kIo);
  EXPECT_THAT(status.message(),
              HasSubstr("cannot read 16384 bytes at offset 98304 of the page file in " +
                        file->folder() + ": Input/output error"));
  EXPECT_TRUE(file->Wait(*other).ok());
  EXPECT_TRUE(copy.Holds(0, 0) && copy.Holds(1, 1));
  fault_ = nullptr;
  EXPECT_TRUE(ReadNow(file.get(), bad).ok());
  EXPECT_TRUE(copy.Holds(6, 6));
}

TEST_P(PageFileFaultsTest, WhatWaitsBehindAFailureInItsBatchIsNotStarted) {
  PageFileOptions options = Options();
  options.queue_depth = 1;
  const auto file = Make(options);
  const std::vector<uint32_t> pages = AllocateNow(file.get(), 0, 9);
  const PageMemory memory(9, kTestPageBytes);
  ASSERT_TRUE(WriteNow(file.get(), Requests(pages, memory)).ok());
  int num_reads = 0;
  fault_ = [&](const DiskRequest& request) -> DiskFault {
    if (request.call != DiskCall::kRead) return {};
    return {.error = ++num_reads == 2 ? EIO : 0};
  };
  const std::vector<PageIo> apart = {
      {pages[0], memory[0]}, {pages[2], memory[2]}, {pages[4], memory[4]}, {pages[6], memory[6]}};
  EXPECT_EQ(ReadNow(file.get(), apart).code(), StatusCode::kIo);
  EXPECT_EQ(num_reads, 2);
  EXPECT_TRUE(ReadNow(file.get(), apart).ok());
  EXPECT_EQ(num_reads, 6);
}

TEST_P(PageFileFaultsTest, AWriteThatFailsLeavesItsPagesWithoutContents) {
  const auto file = Make(Options());
  const std::vector<uint32_t> pages = AllocateNow(file.get(), 0, 2);
  const PageMemory memory(2, kTestPageBytes);
  for (const auto& [error, code] :
       {std::pair(EIO, StatusCode::kIo), std::pair(ENOSPC, StatusCode::kStorageFull)}) {
    ASSERT_TRUE(WriteNow(file.get(), Requests(pages, memory)).ok());
    ASSERT_TRUE(ReadNow(file.get(), Requests(pages, memory)).ok());
    Fail(DiskCall::kWrite, error);
    const Status status = WriteNow(file.get(), Requests(pages, memory));
    EXPECT_EQ(status.code(), code);
    EXPECT_THAT(status.message(), HasSubstr("cannot write 32768 bytes at offset 0"));
    fault_ = nullptr;
    EXPECT_THAT(ReadNow(file.get(), Requests(pages, memory)).message(),
                HasSubstr("it was never written"));
  }
}

// An empty batch that stayed in the list of waiting batches would be read after it was erased,
// which the address sanitizer reports.
TEST_P(PageFileFaultsTest, AnEmptyBatchLeavesNothingBehindWhileTheQueueIsFull) {
  PageFileOptions options = Options();
  options.queue_depth = 1;
  const auto file = Make(options);
  const PageMemory memory(2, kTestPageBytes);
  const auto requests = Requests(AllocateNow(file.get(), 0, 2), memory);
  fault_ = [](const DiskRequest&) -> DiskFault { return {.delay = std::chrono::milliseconds(50)}; };
  const auto first = file->StartWrite(std::span(requests).first(1));
  const auto empty = file->StartRead({});
  ASSERT_TRUE(first.ok() && empty.ok());
  EXPECT_TRUE(file->Wait(*empty).ok());
  EXPECT_TRUE(WriteNow(file.get(), std::span(requests).last(1)).ok());
  EXPECT_TRUE(file->Wait(*first).ok());
}

TEST_P(PageFileFaultsTest, AFileThatEndsEarlyIsAnError) {
  const auto file = Make(Options());
  const std::vector<uint32_t> pages = AllocateNow(file.get(), 0, 1);
  const PageMemory memory(1, kTestPageBytes);
  ASSERT_TRUE(WriteNow(file.get(), Requests(pages, memory)).ok());
  fault_ = [](const DiskRequest&) -> DiskFault { return {.max_bytes = 0}; };
  const Status status = ReadNow(file.get(), Requests(pages, memory));
  EXPECT_EQ(status.code(), StatusCode::kIo);
  EXPECT_THAT(status.message(), HasSubstr("cannot read 16384 bytes at offset 0"));
  EXPECT_THAT(status.message(), HasSubstr("it ends"));
}

TEST_P(PageFileFaultsTest, ADiskWithoutProgressIsAnError) {
  const auto file = Make(Options());
  const std::vector<uint32_t> pages = AllocateNow(file.get(), 0, 1);
  const PageMemory memory(1, kTestPageBytes);
  Fail(DiskCall::kWrite, EINTR);
  const Status status = WriteNow(file.get(), Requests(pages, memory));
  EXPECT_EQ(status.code(), StatusCode::kIo);
  EXPECT_THAT(status.message(), HasSubstr("no progress in 1000 tries"));
}

TEST_P(PageFileFaultsTest, ACorruptPageIsNamedWhenChecksumsAreVerified) {
  for (const bool verifies : {true, false}) {
    fault_ = nullptr;
    PageFileOptions options = Options();
    options.verify_checksums = verifies;
    const auto file = Make(options);
    const std::vector<uint32_t> pages = AllocateNow(file.get(), 0, 8);
    const PageMemory memory(8, kTestPageBytes);
    for (size_t i = 0; i < 8; ++i) memory.Fill(i, i);
    ASSERT_TRUE(WriteNow(file.get(), Requests(pages, memory)).ok());
    ASSERT_TRUE(ReadNow(file.get(), Requests(pages, memory)).ok());
    fault_ = [](const DiskRequest&) -> DiskFault {
      return {.flipped_byte = 5 * kTestPageBytes + 77};
    };
    const Status status = ReadNow(file.get(), Requests(pages, memory));
    EXPECT_FALSE(memory.Holds(5, 5));
    if (verifies) {
      EXPECT_EQ(status.code(), StatusCode::kCorrupt);
      EXPECT_THAT(status.message(), HasSubstr("page 5 at offset 81920"));
      EXPECT_THAT(status.message(), HasSubstr("is not what was written"));
    } else {
      EXPECT_TRUE(status.ok());
    }
    fault_ = nullptr;
    EXPECT_TRUE(ReadNow(file.get(), Requests(pages, memory)).ok());
    EXPECT_TRUE(memory.Holds(5, 5));
  }
}

TEST_P(PageFileFaultsTest, AKernelWithoutIoUringLeavesThreads) {
  Fail(DiskCall::kQueue, EPERM);
  PageFileOptions options = Options();
  options.engine = IoEngine::kAuto;
  EXPECT_EQ(Make(options)->engine(), IoEngine::kThreads);
  options.engine = IoEngine::kUring;
  const auto forced = PageFile::Create(options);
  ASSERT_FALSE(forced.ok());
  EXPECT_EQ(forced.status().code(), StatusCode::kUnsupported);
  EXPECT_THAT(forced.status().message(),
              HasSubstr("the kernel refuses io_uring: Operation not permitted"));
}

TEST_P(PageFileFaultsTest, CreateSaysWhatTheFileSystemRefuses) {
  const auto error = [&](DiskCall call, int number) {
    Fail(call, number);
    const auto file = PageFile::Create(Options());
    EXPECT_FALSE(file.ok());
    return file.status();
  };
  EXPECT_EQ(error(DiskCall::kOpen, EACCES).code(), StatusCode::kIo);
  EXPECT_EQ(error(DiskCall::kOpen, EINVAL).code(), StatusCode::kUnsupported);
  EXPECT_EQ(error(DiskCall::kOpen, ENOSPC).code(), StatusCode::kStorageFull);
  EXPECT_THAT(error(DiskCall::kOpen, EINVAL).message(), HasSubstr("direct I/O"));
  EXPECT_EQ(error(DiskCall::kReserve, EOPNOTSUPP).code(), StatusCode::kUnsupported);
  EXPECT_THAT(error(DiskCall::kProbe, EIO).message(), HasSubstr("cannot try out 4096 bytes"));
  EXPECT_THAT(error(DiskCall::kRelease, EOPNOTSUPP).message(), HasSubstr("cannot release"));
}

}  // namespace
}  // namespace ebb

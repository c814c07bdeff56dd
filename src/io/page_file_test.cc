#include "src/io/page_file.h"

#include <sys/vfs.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/io/page_file_for_test.h"
#include "tests/support/skip.h"
#include "tests/support/temp_folder.h"

namespace ebb {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class PageFileTest : public testing::TestWithParam<IoEngine> {
 protected:
  void SetUp() override {
    const std::string reason = WhyNot(Options());
    if (!reason.empty()) EBB_SKIP_WITHOUT("direct_io") << reason;
  }

  [[nodiscard]] PageFileOptions Options() const {
    return {.folder = folder_.File(""), .page_bytes = kTestPageBytes, .engine = GetParam()};
  }

  static std::unique_ptr<PageFile> Make(const PageFileOptions& options) {
    auto file = PageFile::Create(options);
    EXPECT_TRUE(file.ok()) << file.status().ToString();
    return *std::move(file);
  }

  // Returns a hook that delays reads and records the sizes of requests.
  FaultHook Watch(DiskCall call, milliseconds delay) {
    return [this, call, delay](const DiskRequest& request) -> DiskFault {
      if (request.call != call) return {};
      seen_.push_back(request.num_bytes);
      return {.delay = delay};
    };
  }

  TempFolder folder_;
  std::vector<size_t> seen_;
};

INSTANTIATE_TEST_SUITE_P(Engines, PageFileTest,
                         testing::Values(IoEngine::kUring, IoEngine::kThreads), EngineName);

TEST_P(PageFileTest, UsesTheEngineAskedForAndGoesPastThePageCache) {
  const auto file = Make(Options());
  EXPECT_EQ(file->engine(), GetParam());
  EXPECT_TRUE(file->direct());
  EXPECT_EQ(file->page_bytes(), kTestPageBytes);
  EXPECT_EQ(file->stats().file_bytes, 0u);
  EXPECT_EQ(file->DiskBytes(), 0u);
}

TEST_P(PageFileTest, PagesKeepTheirContentsInAnyOrderAndOfAnySize) {
  for (const size_t page_bytes : {size_t{4096}, kTestPageBytes, size_t{20480}, size_t{2} << 20}) {
    SCOPED_TRACE(page_bytes);
    PageFileOptions options = Options();
    options.page_bytes = page_bytes;
    const auto file = Make(options);
    const size_t num_pages = page_bytes > kTestPageBytes * 2 ? 12 : 300;
    const PageMemory memory(num_pages, page_bytes);
    std::vector<uint32_t> pages = AllocateNow(file.get(), 0, num_pages);
    std::mt19937 random(3);
    std::shuffle(pages.begin(), pages.end(), random);
    for (size_t i = 0; i < num_pages; ++i) memory.Fill(i, pages[i]);
    ASSERT_TRUE(WriteNow(file.get(), Requests(pages, memory)).ok());
    std::shuffle(pages.begin(), pages.end(), random);
    const PageMemory copy(num_pages, page_bytes);
    ASSERT_TRUE(ReadNow(file.get(), Requests(pages, copy)).ok());
    for (size_t i = 0; i < num_pages; ++i) ASSERT_TRUE(copy.Holds(i, pages[i])) << i;
    EXPECT_EQ(file->stats().bytes_written, num_pages * page_bytes);
    EXPECT_EQ(file->stats().bytes_read, num_pages * page_bytes);
  }
}

TEST_P(PageFileTest, NeighboursAreJoinedIntoRequestsOfAMebibyte) {
  PageFileOptions options = Options();
  options.faults = Watch(DiskCall::kRead, milliseconds(0));
  const auto file = Make(options);
  std::vector<uint32_t> pages = AllocateNow(file.get(), 0, 160);
  const PageMemory memory(pages.size(), kTestPageBytes);
  ASSERT_TRUE(WriteNow(file.get(), Requests(pages, memory)).ok());
  ASSERT_TRUE(ReadNow(file.get(), Requests(pages, memory)).ok());
  EXPECT_THAT(seen_, ElementsAre(64 * kTestPageBytes, 64 * kTestPageBytes, 32 * kTestPageBytes));
  seen_.clear();
  const std::vector<uint32_t> apart = {pages[9], pages[1], pages[2], pages[4]};
  ASSERT_TRUE(ReadNow(file.get(), Requests(apart, memory)).ok());
  EXPECT_THAT(seen_, ElementsAre(2 * kTestPageBytes, kTestPageBytes, kTestPageBytes));
}

TEST_P(PageFileTest, NoMoreRequestsThanTheQueueIsDeepAreUnderWay) {
  PageFileOptions options = Options();
  options.queue_depth = 2;
  options.faults = Watch(DiskCall::kRead, milliseconds(20));
  const auto file = Make(options);
  const std::vector<uint32_t> all = AllocateNow(file.get(), 0, 10);
  const PageMemory memory(10, kTestPageBytes);
  for (size_t i = 0; i < 10; ++i) memory.Fill(i, all[i]);
  ASSERT_TRUE(WriteNow(file.get(), Requests(all, memory)).ok());
  const std::vector<uint32_t> apart = {0, 2, 4, 6, 8};
  const PageMemory copy(5, kTestPageBytes);
  const auto ticket = file->StartRead(Requests(apart, copy));
  ASSERT_TRUE(ticket.ok());
  EXPECT_EQ(seen_.size(), 2u);
  ASSERT_TRUE(file->Wait(*ticket).ok());
  EXPECT_EQ(seen_.size(), 5u);
  for (size_t i = 0; i < 5; ++i) EXPECT_TRUE(copy.Holds(i, apart[i]));
}

TEST_P(PageFileTest, StartingAndAskingDoNotSleepButWaitingDoes) {
  PageFileOptions options = Options();
  options.faults = Watch(DiskCall::kRead, milliseconds(60));
  const auto file = Make(options);
  const std::vector<uint32_t> pages = AllocateNow(file.get(), 0, 4);
  const PageMemory memory(4, kTestPageBytes);
  ASSERT_TRUE(WriteNow(file.get(), Requests(pages, memory)).ok());
  const double before = file->stats().wait_seconds;
  const auto start = std::chrono::steady_clock::now();
  const auto ticket = file->StartRead(Requests(pages, memory));
  ASSERT_TRUE(ticket.ok());
  const bool done_at_once = file->Done(*ticket);
  const bool was_slow = std::chrono::steady_clock::now() - start > milliseconds(50);
  EXPECT_TRUE(!done_at_once || was_slow);
  ASSERT_TRUE(file->Wait(*ticket).ok());
  EXPECT_GE(std::chrono::steady_clock::now() - start, milliseconds(60));
  EXPECT_GE(file->stats().read_seconds, 0.06);
  if (!was_slow) {
    EXPECT_GT(file->stats().wait_seconds, before);
  }
  EXPECT_TRUE(file->Done(*ticket));
}

TEST_P(PageFileTest, ABatchIsDoneWithoutWaiting) {
  const auto file = Make(Options());
  const std::vector<uint32_t> pages = AllocateNow(file.get(), 0, 200);
  const PageMemory memory(200, kTestPageBytes);
  const auto ticket = file->StartWrite(Requests(pages, memory));
  ASSERT_TRUE(ticket.ok());
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!file->Done(*ticket)) ASSERT_LT(std::chrono::steady_clock::now(), deadline);
  EXPECT_TRUE(file->Wait(*ticket).ok());
  EXPECT_EQ(file->stats().wait_seconds, 0);
}

TEST_P(PageFileTest, TicketsMayBeWaitedForInAnyOrder) {
  const auto file = Make(Options());
  const std::vector<uint32_t> pages = AllocateNow(file.get(), 0, 64);
  const PageMemory memory(64, kTestPageBytes);
  for (size_t i = 0; i < 64; ++i) memory.Fill(i, pages[i]);
  ASSERT_TRUE(WriteNow(file.get(), Requests(pages, memory)).ok());
  const PageMemory copy(64, kTestPageBytes);
  std::vector<PageFile::Ticket> tickets;
  for (size_t i = 0; i < 64; ++i) {
    const PageIo io = {pages[i], copy[i]};
    const auto ticket = file->StartRead({&io, 1});
    ASSERT_TRUE(ticket.ok());
    tickets.push_back(*ticket);
  }
  for (size_t i = 64; i > 0; --i) ASSERT_TRUE(file->Wait(tickets[i - 1]).ok());
  for (size_t i = 0; i < 64; ++i) EXPECT_TRUE(copy.Holds(i, pages[i]));
}

TEST_P(PageFileTest, AnEmptyBatchIsDoneAtOnce) {
  const auto file = Make(Options());
  const auto ticket = file->StartRead({});
  ASSERT_TRUE(ticket.ok());
  EXPECT_TRUE(file->Done(*ticket));
  EXPECT_TRUE(file->Wait(*ticket).ok());
}

TEST_P(PageFileTest, WhatTheCallerMustNotAskForIsRefused) {
  const auto file = Make(Options());
  const std::vector<uint32_t> pages = AllocateNow(file.get(), 0, 2);
  const PageMemory memory(2, kTestPageBytes);
  const auto read_error = [&](uint32_t page, std::byte* to) {
    const PageIo io = {page, to};
    const auto ticket = file->StartRead({&io, 1});
    EXPECT_FALSE(ticket.ok());
    EXPECT_EQ(ticket.status().code(), StatusCode::kInvalidArgument);
    return ticket.status().message();
  };
  const auto write_error = [&](const std::vector<PageIo>& ios) {
    const auto ticket = file->StartWrite(ios);
    EXPECT_FALSE(ticket.ok());
    return ticket.status().message();
  };
  EXPECT_THAT(read_error(7, memory[0]), HasSubstr("cannot read page 7: it was never allocated"));
  EXPECT_THAT(read_error(9999, memory[0]), HasSubstr("never allocated"));
  EXPECT_THAT(read_error(pages[0], memory[0]), HasSubstr("it was never written"));
  ASSERT_TRUE(WriteNow(file.get(), Requests(pages, memory)).ok());
  EXPECT_THAT(read_error(pages[0], memory[0] + 512), HasSubstr("not aligned to 4096"));
  EXPECT_THAT(write_error({{pages[0], memory[0]}, {pages[0], memory[1]}}),
              HasSubstr("cannot write page 0: it is named twice"));
  const auto reading = file->StartRead(Requests(pages, memory));
  ASSERT_TRUE(reading.ok());
  EXPECT_THAT(write_error({{pages[1], memory[1]}}), HasSubstr("a read of it is under way"));
  ASSERT_TRUE(file->Wait(*reading).ok());
  const auto writing = file->StartWrite(Requests(pages, memory));
  ASSERT_TRUE(writing.ok());
  EXPECT_THAT(read_error(pages[1], memory[1]), HasSubstr("a write of it is under way"));
  ASSERT_TRUE(file->Wait(*writing).ok());
  EXPECT_EQ(file->Wait(*writing).code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(file->Wait({.id = 77}).message(), HasSubstr("ticket 77 was never given"));
}

TEST_P(PageFileTest, MayEndWhileReadsAreUnderWay) {
  const PageMemory memory(256, kTestPageBytes);  // outlives the file
  for (const auto delay : {milliseconds(0), milliseconds(30)}) {
    PageFileOptions options = Options();
    options.queue_depth = 3;
    options.faults = Watch(DiskCall::kRead, delay);
    seen_.clear();
    auto file = Make(options);
    const std::vector<uint32_t> pages = AllocateNow(file.get(), 0, 256);
    ASSERT_TRUE(WriteNow(file.get(), Requests(pages, memory)).ok());
    const auto start = std::chrono::steady_clock::now();
    for (size_t i = 0; i < 256; i += 2) {
      const PageIo io = {pages[i], memory[i]};
      ASSERT_TRUE(file->StartRead({&io, 1}).ok());
    }
    file.reset();
    EXPECT_GE(std::chrono::steady_clock::now() - start, delay);
    if (delay > milliseconds(0)) {
      EXPECT_LT(seen_.size(), 128u);
    }
  }
}

TEST_P(PageFileTest, NothingIsEverSeenInTheFolder) {
  const std::string folder = folder_.File("");
  for (const int refusal : {0, EOPNOTSUPP}) {
    int num_opened = 0;
    PageFileOptions options = Options();
    options.faults = [&](const DiskRequest& request) -> DiskFault {
      if (request.call != DiskCall::kOpen) return {};
      return {.error = ++num_opened == 1 ? refusal : 0};
    };
    auto file = Make(options);
    EXPECT_EQ(num_opened, refusal == 0 ? 1 : 2);
    const std::vector<uint32_t> pages = AllocateNow(file.get(), 0, 3);
    const PageMemory memory(3, kTestPageBytes);
    ASSERT_TRUE(WriteNow(file.get(), Requests(pages, memory)).ok());
    EXPECT_TRUE(file->direct());
    EXPECT_TRUE(std::filesystem::is_empty(folder));
    file.reset();
    EXPECT_TRUE(std::filesystem::is_empty(folder));
  }
}

TEST(PageFileOptionsTest, SizesThatDoNotFitAreRefused) {
  for (const size_t page_bytes : {size_t{0}, size_t{512}, size_t{5000}, (size_t{2} << 20) + 4096}) {
    const auto file = PageFile::Create({.page_bytes = page_bytes});
    ASSERT_FALSE(file.ok()) << page_bytes;
    EXPECT_EQ(file.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(file.status().message(), HasSubstr("multiple of 4096 bytes"));
  }
  const auto file =
      PageFile::Create({.page_bytes = kTestPageBytes, .cap_bytes = kTestSegmentBytes - 1});
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(file.status().message(), HasSubstr("a segment of 1048576 bytes; got 1048575"));
}

TEST(PageFileOptionsTest, AQueueWithoutDepthOrThreadsIsRefused) {
  for (const auto& [depth, num_threads] : {std::pair(0, 1), std::pair(1, 0), std::pair(2000, 1)}) {
    const auto file = PageFile::Create({.page_bytes = kTestPageBytes,
                                        .queue_depth = depth,
                                        .num_threads = num_threads,
                                        .buffering = Buffering::kAllow});
    ASSERT_FALSE(file.ok());
    EXPECT_EQ(file.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(file.status().message(), HasSubstr("1 to 64 waiting threads"));
  }
}

TEST(PageFileOptionsTest, AFolderThatDoesNotExistIsNamed) {
  const auto file = PageFile::Create({.folder = "/nonexistent/ebb", .page_bytes = kTestPageBytes});
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(file.status().message(), HasSubstr("in /nonexistent/ebb: No such file or directory"));
}

TEST(PageFileOptionsTest, WithoutAFolderPagesGoWhereTemporaryFilesGo) {
  const TempFolder folder;
  const char* before = std::getenv("TMPDIR");
  const std::string saved = before == nullptr ? "" : before;
  const PageFileOptions options = {.page_bytes = kTestPageBytes, .buffering = Buffering::kAllow};
  setenv("TMPDIR", folder.File("").c_str(), 1);
  const auto in_tmpdir = PageFile::Create(options);
  setenv("TMPDIR", "", 1);
  const auto elsewhere = PageFile::Create(options);
  if (before == nullptr) {
    unsetenv("TMPDIR");
  } else {
    setenv("TMPDIR", saved.c_str(), 1);
  }
  ASSERT_TRUE(in_tmpdir.ok()) << in_tmpdir.status().ToString();
  EXPECT_EQ((*in_tmpdir)->folder(), folder.File(""));
  ASSERT_TRUE(elsewhere.ok()) << elsewhere.status().ToString();
  EXPECT_EQ((*elsewhere)->folder(), "/var/tmp");
}

TEST(PageFileOptionsTest, AFileSystemInMemoryIsRefusedUnlessBufferingIsAllowed) {
  constexpr long kTmpfsMagic = 0x01021994;
  struct statfs info = {};
  if (statfs("/dev/shm", &info) != 0 || info.f_type != kTmpfsMagic) {
    EBB_SKIP_WITHOUT("dev_shm") << "/dev/shm is no tmpfs here";
  }
  PageFileOptions options = {.folder = "/dev/shm", .page_bytes = kTestPageBytes};
  const auto refused = PageFile::Create(options);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), StatusCode::kUnsupported);
  EXPECT_THAT(refused.status().message(), HasSubstr("direct I/O"));
  options.buffering = Buffering::kAllow;
  const auto file = PageFile::Create(options);
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  EXPECT_FALSE((*file)->direct());
  const std::vector<uint32_t> pages = AllocateNow(file->get(), 0, 5);
  const PageMemory memory(5, kTestPageBytes);
  for (size_t i = 0; i < 5; ++i) memory.Fill(i, i);
  ASSERT_TRUE(WriteNow(file->get(), Requests(pages, memory)).ok());
  const PageMemory copy(5, kTestPageBytes);
  ASSERT_TRUE(ReadNow(file->get(), Requests(pages, copy)).ok());
  for (size_t i = 0; i < 5; ++i) EXPECT_TRUE(copy.Holds(i, i));
}

}  // namespace
}  // namespace ebb

// Tests T1Edits by itself: which pages are read, in what order, and in how much memory.
#include "src/rows/t1_edits.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <memory>
#include <numeric>
#include <vector>

#include "gtest/gtest.h"
#include "src/io/page_file_for_test.h"
#include "tests/support/expect_ok.h"
#include "tests/support/temp_folder.h"

namespace ebb {
namespace {

using Access = T1Edits::Access;

constexpr size_t kEditedPageBytes = 64 << 10;
constexpr size_t kMaxBytes = size_t{4} << 20;  // two buffers of 32 pages

class T1EditsTest : public testing::Test {
 protected:
  // Returns units with these numbers of pages; addresses_ gets the addresses of all of them.
  std::vector<T1Edits::Unit> Units(std::span<const size_t> sizes, Access access) {
    std::vector<T1Edits::Unit> units;
    size_t page = 0;
    for (const size_t size : sizes) {
      T1Edits::Unit& unit = units.emplace_back();
      for (size_t i = 0; i < size; ++i, ++page) {
        unit.push_back({.file_page = pages_[page], .access = access, .address = &addresses_[page]});
      }
    }
    return units;
  }

  // Edits all units: gives each page a number of its own or, if the page is only read, expects that
  // it has this number.
  Status Run(const std::vector<T1Edits::Unit>& units, int number) {
    return edits_.Run(units, [&](size_t i) {
      order_.push_back(i);
      for (const T1Edits::Page& page : units[i]) {
        int* word = reinterpret_cast<int*>(*page.address);
        const int expected = number + static_cast<int>(page.file_page);
        if (page.access != Access::kRead) *word = expected;
        EXPECT_EQ(*word, expected) << page.file_page;
      }
    });
  }

  TempFolder folder_;
  FaultHook fault_;
  std::unique_ptr<PageFile> file_ = *PageFile::Create(
      {.folder = folder_.File(""),
       .page_bytes = kEditedPageBytes,
       .faults = [this](const auto& request) { return fault_ ? fault_(request) : DiskFault{}; }});
  std::vector<uint32_t> pages_ = AllocateNow(file_.get(), 0, 200);
  std::vector<std::byte*> addresses_ = std::vector<std::byte*>(200);
  std::vector<size_t> order_;
  T1Edits edits_{file_.get(), kMaxBytes};
};

TEST_F(T1EditsTest, WhatWasReservedIsTakenByNoRun) {
  const std::vector<size_t> sizes = {3, 30, 1, 20};
  ExpectOk(edits_.Reserve(30 * kEditedPageBytes, 54 * kEditedPageBytes));
  const size_t reserved = edits_.memory_bytes();
  EXPECT_EQ(reserved, kMaxBytes);
  ExpectOk(Run(Units(sizes, Access::kWrite), 1000));
  EXPECT_EQ(edits_.memory_bytes(), reserved);
  ExpectOk(Run(Units(sizes, Access::kRead), 1000));
  // A unit larger than a buffer gets one for itself, at any place in the order.
  const std::vector<size_t> with_long = {5, 40, 2};
  ExpectOk(edits_.Reserve(40 * kEditedPageBytes, 47 * kEditedPageBytes));
  EXPECT_EQ(edits_.memory_bytes(), size_t{4} << 20);  // whole huge pages of 2 MiB
  ExpectOk(Run(Units(with_long, Access::kReadAndWrite), 2000));
  ExpectOk(Run(Units(with_long, Access::kRead), 2000));
  // Small edits take small buffers.
  T1Edits small(file_.get(), kMaxBytes);
  ExpectOk(small.Reserve(2 * kEditedPageBytes, 3 * kEditedPageBytes));
  EXPECT_EQ(small.memory_bytes(), size_t{2} * (2 << 20));
}

TEST_F(T1EditsTest, UnitsOfAnySizeAreEditedInOrderAndReadBackAsTheyWereWritten) {
  const std::vector<size_t> sizes = {3, 0, 30, 1, 32, 20, 12, 33, 2, 40, 27};
  ExpectOk(Run(Units(sizes, Access::kWrite), 1000));
  ExpectOk(Run(Units(sizes, Access::kRead), 1000));
  ExpectOk(Run(Units(sizes, Access::kReadAndWrite), 5000));
  ExpectOk(Run(Units(sizes, Access::kRead), 5000));
  std::vector<size_t> in_order(sizes.size());
  std::iota(in_order.begin(), in_order.end(), 0);
  for (size_t run = 0; run < 4; ++run) {
    EXPECT_TRUE(std::equal(in_order.begin(), in_order.end(), order_.begin() + run * sizes.size()));
  }
  for (const std::byte* address : addresses_) EXPECT_EQ(address, nullptr);
  EXPECT_LE(edits_.memory_bytes(), kMaxBytes) << "long units leave nothing behind";
}

TEST_F(T1EditsTest, OnlyPagesThatAreWantedAreRead) {
  ExpectOk(Run(Units(std::vector<size_t>(50, 4), Access::kWrite), 1));
  EXPECT_EQ(file_->stats().bytes_read, 0u);
  ExpectOk(edits_.WaitForWrites());
  EXPECT_EQ(file_->stats().bytes_written, 200 * kEditedPageBytes);
  EXPECT_EQ(edits_.memory_bytes(), kMaxBytes);
  ExpectOk(Run(Units(std::vector<size_t>(10, 4), Access::kRead), 1));
  EXPECT_EQ(file_->stats().bytes_read, 40 * kEditedPageBytes);
  EXPECT_EQ(file_->stats().bytes_written, 200 * kEditedPageBytes);
}

TEST_F(T1EditsTest, ALateWriteHoldsUpOnlyWhatNeedsIt) {
  fault_ = [](const DiskRequest& request) -> DiskFault {
    return {.delay = std::chrono::milliseconds(request.call == DiskCall::kWrite ? 300 : 0)};
  };
  const auto start = std::chrono::steady_clock::now();
  ExpectOk(Run(Units(std::vector<size_t>(2, 10), Access::kWrite), 1));
  ExpectOk(edits_.Check());
  const PageMemory memory(1, kEditedPageBytes);
  const PageIo another = {pages_[20], memory[0]};
  ExpectOk(edits_.WaitFor({&another, 1}));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(300));
  const PageIo one = {pages_[19], memory[0]};
  ExpectOk(edits_.WaitFor({&one, 1}));
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(300));
  EXPECT_GT(edits_.TakeWaitSeconds(), 0);
  EXPECT_EQ(edits_.TakeWaitSeconds(), 0);
}

TEST_F(T1EditsTest, PagesThatTheDiskRefusedAreWrittenByTheNextCallThatNeedsThem) {
  fault_ = [](const DiskRequest& request) -> DiskFault {
    return {.error = request.call == DiskCall::kWrite ? EIO : 0};
  };
  const std::vector<size_t> sizes = {10};
  ExpectOk(Run(Units(sizes, Access::kWrite), 7));
  EXPECT_EQ(edits_.WaitForWrites().code(), StatusCode::kIo);
  EXPECT_EQ(edits_.Check().code(), StatusCode::kIo);
  EXPECT_EQ(Run(Units(sizes, Access::kRead), 7).code(), StatusCode::kIo);
  EXPECT_EQ(order_.size(), 1u) << "a page was edited that could not be read";
  fault_ = {};
  ExpectOk(Run(Units(sizes, Access::kRead), 7));
}

TEST_F(T1EditsTest, AReadThatFailsLeavesNoAddressBehind) {
  const std::vector<size_t> sizes(20, 10);
  ExpectOk(Run(Units(sizes, Access::kWrite), 3));
  ExpectOk(edits_.WaitForWrites());
  order_.clear();
  int num_reads = 0;
  fault_ = [&](const DiskRequest& request) -> DiskFault {
    return {.error = request.call == DiskCall::kRead && ++num_reads > 6 ? EIO : 0};
  };
  EXPECT_EQ(Run(Units(sizes, Access::kRead), 3).code(), StatusCode::kIo);
  EXPECT_GT(order_.size(), 0u);
  EXPECT_LT(order_.size(), 20u);
  for (const std::byte* address : addresses_) EXPECT_EQ(address, nullptr);
  fault_ = {};
  ExpectOk(Run(Units(sizes, Access::kRead), 3));
}

TEST_F(T1EditsTest, AForgottenPageIsWrittenNoMoreAndCanBeFreed) {
  fault_ = [](const DiskRequest& request) -> DiskFault {
    return {.error = request.call == DiskCall::kWrite ? EIO : 0};
  };
  ExpectOk(Run(Units(std::vector<size_t>{2}, Access::kWrite), 7));
  for (size_t page = 0; page < 2; ++page) {
    EXPECT_EQ(edits_.WaitForWrites().code(), StatusCode::kIo);
    edits_.Forget(pages_[page]);
    file_->Free(pages_[page]);
  }
  ExpectOk(edits_.WaitForWrites());
}

}  // namespace
}  // namespace ebb

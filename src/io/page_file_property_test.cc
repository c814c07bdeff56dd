// Compares a page file with a naive model: random allocations, frees, reads and writes, with many
// batches in flight at once.
#include <algorithm>
#include <cerrno>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "src/io/page_file.h"
#include "src/io/page_file_for_test.h"
#include "tests/support/skip.h"
#include "tests/support/temp_folder.h"

namespace ebb {
namespace {

constexpr size_t kSmallPageBytes = 4096;
constexpr size_t kSmallSegmentBytes = kSmallPageBytes * kPagesPerSegment;
constexpr size_t kMaxSegments = 12;
constexpr int kLayers = 5;
constexpr size_t kMaxBatch = 20;

struct ModelPage {
  int layer = 0;
  uint64_t seed = 0;  // determines its contents; 0: never written
};

struct Batch {
  PageFile::Ticket ticket;
  bool reads = false;
  std::vector<uint32_t> pages;
  PageMemory memory;
};

class RandomUse {
 public:
  RandomUse(PageFile* file, uint32_t seed) : file_(file), random_(seed) {}

  void Step(int step) {
    switch (random_() % 8) {
      case 0:
        Allocate();
        break;
      case 1:
        Free(step / 1000 % 2 == 0 ? 5 : 60);
        break;
      case 2:
      case 3:
        Start(DiskCall::kWrite);
        break;
      case 4:
      case 5:
      case 6:
        Start(DiskCall::kRead);
        break;
      default:
        if (!batches_.empty()) Finish(random_() % batches_.size());
    }
    while (batches_.size() > 6) Finish(random_() % batches_.size());
    CheckSpace();
  }

  void FinishAll(int num_steps) {
    while (!batches_.empty()) Finish(batches_.size() - 1);
    EXPECT_EQ(file_->stats().bytes_read, bytes_read_);
    EXPECT_EQ(file_->stats().bytes_written, bytes_written_);
    EXPECT_GT(num_refused_, 0);
    EXPECT_GT(num_reads_, num_steps);
    for (const auto& [page, contents] : pages_) file_->Free(page);
    EXPECT_EQ(file_->stats().num_pages, 0u);
    EXPECT_LT(file_->DiskBytes(), kSmallSegmentBytes);
  }

 private:
  [[nodiscard]] std::map<uint32_t, std::pair<int, size_t>> Segments() const {
    std::map<uint32_t, std::pair<int, size_t>> segments;  // layer and number of pages
    for (const auto& [page, contents] : pages_) {
      auto& [layer, num] =
          segments.try_emplace(page / kPagesPerSegment, contents.layer, 0).first->second;
      EXPECT_EQ(layer, contents.layer) << "a segment of two layers";
      ++num;
    }
    return segments;
  }

  void Allocate() {
    const int layer = static_cast<int>(random_() % kLayers);
    const size_t num_pages = 1 + random_() % 60;
    const auto segments = Segments();
    size_t num_available = (kMaxSegments - segments.size()) * kPagesPerSegment;
    for (const auto& [segment, use] : segments) {
      if (use.first == layer) num_available += kPagesPerSegment - use.second;
    }
    std::vector<uint32_t> pages;
    const Status status = file_->Allocate(layer, num_pages, &pages);
    ASSERT_EQ(status.ok(), num_pages <= num_available) << status.ToString();
    if (!status.ok()) {
      ++num_refused_;
      ASSERT_EQ(status.code(), StatusCode::kT1Full);
      return;
    }
    ASSERT_EQ(pages.size(), num_pages);
    for (const uint32_t page : pages) {
      ASSERT_TRUE(pages_.emplace(page, ModelPage{.layer = layer}).second) << "given twice";
    }
  }

  [[nodiscard]] std::vector<uint32_t> Choose(size_t max, bool (RandomUse::*fits)(uint32_t) const) {
    std::vector<uint32_t> all;
    for (const auto& [page, contents] : pages_) {
      if ((this->*fits)(page)) all.push_back(page);
    }
    const size_t num = std::min(all.size(), 1 + random_() % max);
    if (random_() % 2 == 0) {
      std::shuffle(all.begin(), all.end(), random_);
    } else if (num > 0) {  // chooses adjacent pages, or nearly adjacent ones
      const size_t first = random_() % (all.size() - num + 1);
      std::rotate(all.begin(), all.begin() + static_cast<ptrdiff_t>(first), all.end());
    }
    all.resize(num);
    return all;
  }

  [[nodiscard]] bool IsIdle(uint32_t page) const {
    return !read_.contains(page) && IsNotWritten(page);
  }
  [[nodiscard]] bool IsNotWritten(uint32_t page) const { return !written_.contains(page); }
  [[nodiscard]] bool CanRead(uint32_t page) const {
    return IsNotWritten(page) && pages_.at(page).seed != 0;
  }

  void Free(size_t max) {
    for (const uint32_t page : Choose(max, &RandomUse::IsIdle)) {
      file_->Free(page);
      pages_.erase(page);
    }
  }

  void Start(DiskCall call) {
    const bool reads = call == DiskCall::kRead;
    Batch batch = {.reads = reads,
                   .pages = Choose(kMaxBatch, reads ? &RandomUse::CanRead : &RandomUse::IsIdle),
                   .memory = PageMemory(kMaxBatch, kSmallPageBytes)};
    for (size_t i = 0; i < batch.pages.size(); ++i) {
      const uint32_t page = batch.pages[i];
      if (!reads) batch.memory.Fill(i, pages_[page].seed = ++last_seed_);
      (reads ? read_ : written_).insert(page);
    }
    const std::vector<PageIo> ios = Requests(batch.pages, batch.memory);
    const auto ticket = reads ? file_->StartRead(ios) : file_->StartWrite(ios);
    ASSERT_TRUE(ticket.ok()) << ticket.status().ToString();
    batch.ticket = *ticket;
    (reads ? bytes_read_ : bytes_written_) += ios.size() * kSmallPageBytes;
    batches_.push_back(std::move(batch));
  }

  void Finish(size_t index) {
    std::swap(batches_[index], batches_.back());
    const Batch& batch = batches_.back();
    const Status status = file_->Wait(batch.ticket);
    ASSERT_TRUE(status.ok()) << status.ToString();
    for (size_t i = 0; i < batch.pages.size(); ++i) {
      const uint32_t page = batch.pages[i];
      if (batch.reads) {
        ++num_reads_;
        ASSERT_TRUE(batch.memory.Holds(i, pages_.at(page).seed)) << "page " << page;
        read_.erase(read_.find(page));
      } else {
        written_.erase(page);
      }
    }
    batches_.pop_back();
  }

  void CheckSpace() const {
    const PageFileStats stats = file_->stats();
    ASSERT_EQ(stats.num_pages, pages_.size());
    ASSERT_EQ(stats.file_bytes, Segments().size() * kSmallSegmentBytes);
    ASSERT_LE(stats.peak_file_bytes, kMaxSegments * kSmallSegmentBytes);
  }

  PageFile* file_;
  std::mt19937 random_;
  std::map<uint32_t, ModelPage> pages_;
  std::vector<Batch> batches_;
  std::multiset<uint32_t> read_;     // pages being read
  std::multiset<uint32_t> written_;  // pages being written; each once
  uint64_t last_seed_ = 0;
  size_t bytes_read_ = 0;
  size_t bytes_written_ = 0;
  int num_refused_ = 0;
  int num_reads_ = 0;  // pages read
};

class PageFilePropertyTest : public testing::TestWithParam<IoEngine> {
 protected:
  void Run(int num_steps, FaultHook faults) {
    const TempFolder folder;
    const PageFileOptions options = {.folder = folder.File(""),
                                     .page_bytes = kSmallPageBytes,
                                     .cap_bytes = kMaxSegments * kSmallSegmentBytes,
                                     .engine = GetParam(),
                                     .verify_checksums = true,
                                     .faults = std::move(faults)};
    const std::string reason = WhyNot(options);
    if (!reason.empty()) EBB_SKIP_WITHOUT("direct_io") << reason;
    const auto file = PageFile::Create(options);
    ASSERT_TRUE(file.ok());
    RandomUse use(file->get(), 5);
    for (int step = 0; step < num_steps && !HasFatalFailure(); ++step) use.Step(step);
    if (!HasFatalFailure()) use.FinishAll(num_steps);
  }
};

INSTANTIATE_TEST_SUITE_P(Engines, PageFilePropertyTest,
                         testing::Values(IoEngine::kUring, IoEngine::kThreads), EngineName);

TEST_P(PageFilePropertyTest, RandomUseAgreesWithANaiveModel) { Run(10000, nullptr); }

TEST_P(PageFilePropertyTest, RandomShortAndLateTransfersChangeNothing) {
  std::mt19937 random(17);
  Run(2000, [&random](const DiskRequest& request) -> DiskFault {
    if (request.call != DiskCall::kRead && request.call != DiskCall::kWrite) return {};
    switch (random() % 8) {
      case 0:
        return {.error = EINTR};
      case 1:
        return {.max_bytes = 1 + random() % request.num_bytes};
      case 2:
        return {.delay = std::chrono::microseconds(random() % 300)};
      default:
        return {};
    }
  });
}

}  // namespace
}  // namespace ebb

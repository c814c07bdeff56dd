#include "src/rows/t1_stage.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace ebb {
namespace {

// SlowLoader loads pages that contain their number. The number arrives only in Wait(); until then
// the memory has garbage.
class SlowLoader final : public PageLoader {
 public:
  SlowLoader() : PageLoader(nullptr) {}
  [[nodiscard]] size_t page_bytes() const override { return sizeof(uint32_t); }
  [[nodiscard]] size_t page_end() const override { return size_t{1} << 20; }
  void Reserve(size_t /*num_pages*/) override {}
  Result<Batch> Start(std::span<const PageIo> pages, const DeviceEvent& /*last_read*/) override {
    ++num_started;
    for (const PageIo& page : pages) std::memset(page.memory, 0xff, page_bytes());
    EBB_RETURN_IF_ERROR(next_status_);
    under_way_[++num_batches_].assign(pages.begin(), pages.end());
    return Batch{.number = num_batches_};
  }
  Status Wait(const Batch& batch) override {
    for (const PageIo& page : under_way_[batch.number]) {
      std::memcpy(page.memory, &page.page, sizeof(page.page));
    }
    under_way_.erase(batch.number);
    return OkStatus();
  }
  Status Finish() override {
    under_way_.clear();
    return OkStatus();
  }
  void SetStatus(Status status) { next_status_ = std::move(status); }

  int num_started = 0;

 private:
  std::map<uint64_t, std::vector<PageIo>> under_way_;  // by number of the batch
  uint64_t num_batches_ = 0;
  Status next_status_;
};

class T1StageTest : public testing::TestWithParam<int> {  // the parameter is the number of layers
 protected:
  // Returns layers of pages numbered from `first` on; layer i has i % 2 + 1 pages.
  std::vector<T1Stage::Pages> Layers(uint32_t first) {
    std::vector<T1Stage::Pages> layers(GetParam());
    for (int layer = 0; layer < GetParam(); ++layer) {
      for (uint32_t i = 0; i <= static_cast<uint32_t>(layer % 2); ++i) {
        const uint32_t page = first + 10 * layer + i;
        layers[layer].push_back({.page = page, .address = &addresses_[page]});
      }
    }
    return layers;
  }
  void ReadStep(uint32_t first, bool ends_layers = true) {
    const std::vector<T1Stage::Pages> layers = Layers(first);
    ASSERT_TRUE(stage_.Begin(layers).ok());
    for (int layer = 0; layer < GetParam(); ++layer) {
      stage_.StageLayer(layer, 0);
      for (const StagedPage& page : layers[layer]) {
        uint32_t found = 0;
        std::memcpy(&found, *page.address, sizeof(found));
        EXPECT_EQ(found, page.page) << "layer " << layer;
      }
      stage_.ReleaseLayer(layer);
      if (ends_layers) stage_.EndLayer(layer);
    }
  }

  std::map<uint32_t, std::byte*> addresses_;  // by page id
  SlowLoader* const loader_ = new SlowLoader;
  T1Stage stage_{std::unique_ptr<PageLoader>(loader_)};
};

TEST_P(T1StageTest, EveryLayersPagesAreThereWhenItIsAttendedTo) {
  for (const bool ends_layers : {false, true}) {
    loader_->num_started = 0;
    for (int step = 0; step < 5; ++step) {
      ReadStep(0, ends_layers);
      EXPECT_TRUE(stage_.End().ok());
    }
    // Each step but the first finds its first layers being loaded; the sixth step's first layers
    // were loaded ahead too.
    const int ahead = GetParam() == 1 ? 0 : ends_layers ? 2 : 1;
    EXPECT_EQ(loader_->num_started, 5 * GetParam() + ahead);
    stage_.Forget();
  }
}

TEST_P(T1StageTest, OfLayersReadAheadTheSecondMayHaveChangedAlone) {
  std::vector<T1Stage::Pages> layers = Layers(0);
  for (uint32_t step = 0; step < 5; ++step) {
    const uint32_t page = 500 + step;
    layers.back() = {{.page = page, .address = &addresses_[page]}};
    ASSERT_TRUE(stage_.Begin(layers).ok());
    for (int layer = 0; layer < GetParam(); ++layer) {
      stage_.StageLayer(layer, 0);
      for (const StagedPage& staged : layers[layer]) {
        uint32_t found = 0;
        std::memcpy(&found, *staged.address, sizeof(found));
        EXPECT_EQ(found, staged.page) << "step " << step << ", layer " << layer;
      }
      stage_.EndLayer(layer);
    }
    EXPECT_TRUE(stage_.End().ok());
  }
}

TEST_P(T1StageTest, AStepThatWasEndedTwiceLeavesNothingToTheNext) {
  for (int step = 0; step < 3; ++step) {
    ReadStep(0);
    EXPECT_TRUE(stage_.End().ok());
    EXPECT_TRUE(stage_.End().ok());
  }
}

TEST_P(T1StageTest, PagesThatChangedAreReadAgain) {
  for (uint32_t step = 0; step < 5; ++step) {
    ReadStep(1000 * (step / 2));
    EXPECT_TRUE(stage_.End().ok());
    if (step == 3) stage_.Forget();
  }
}

TEST_P(T1StageTest, AStepThatIsGivenUpLeavesNothingToTheNext) {
  ReadStep(0);
  ReadStep(1000);
  EXPECT_TRUE(stage_.End().ok());
  ReadStep(1000);
}

TEST_P(T1StageTest, AReadAheadThatFailsIsTriedAgainByTheNextStep) {
  for (const bool fails_again : {false, true}) {
    ASSERT_TRUE(stage_.Begin(Layers(0)).ok());
    for (int layer = 0; layer < GetParam(); ++layer) {
      stage_.StageLayer(layer, 0);
      if (layer + 2 == GetParam()) loader_->SetStatus(OutOfMemory("no more"));
    }
    EXPECT_TRUE(stage_.End().ok());
    loader_->SetStatus(fails_again ? OutOfMemory("no more") : OkStatus());
    if (!fails_again) {
      ReadStep(0);
      EXPECT_TRUE(stage_.End().ok());
      stage_.Forget();
    }
  }
  ASSERT_TRUE(stage_.Begin(Layers(0)).ok());
  stage_.StageLayer(0, 0);
  EXPECT_FALSE(stage_.End().ok());
}

INSTANTIATE_TEST_SUITE_P(Layers, T1StageTest, testing::Values(1, 2, 3, 4));

}  // namespace
}  // namespace ebb

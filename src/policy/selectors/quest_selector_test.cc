#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <set>

#include "ebb/state.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/policy/selectors.h"
#include "src/policy/selectors/row_list_for_test.h"

namespace ebb {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr ModelShape kShape = {
    .num_layers = 4, .num_q_heads = 4, .num_kv_heads = 2, .head_dim = 8, .embed_dim = 6};
constexpr size_t kKeyFloats = size_t(kShape.num_kv_heads) * kShape.head_dim;

// Keys at random, all of them kept, so that the bounds can be worked out from nothing.
class QuestTest : public ::testing::TestWithParam<Granularity> {
 protected:
  void Make(const Budget& budget, int page) {
    selector_ = MakeQuestSelector({.shape = kShape,
                                   .granularity = GetParam(),
                                   .budget = budget,
                                   .params = {.numbers = {{"page", page}}}});
    page_ = page;
  }
  [[nodiscard]] int num_groups() const { return kShape.NumGroups(GetParam()); }

  void Step(int num_tokens) {
    StepSignals step = {.num_tokens = num_tokens};
    std::vector<std::vector<float>> keys(kShape.num_layers);
    for (auto& of_layer : keys) {
      of_layer.resize(num_tokens * kKeyFloats);
      for (float& x : of_layer) x = std::round(256 * normal_(random_)) / 256;  // exact in f16
      step.keys.push_back(of_layer);
    }
    std::vector<Position> positions(num_tokens);
    for (int t = 0; t < num_tokens; ++t) {
      std::vector<std::vector<float>> of_token;
      for (const auto& of_layer : keys) {
        of_token.emplace_back(of_layer.begin() + t * kKeyFloats,
                              of_layer.begin() + (t + 1) * kKeyFloats);
      }
      keys_.push_back(of_token);
      positions[t] = static_cast<Position>(keys_.size()) - 1;
    }
    for (int group = 0; group < num_groups(); ++group) {
      selector_->Append(group, positions);
      selector_->ObserveGroup(group, {.num_new_rows = num_tokens}, step);
    }
  }

  std::vector<std::vector<uint32_t>> Select(int layer, std::span<const float> q) {
    std::vector<std::vector<uint32_t>> rows(kShape.num_kv_heads);
    const size_t floats = q.size() / kShape.num_kv_heads;
    for (int h = 0; h < kShape.num_kv_heads; ++h) {
      const auto of_head = q.subspan(h * floats, floats);
      constexpr int kParts = 3;
      for (int part = 0; part < kParts; ++part) selector_->Rank(layer, h, of_head, part, kParts);
      // The room that there is inside a step.
      std::vector<RowRange> ranges;
      ranges.reserve((keys_.size() + 1) / 2);
      const RowRange* const at = ranges.data();
      selector_->Select(layer, h, of_head, &ranges);
      EXPECT_EQ(ranges.data(), at);
      rows[h] = RowList(ranges);
    }
    return rows;
  }

  std::vector<float> Query() {
    std::vector<float> q(size_t(kShape.num_q_heads) * kShape.head_dim);
    for (float& x : q) x = normal_(random_);
    return q;
  }

  // From the paper's words: the newest page, and of the others those with the highest bounds.
  std::vector<uint32_t> Expected(int layer, int kv_head, std::span<const float> q,
                                 size_t num_pages_read) {
    const size_t num_pages = (keys_.size() + page_ - 1) / page_;
    std::set<size_t> pages = {num_pages - 1};
    const int ratio = kShape.QueryHeadsPerKvHead(0);
    for (int head = kv_head * ratio; head < (kv_head + 1) * ratio; ++head) {
      std::vector<std::pair<double, size_t>> bounds;
      for (size_t page = 0; page + 1 < num_pages; ++page) {
        double bound = 0;
        for (int c = 0; c < kShape.head_dim; ++c) {
          double most = -1e30;
          for (size_t row = page * page_; row < (page + 1) * page_; ++row) {
            const double x = q[head * kShape.head_dim + c];
            most = std::max(most, x * keys_[row][layer][kv_head * kShape.head_dim + c]);
          }
          bound += most;
        }
        bounds.emplace_back(-bound, page);
      }
      std::ranges::sort(bounds);
      for (size_t i = 0; i + 1 < num_pages_read; ++i) pages.insert(bounds[i].second);
    }
    std::vector<uint32_t> rows;
    for (const size_t page : pages) {
      for (size_t row = page * page_; row < std::min((page + 1) * page_, keys_.size()); ++row) {
        rows.push_back(static_cast<uint32_t>(row));
      }
    }
    return rows;
  }

  std::unique_ptr<Selector> selector_;
  std::vector<std::vector<std::vector<float>>> keys_;  // [tokens][layers][kv heads, head_dim]
  size_t page_ = 16;
  std::mt19937 random_{3};
  std::normal_distribution<float> normal_;
};

TEST_P(QuestTest, ReadsTheNewestPageAndThoseWithTheHighestBounds) {
  Make({Budget::Unit::kRows, 64}, 16);
  Step(100);
  for (int i = 0; i < 60; ++i) {
    Step(1);
    const std::vector<float> q = Query();
    for (int layer = 2; layer < kShape.num_layers; ++layer) {
      const auto rows = Select(layer, q);
      for (int h = 0; h < kShape.num_kv_heads; ++h) {
        ASSERT_EQ(rows[h], Expected(layer, h, q, 4)) << i << " " << layer << " " << h;
      }
    }
  }
}

TEST_P(QuestTest, TheFirstTwoLayersAndWhatFitsAreReadInFull) {
  Make({Budget::Unit::kRows, 64}, 16);
  Step(64);
  const std::vector<float> q = Query();
  for (int layer = 0; layer < kShape.num_layers; ++layer) {
    EXPECT_THAT(Select(layer, q), ElementsAre(IsEmpty(), IsEmpty()));
  }
  Step(1);
  for (int layer = 0; layer < kShape.num_layers; ++layer) {
    EXPECT_EQ(Select(layer, q)[0].empty(), layer < 2) << layer;
  }
}

TEST_P(QuestTest, AtLeastThreePagesAreReadAndAShareIsOfTheRowsSoFar) {
  Make({Budget::Unit::kRows, 1}, 8);
  Step(80);
  std::vector<float> q = Query();
  EXPECT_EQ(Select(2, q)[1], Expected(2, 1, q, 3));
  Make({Budget::Unit::kPercent, 50}, 8);
  keys_.clear();
  Step(80);
  EXPECT_EQ(Select(3, q)[0], Expected(3, 0, q, 5));
  Step(80);
  EXPECT_EQ(Select(3, q)[0], Expected(3, 0, q, 10));
}

// With pages of a row ranges are as many as they can be.
TEST_P(QuestTest, PagesOfAnySizeAreRead) {
  for (const int page : {1, 2, 5, 64}) {
    for (const int percent : {12, 50, 90}) {
      Make({Budget::Unit::kPercent, static_cast<double>(percent)}, page);
      keys_.clear();
      for (int i = 0; i < 40; ++i) {
        Step(1 + 7 * page * (i == 0 ? 1 : 0));
        const std::vector<float> q = Query();
        const size_t num_read = std::max<size_t>(3, (keys_.size() * percent + 99) / 100 / page);
        if (num_read >= (keys_.size() + page - 1) / page) continue;
        ASSERT_EQ(Select(2, q)[1], Expected(2, 1, q, num_read)) << page << " " << percent;
      }
    }
  }
}

TEST_P(QuestTest, ARollBackTakesTheNewestPagesAway) {
  Make({Budget::Unit::kRows, 1}, 8);
  Step(80);
  std::vector<uint32_t> kept(64);
  std::iota(kept.begin(), kept.end(), 0);
  for (int group = 0; group < num_groups(); ++group) selector_->Retain(group, kept);
  keys_.resize(64);
  Step(20);
  const std::vector<float> q = Query();
  EXPECT_EQ(Select(2, q)[0], Expected(2, 0, q, 3));
}

TEST_P(QuestTest, RowsThatWentAreNotNamed) {
  Make({Budget::Unit::kRows, 1}, 8);
  Step(80);
  std::vector<uint32_t> kept;
  for (uint32_t row = 0; row < 80; ++row) {
    if (row % 3 != 0 && row / 8 != 4) kept.push_back(row);
  }
  for (int group = 0; group < num_groups(); ++group) selector_->Retain(group, kept);
  const std::vector<float> q = Query();
  for (const auto& rows : Select(2, q)) {
    ASSERT_FALSE(rows.empty());
    EXPECT_TRUE(std::ranges::is_sorted(rows));
    EXPECT_LT(rows.back(), kept.size());
    EXPECT_EQ(rows.back(), kept.size() - 1);
  }
  for (int group = 0; group < num_groups(); ++group) selector_->Retain(group, {});
  EXPECT_THAT(Select(2, q), ElementsAre(IsEmpty(), IsEmpty()));
  keys_.clear();
  Step(40);
  EXPECT_EQ(Select(2, q)[0], Expected(2, 0, q, 3));
}

TEST_P(QuestTest, ComesBackFromAFile) {
  Make({Budget::Unit::kRows, 1}, 8);
  Step(75);
  StateWriter to;
  ASSERT_TRUE(selector_->SaveState(&to).ok());
  Make({Budget::Unit::kRows, 1}, 8);
  StateReader from(to.bytes(), "a selector");
  ASSERT_TRUE(selector_->LoadState(&from).ok());
  EXPECT_TRUE(from.End().ok());
  Step(1);
  const std::vector<float> q = Query();
  EXPECT_EQ(Select(3, q)[1], Expected(3, 1, q, 3));
  StateReader cut(to.bytes().first(to.bytes().size() / 2), "a selector");
  EXPECT_EQ(selector_->LoadState(&cut).code(), StatusCode::kCorrupt);
}

TEST(QuestSelector, NamesItsRuleAndNeedsKeys) {
  const auto selector = MakeQuestSelector({.shape = kShape});
  EXPECT_EQ(selector->Name(), "quest:rows=1024,page=16,keys=f16");
  EXPECT_TRUE(selector->Needs().keys);
  EXPECT_EQ(selector->Needs().mass, MassNeed::kNone);
}

INSTANTIATE_TEST_SUITE_P(Granularities, QuestTest,
                         ::testing::Values(Granularity::kToken, Granularity::kLayer,
                                           Granularity::kHead),
                         [](const auto& info) { return std::string(GranularityName(info.param)); });

}  // namespace
}  // namespace ebb

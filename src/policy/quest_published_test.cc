// Quest's selector against the pages that the project's own functions chose
// (tests/golden/published/quest.py): for each query head, highest bound first.
#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <string>

#include "ebb/policy.h"
#include "gtest/gtest.h"
#include "src/policy/golden_signals_for_test.h"
#include "src/policy/selectors/row_list_for_test.h"

namespace ebb {
namespace {

using Json = nlohmann::json;

// Returns the query of the kv head's query heads.
std::vector<float> Query(uint64_t seed, uint64_t layer, uint64_t kv_head, uint64_t position) {
  const uint64_t per_kv = kGoldenShape.QueryHeadsPerKvHead(0);
  std::vector<float> query;
  for (uint64_t head = kv_head * per_kv; head < (kv_head + 1) * per_kv; ++head) {
    for (int c = 0; c < kGoldenShape.head_dim; ++c) {
      const auto channel = static_cast<uint64_t>(c);
      query.push_back(static_cast<float>(GoldenQuery(seed, layer, head, position, channel)));
    }
  }
  return query;
}

// A cache from which nothing goes, and which shows the selector what an engine shows it.
class Cache {
 public:
  Cache(Policy policy, uint64_t seed) : policy_(std::move(policy)), seed_(seed) {}

  void Append(int num_tokens) {
    std::vector<Position> positions(num_tokens);
    std::iota(positions.begin(), positions.end(), num_rows_);
    for (int group = 0; group < num_groups(); ++group) selector().Append(group, positions);
    num_rows_ += num_tokens;
  }

  // The newest tokens' keys, which come once all layers have chosen.
  void Observe(int num_tokens) {
    const size_t floats = size_t(kGoldenShape.num_kv_heads) * kGoldenShape.head_dim;
    std::vector<std::vector<float>> keys(kGoldenShape.num_layers,
                                         std::vector<float>(num_tokens * floats));
    StepSignals step = {.first_position = num_rows_ - num_tokens, .num_tokens = num_tokens};
    for (int layer = 0; layer < kGoldenShape.num_layers; ++layer) {
      for (size_t i = 0; i < keys[layer].size(); ++i) {
        keys[layer][i] = static_cast<float>(
            GoldenKey(seed_, layer, i / kGoldenShape.head_dim % kGoldenShape.num_kv_heads,
                      step.first_position + i / floats, i % kGoldenShape.head_dim));
      }
      step.keys.push_back(keys[layer]);
    }
    for (int group = 0; group < num_groups(); ++group) {
      selector().ObserveGroup(group, {.num_rows = num_rows_, .num_new_rows = num_tokens}, step);
    }
  }

  // With the query of the newest token.
  std::vector<uint32_t> Select(int layer, int kv_head) {
    const auto q = Query(seed_, layer, kv_head, num_rows_ - 1);
    selector().Rank(layer, kv_head, q, 0, 1);
    std::vector<RowRange> ranges;
    selector().Select(layer, kv_head, q, &ranges);
    return RowList(ranges);
  }

  [[nodiscard]] int num_rows() const { return num_rows_; }

 private:
  Selector& selector() { return *policy_.selector; }
  [[nodiscard]] int num_groups() const { return kGoldenShape.NumGroups(policy_.granularity); }

  Policy policy_;
  const uint64_t seed_;
  int num_rows_ = 0;
};

const Json& QuestCases() {
  static const Json cases = Json::parse(
      std::ifstream(std::string(EBB_SOURCE_DIR) + "/tests/golden/published_quest.json"));
  return cases;
}

Policy MakeQuest(const Json& c) {
  PolicySpec spec;
  EXPECT_TRUE(ParsePolicy(c["policy"].get<std::string>(), &spec).ok());
  spec.budget = *ParseBudget(c["budget"].get<std::string>());
  auto policy = MakePolicy(spec, {.shape = kGoldenShape, .row_bytes = 64, .max_tokens = 4096});
  EXPECT_TRUE(policy.ok()) << policy.status().ToString();
  return *std::move(policy);
}

// The rows of the pages that a kv head's query heads chose; none where all are read. The newest
// page is always read here: where the published code ranked it too and did not choose it, it takes
// the place of the last one.
std::vector<uint32_t> RowsOf(const Json& heads, int kv_head, uint32_t num_rows,
                             uint32_t page_size) {
  const uint32_t num_pages = (num_rows + page_size - 1) / page_size;
  std::set<uint32_t> pages = {num_pages - 1};
  const int per_kv = kGoldenShape.QueryHeadsPerKvHead(0);
  for (int head = kv_head * per_kv; head < (kv_head + 1) * per_kv; ++head) {
    auto chosen = heads[head].get<std::vector<uint32_t>>();
    if (chosen.size() == num_pages) return {};
    if (std::ranges::find(chosen, num_pages - 1) == chosen.end()) chosen.pop_back();
    pages.insert(chosen.begin(), chosen.end());
  }
  std::vector<uint32_t> rows;
  for (const uint32_t page : pages) {
    for (uint32_t row = page * page_size; row < std::min((page + 1) * page_size, num_rows); ++row) {
      rows.push_back(row);
    }
  }
  return rows;
}

class QuestPublished : public ::testing::TestWithParam<size_t> {};

TEST_P(QuestPublished, ReadsThePagesThatThePublishedCodeChooses) {
  const Json& c = QuestCases()[GetParam()];
  SCOPED_TRACE(c["published"].get<std::string>());
  Cache cache(MakeQuest(c), c["seed"].get<uint64_t>());
  cache.Append(c["prompt"].get<int>());
  cache.Observe(c["prompt"].get<int>());
  ASSERT_FALSE(c["selections"].empty());
  for (const Json& selection : c["selections"]) {
    const int num_rows = selection["rows"];
    SCOPED_TRACE(std::to_string(num_rows) + " rows");
    while (cache.num_rows() < num_rows - 1) {
      cache.Append(1);
      cache.Observe(1);
    }
    cache.Append(1);
    ASSERT_EQ(cache.num_rows(), num_rows);
    ASSERT_EQ(selection["layers"].size(), size_t(kGoldenShape.num_layers));
    for (int layer = 0; layer < kGoldenShape.num_layers; ++layer) {
      const Json& heads = selection["layers"][layer];
      for (int kv_head = 0; kv_head < kGoldenShape.num_kv_heads; ++kv_head) {
        const auto expected = heads == "dense" ? std::vector<uint32_t>()
                                               : RowsOf(heads, kv_head, num_rows, c["page"]);
        EXPECT_EQ(cache.Select(layer, kv_head), expected) << "layer " << layer << ", " << kv_head;
      }
    }
    cache.Observe(1);
  }
}

INSTANTIATE_TEST_SUITE_P(QuestCases, QuestPublished,
                         ::testing::Range(size_t{0}, QuestCases().size()));

}  // namespace
}  // namespace ebb

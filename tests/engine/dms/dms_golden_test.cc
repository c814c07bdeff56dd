// A trained model's marks against what PyTorch makes of the file (tests/golden/dms-marks.json,
// written by training/dms/golden.py): every decision, the rows that are left, and the text.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "tests/engine/engine_fixture.h"

namespace ebb {
namespace {

EBB_CPU_ONLY_FILE("tests/engine/devices/backend_device_test.cc has marked rows over devices");

using Json = nlohmann::json;

constexpr char kModelPath[] = EBB_SOURCE_DIR "/training/dms/pebble-dms.gguf";
constexpr char kGoldenPath[] = EBB_SOURCE_DIR "/tests/golden/dms-marks.json";

const Json& Golden() {
  static const Json kGolden = Json::parse(std::ifstream(kGoldenPath));
  return kGolden;
}

// The weights as PyTorch has them: of products in 16 bits more decisions near zero would turn.
std::shared_ptr<const Model> TrainedModel() {
  static const std::shared_ptr<const Model> kModel = [] {
    auto model = Model::Load({.path = kModelPath, .weights = WeightMode::kDequantize});
    EXPECT_TRUE(model.ok()) << model.status().ToString();
    return *model;
  }();
  return kModel;
}

bool GoldenBit(const std::string& hexadecimal, size_t token) {
  uint8_t byte = 0;
  const char* begin = hexadecimal.data() + token / 8 * 2;
  std::from_chars(begin, begin + 2, byte, 16);
  return ((byte >> (7 - token % 8)) & 1) != 0;
}

class DecisionCounter {
 public:
  explicit DecisionCounter(const Json& text) : text_(text) {
    for (const Json& place : text["near"]) {
      near_.insert({place[0].get<int>(), place[1].get<int>(), place[2].get<int>()});
    }
  }

  // Holds the logits of the session's last step against the text's bits.
  void Count(const Session& session) {
    const ModelShape& shape = TrainedModel()->shape();
    const StepSignals& step = session.last_signals();
    ASSERT_EQ(step.eviction_logits.size(), static_cast<size_t>(shape.num_layers));
    for (int layer = 0; layer < shape.num_layers; ++layer) {
      for (int i = 0; i < step.num_tokens * shape.num_kv_heads; ++i) {
        const int head = i % shape.num_kv_heads;
        const int token = step.first_position + i / shape.num_kv_heads;
        const float logit = step.eviction_logits[layer][i];
        const bool expected = GoldenBit(text_["bits"][layer][head].get<std::string>(), token);
        ++decisions;
        marked += expected ? 1 : 0;
        if ((logit > 0) == expected) continue;
        if (near_.contains({layer, head, token})) {
          ++turned_near_zero;
        } else {
          ADD_FAILURE() << "layer " << layer << ", kv head " << head << ", token " << token
                        << ": logit " << logit << ", expected " << (expected ? "above" : "below")
                        << " 0";
        }
      }
    }
  }

  int64_t decisions = 0;
  int64_t marked = 0;
  int64_t turned_near_zero = 0;

 private:
  const Json& text_;
  std::set<std::tuple<int, int, int>> near_;
};

std::vector<std::vector<int>> VisibleCounts(const Session& session) {
  const ModelShape& shape = TrainedModel()->shape();
  std::vector<std::vector<int>> counts(shape.num_layers);
  for (int group = 0; group < shape.num_layers * shape.num_kv_heads; ++group) {
    counts[group / shape.num_kv_heads].push_back(
        static_cast<int>(session.visible_positions(group).size()));
  }
  return counts;
}

Token Likeliest(const Session& session) {
  const auto logits = session.logits();
  return static_cast<Token>(std::ranges::max_element(logits) - logits.begin());
}

// Steps of 0 stand for decode.
class DmsGolden : public testing::TestWithParam<int> {};

TEST_P(DmsGolden, DecidesAsPyTorchDoes) {
  auto engine = Engine::Create(TrainedModel(), {.threads = 1, .kv_type = RowType::kF32});
  ASSERT_TRUE(engine.ok()) << engine.status().ToString();
  ASSERT_EQ(TrainedModel()->eviction_window(), Golden()["window"].get<int>());
  int64_t decisions = 0, marked = 0, turned = 0;
  for (const Json& text : Golden()["texts"]) {
    const auto tokens = text["tokens"].get<std::vector<Token>>();
    const auto likeliest = text["likeliest"].get<std::vector<Token>>();
    auto session = Open(**engine, PolicySpec{.name = "dms"});
    DecisionCounter counter(text);
    const size_t size = GetParam() == 0 ? 1 : GetParam();
    for (size_t done = 0; done < tokens.size(); done += size) {
      const auto step = std::span(tokens).subspan(done, std::min(size, tokens.size() - done));
      const bool decode = GetParam() == 0 && done > 0;
      const StepOutcome outcome = decode ? session->Decode(step[0]) : session->Prefill(step);
      ASSERT_TRUE(outcome.ok()) << outcome.status.ToString();
      counter.Count(*session);
      ASSERT_EQ(Likeliest(*session), likeliest[done + step.size() - 1]) << "at " << done;
    }
    EXPECT_EQ(VisibleCounts(*session), text["visible"].get<std::vector<std::vector<int>>>());
    decisions += counter.decisions;
    marked += counter.marked;
    turned += counter.turned_near_zero;
  }
  // Prefill goes in steps of at most the window, of which the signals are the last one's.
  if (GetParam() <= TrainedModel()->eviction_window()) {
    EXPECT_GT(decisions, 100'000);
  }
  EXPECT_GT(marked, decisions / 2);
  EXPECT_LE(turned * 10'000, decisions);
  RecordProperty("turned_near_zero", static_cast<int>(turned));
}

INSTANTIATE_TEST_SUITE_P(, DmsGolden, testing::Values(0, 1, 13, 17, 512), [](const auto& info) {
  return info.param == 0 ? std::string("Decode") : fmt::format("StepsOf{}", info.param);
});

}  // namespace
}  // namespace ebb

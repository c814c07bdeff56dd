// Two small random models that mark rows, one of each layout, against what the published code makes
// of them (tests/golden/published_dms.json): the decisions' logits, the rows that queries read, and
// the logits of next tokens.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/engine/engine_fixture.h"

namespace ebb {
namespace {

EBB_CPU_ONLY_FILE("tests/engine/devices/backend_device_test.cc has marked rows over devices");

using Json = nlohmann::json;

constexpr char kFolder[] = EBB_SOURCE_DIR "/tests/golden/";

const Json& Published(int index) {
  static const Json kPublished =
      Json::parse(std::ifstream(std::string(kFolder) + "published_dms.json"));
  return kPublished[index];
}

std::vector<Position> RowsOfBits(const std::string& hexadecimal) {
  std::vector<Position> rows;
  for (size_t i = 0; i + 1 < hexadecimal.size(); i += 2) {
    uint8_t byte = 0;
    std::from_chars(hexadecimal.data() + i, hexadecimal.data() + i + 2, byte, 16);
    for (int bit = 0; bit < 8; ++bit) {
      if (((byte >> (7 - bit)) & 1) != 0) rows.push_back(static_cast<Position>(i / 2 * 8 + bit));
    }
  }
  return rows;
}

struct PublishedCase {
  int model;
  int step;  // tokens of a step; 1 decodes behind the first
};

class DmsPublished : public testing::TestWithParam<PublishedCase> {};

TEST_P(DmsPublished, ReadsTheRowsThatThePublishedCodeReads) {
  const Json& golden = Published(GetParam().model);
  auto model = Model::Load(
      {.path = kFolder + golden["model"].get<std::string>(), .weights = WeightMode::kDequantize});
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  auto engine = Engine::Create(*model, {.threads = 1, .kv_type = RowType::kF32});
  ASSERT_TRUE(engine.ok()) << engine.status().ToString();
  auto session = Open(**engine, PolicySpec{.name = "dms"});
  const ModelShape& shape = (*model)->shape();
  ASSERT_EQ((*model)->eviction_window(), golden["window"].get<int>());
  const auto tokens = golden["tokens"].get<std::vector<Token>>();
  int logits_seen = 0, rows_gone = 0;
  for (size_t done = 0; done < tokens.size();) {
    const size_t size = std::min<size_t>(GetParam().step, tokens.size() - done);
    std::vector<std::vector<Position>> before;
    for (int group = 0; group < shape.num_layers * shape.num_kv_heads; ++group) {
      const auto visible = session->visible_positions(group);
      before.emplace_back(visible.begin(), visible.end());
    }
    const auto step = std::span(tokens).subspan(done, size);
    const StepOutcome outcome =
        size == 1 && done > 0 ? session->Decode(step[0]) : session->Prefill(step);
    ASSERT_TRUE(outcome.ok()) << outcome.status.ToString();
    const StepSignals& signals = session->last_signals();
    for (int layer = 0; layer < shape.num_layers; ++layer) {
      for (int head = 0; head < shape.num_kv_heads; ++head) {
        // What the first query of the step read: the rows that were there, and its own.
        std::vector<Position>& rows = before[layer * shape.num_kv_heads + head];
        rows.push_back(static_cast<Position>(done));
        ASSERT_EQ(rows, RowsOfBits(golden["read"][layer][head][done].get<std::string>()))
            << "layer " << layer << ", kv head " << head << ", query " << done;
        rows_gone += static_cast<int>(done + 1 - rows.size());
        for (int i = 0; i < signals.num_tokens; ++i) {
          const auto expected = golden["decisions"][layer][head][signals.first_position + i];
          ASSERT_NEAR(signals.eviction_logits[layer][i * shape.num_kv_heads + head],
                      expected.get<float>(), 0.02)
              << "token " << signals.first_position + i;
        }
      }
    }
    done += size;
    const std::string position = fmt::format("{}", done - 1);
    if (!golden["logits"].contains(position)) continue;
    const auto expected = golden["logits"][position].get<std::vector<float>>();
    ASSERT_EQ(session->logits().size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_NEAR(session->logits()[i], expected[i], 1e-3) << "at " << position;
    }
    ++logits_seen;
  }
  EXPECT_GT(logits_seen, 0);
  EXPECT_GT(rows_gone, 0);
}

INSTANTIATE_TEST_SUITE_P(, DmsPublished,
                         testing::Values(PublishedCase{0, 1}, PublishedCase{0, 20},
                                         PublishedCase{1, 1}, PublishedCase{1, 20}),
                         [](const auto& info) {
                           return fmt::format("{}StepsOf{}",
                                              info.param.model == 0 ? "Query" : "Adapter",
                                              info.param.step);
                         });

}  // namespace
}  // namespace ebb

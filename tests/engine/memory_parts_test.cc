// Holds what `fit` counts for the parts of an engine against the engine's own accounting.
#include <gtest/gtest.h>

#include "ebb/fit.h"
#include "tests/engine/engine_fixture.h"
#include "tests/support/engine/library_models.h"
#include "tests/support/numbers.h"

namespace ebb {
namespace {

EBB_CPU_ONLY_FILE("it names its devices");

struct Parts {
  FitBytes counted;
  CacheAccounting taken;
  size_t t0_peak = 0;
};

// Reads the prompt, then decodes the rest of the text.
Parts ReadAndDecode(const std::shared_ptr<const Model>& model, const TieredOptions& options,
                    PolicySpec policy, std::span<const Token> text, size_t prompt_tokens) {
  policy.tiers = options.shares;
  const SessionOptions session_options = {.policy = policy,
                                          .context = static_cast<int>(text.size())};
  Parts parts;
  const auto engine = Engine::Create(model, options);
  EXPECT_TRUE(engine.ok()) << engine.status().ToString();
  const auto fit_model = FitModelOf(*model);
  EXPECT_TRUE(fit_model.ok()) << fit_model.status().ToString();
  if (!engine.ok() || !fit_model.ok()) return parts;
  const auto counted = FitRequestInto(
      *fit_model, FitRequestOf(*model, options, session_options, static_cast<int>(prompt_tokens)));
  EXPECT_TRUE(counted.ok()) << counted.status().ToString();
  if (counted.ok()) parts.counted = *counted;
  const auto session = Open(**engine, session_options);
  ExpectOk(session->Prefill(text.first(prompt_tokens)));
  for (const Token token : text.subspan(prompt_tokens)) ExpectOk(session->Decode(token));
  parts.taken = session->accounting();
  parts.t0_peak = (*engine)->arena_accounting().peak_bytes;
  return parts;
}

// 16 extents of 16 pages hold 256 rows of each of 16 streams, in f32.
RandomGgufOptions WideRows() {
  return {.num_layers = 8,
          .embed_dim = 128,
          .num_q_heads = 2,
          .num_kv_heads = 2,
          .head_dim = 256,
          .feed_forward_dim = 128,
          .context = 4096};
}
EngineOptions WideOptions() { return {.threads = 1, .kv_type = RowType::kF32}; }

class WindowedRows : public testing::TestWithParam<int> {};

// The chunks of a prompt leave checkpoints, whose windows stay while the next chunk is read.
TEST_P(WindowedRows, TakeNoMoreThanFitCounts) {
  RandomGgufOptions shape = WideRows();
  shape.family = "gemma3";
  shape.sliding_window = GetParam();
  shape.window_layers.assign(shape.num_layers, true);
  const auto model = RandomModel(shape);
  const Parts parts = ReadAndDecode(model, {WideOptions()}, {}, RandomTokens(shape, 2100, 3),
                                    /*prompt_tokens=*/2080);
  EXPECT_LE(parts.t0_peak, parts.counted.t0);
  // Messages would leave four checkpoints more.
  EXPECT_GE(2 * parts.t0_peak, parts.counted.t0);
  EXPECT_LE(parts.taken.table_bytes, parts.counted.tables);
}

INSTANTIATE_TEST_SUITE_P(Windows, WindowedRows, testing::Values(16, 32, 64, 200, 600));

struct TableCase {
  std::string name;
  std::optional<TierSetting> tiers;
  Granularity granularity = Granularity::kToken;
};
class Tables : public testing::TestWithParam<TableCase> {};

TEST_P(Tables, TakeWhatFitCounts) {
  PolicySpec policy = {.name = "attention", .granularity = GetParam().granularity};
  policy.window = 16;
  policy.interval = 8;
  TieredOptions options = {{.threads = 1}};
  if (GetParam().tiers.has_value()) options.Set(*GetParam().tiers);
  const Parts parts =
      ReadAndDecode(DeepModel(), options, GetParam().tiers.has_value() ? policy : PolicySpec(),
                    SomeTokens(1700), 1500);
  EXPECT_LE(parts.taken.table_bytes, parts.counted.tables);
  // Scores and mass are counted too.
  EXPECT_GE(3 * parts.taken.table_bytes, parts.counted.tables);
}

INSTANTIATE_TEST_SUITE_P(
    Tiers, Tables,
    testing::Values(
        TableCase{"full", {}},
        TableCase{"host",
                  TierSetting{.engine = {.t1 = T1Place::kHost}, .shares = {.t0_share = 0.5}}},
        TableCase{"heads",
                  TierSetting{.engine = {.t1 = T1Place::kHost}, .shares = {.t0_share = 0.5}},
                  Granularity::kHead},
        TableCase{"t2",
                  TierSetting{.engine = {.t1 = T1Place::kNone, .t2_type = CompressedType::kInt8},
                              .shares = {.t2_share = 0.5}},
                  Granularity::kLayer}),
    [](const auto& info) { return info.param.name; });

// Buffers have a quarter to spare, which the system gives once it is read into.
TEST(StagingOfAFile, TakesWhatFitCounts) {
  const auto model = RandomModel(WideRows());
  TieredOptions options = {WideOptions()};
  options.Set({.engine = {.t1 = T1Place::kFile}, .shares = {.t0_share = 0.5}});
  const PolicySpec policy = {.name = "attention", .window = 16, .interval = 8};
  const std::vector<Token> text = RandomTokens(WideRows(), 2100, 3);
  const Parts wholly = ReadAndDecode(model, options, policy, text, 100);
  EXPECT_GE(wholly.taken.staging_bytes, wholly.counted.staging);
  EXPECT_LE(wholly.taken.staging_bytes, wholly.counted.staging * 5 / 4 + 4 * kMiB);
  options.shares->t1_read = T1Read::kSelect;
  const Parts selected = ReadAndDecode(model, options, {}, text, 100);
  EXPECT_LE(selected.taken.staging_bytes, selected.counted.staging);
  EXPECT_GE(selected.taken.staging_bytes * 5 / 4, selected.counted.staging);
}

TEST(StagingOnADevice, TakesWhatFitCounts) {
  const auto model = RandomModel(WideRows(), /*for_device=*/true);
  const std::vector<Token> text = RandomTokens(WideRows(), 1100, 3);
  for (const T1Place t1 : {T1Place::kHost, T1Place::kFile}) {
    TieredOptions options = {{.threads = 1, .device = *ParseDevice("ggml-cpu")}};
    options.Set({.engine = {.t1 = t1}, .shares = {.t0_share = 0.5}});
    const Parts parts = ReadAndDecode(
        model, options, {.name = "attention", .window = 16, .interval = 8}, text, 100);
    EXPECT_LE(parts.taken.staging_bytes, parts.counted.staging + parts.counted.staging_on_host);
    EXPECT_GE(parts.taken.staging_bytes + 8 * kMiB, parts.counted.staging);
  }
}

TEST(RecurrentStates, TakeNoMoreThanFitCounts) {
  const TempFolder folder;
  const std::string path = folder.File("model.gguf");
  ExpectOk(WriteLibraryModel({.architecture = "lfm2", .sizes = {{"context_length", 4096}}}, path));
  const auto model = Model::Load({.path = path});
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  for (const size_t prompt : {40, 600, 2660}) {
    const std::vector<Token> text(prompt + 8, 5);
    const Parts parts = ReadAndDecode(*model, {{.threads = 1}}, {}, text, prompt);
    EXPECT_LE(parts.taken.state_bytes, parts.counted.states) << prompt;
    EXPECT_GE(3 * parts.taken.state_bytes, parts.counted.states) << prompt;
  }
}

}  // namespace
}  // namespace ebb

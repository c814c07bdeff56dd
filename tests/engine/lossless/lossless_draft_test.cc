// What the drafting sequence of a lossless session is given: exact rows, and the signals of steps
// that it did not compute.
#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tests/engine/engine_fixture.h"
#include "tests/engine/lossless/knowing_guess.h"
#include "tests/engine/lossless/lossless_internals.h"
#include "tests/support/gguf_edit.h"

namespace ebb {
namespace {

EBB_CPU_ONLY_FILE(
    "tests/engine/devices/backend_lossless_test.cc has lossless sessions over devices");

SessionOptions Lossless(const PolicySpec& policy, const LosslessOptions& options) {
  return {.policy = policy, .lossless = options};
}

// Bytes of the row at a position.
std::vector<std::byte> RowAt(SequenceCache& cache, int layer, int head, Position position) {
  cache.FindAddresses();
  const auto positions = cache.views().View(layer, head).positions;
  const auto found = std::ranges::find(positions, position);
  if (found == positions.end()) return {};
  const auto row = cache.views().Row(layer, head, static_cast<uint32_t>(found - positions.begin()));
  const size_t bytes = cache.layout().format().RowStride();
  std::vector<std::byte> both(row.key, row.key + bytes);
  both.insert(both.end(), row.value, row.value + bytes);
  return both;
}

TEST(LosslessDraft, HasTheRowsOfTheFullCacheOnceTheyAreVerified) {
  const std::vector<Token> text = SomeTokens(64, 3);
  auto engine = MakeEngine();
  auto session = Open(*engine, Lossless({.name = "streaming", .sinks = 2, .window = 20},
                                        {.draft_min = 8, .draft_max = 8}));
  ExpectOk(session->Prefill(SomeTokens(40)));
  for (size_t i = 0; i < text.size(); ++i) ExpectOk(session->Decode(text[i], Knowing(text, i + 1)));
  EXPECT_GT(session->lossless_report()->accepted, 40);
  SequenceCache& draft = Internals::SequenceOf(*session).cache();
  SequenceCache& store = LosslessOf(*session).store().cache();
  for (int layer = 0; layer < SmallModel()->shape().num_layers; ++layer) {
    for (int head = 0; head < SmallModel()->shape().num_kv_heads; ++head) {
      for (const Position position : draft.positions(0)) {
        EXPECT_EQ(RowAt(draft, layer, head, position), RowAt(store, layer, head, position))
            << "layer " << layer << ", head " << head << ", position " << position;
      }
    }
  }
}

// By position, what a step showed of the first and the last group.
struct Shown {
  std::map<Position, float> mass[2];
  std::vector<float> keys;
  std::vector<float> queries;
};

std::vector<Shown> ShownBy(bool lossless, Granularity granularity) {
  std::vector<Shown> steps;
  auto engine = MakeEngine();
  SessionOptions options;
  if (lossless) {
    options =
        Lossless({.name = "streaming", .sinks = 2, .window = 20}, {.draft_min = 1, .draft_max = 1});
  }
  options.policy.granularity = granularity;
  options.extra_signals = {.mass = MassNeed::kSummed, .num_recent_queries = 3, .keys = true};
  const int last = SmallModel()->shape().NumGroups(granularity) - 1;
  options.on_signals = [&](int group, std::span<const Position> positions,
                           const GroupSignals& signals, const StepSignals& step) {
    if (group == 0) {
      steps.push_back({.mass = {},
                       .keys = {step.keys[1].begin(), step.keys[1].end()},
                       .queries = {step.recent_queries[1].begin(), step.recent_queries[1].end()}});
    }
    for (const int which : {0, 1}) {
      if (group != (which == 0 ? 0 : last) || signals.mass.empty()) continue;
      for (size_t row = 0; row < positions.size(); ++row) {
        steps.back().mass[which][positions[row]] = signals.mass[row];
      }
    }
  };
  auto session = Open(*engine, options);
  ExpectOk(session->Prefill(SomeTokens(40)));
  for (const Token token : SomeTokens(30, 3)) ExpectOk(session->Decode(token));
  return steps;
}

TEST(LosslessDraft, SeesTheSignalsOfStepsThatTheStoreComputed) {
  for (const Granularity granularity : {Granularity::kToken, Granularity::kHead}) {
    const std::vector<Shown> full = ShownBy(false, granularity);
    const std::vector<Shown> lossless = ShownBy(true, granularity);
    ASSERT_EQ(lossless.size(), full.size());
    for (size_t step = 0; step < full.size(); ++step) {
      EXPECT_EQ(lossless[step].keys, full[step].keys) << step;
      EXPECT_EQ(lossless[step].queries, full[step].queries) << step;
      for (const int which : {0, 1}) {
        for (const auto& [position, mass] : lossless[step].mass[which]) {
          EXPECT_EQ(mass, full[step].mass[which].at(position)) << step << ", " << position;
        }
      }
    }
    EXPECT_EQ(lossless.back().mass[1].size(), 23U);
  }
}

// Guesses of which one in six is wrong take the draft back again and again: its ledger and its
// scores are then those of the rows that it has, and each score is the mass that its row was shown.
TEST(LosslessDraft, ScoresAndLedgerGoBackWithIt) {
  const int vocab_size = SmallModel()->shape().vocab_size;
  const TierSetting tiers = {.engine = {.t1 = T1Place::kHost, .t2_type = CompressedType::kInt8},
                             .shares = {.t0_share = 1, .t2_share = 0.4, .evict_share = 0.3}};
  SessionOptions options =
      Lossless({.name = "attention", .window = 16, .interval = 8, .tiers = tiers.shares},
               {.draft_min = 5, .draft_max = 24});
  options.ledger = SessionOptions::Record::kYes;
  std::map<Position, double> mass;  // of a row, for each query head, by decode steps
  options.on_signals = [&](int, std::span<const Position> positions, const GroupSignals& signals,
                           const StepSignals& step) {
    mass.erase(mass.lower_bound(step.first_position), mass.end());
    for (size_t row = 0; row < positions.size(); ++row) {
      double& sum = mass[positions[row]];
      if (step.kind == StepKind::kDecode) sum += signals.mass[row];
    }
  };
  auto engine = MakeEngine({.threads = 1, .tiers = tiers.engine});
  auto session = Open(*engine, options);
  Sequence& draft = Internals::SequenceOf(*session);
  ExpectOk(session->Prefill(SomeTokens(40)));
  std::vector<Token> text;  // of which the last part is looked up
  for (const uint64_t seed : {3, 4, 5, 3}) {
    for (const Token token : SomeTokens(60, seed)) text.push_back(token);
  }
  for (size_t i = 0; i < text.size(); ++i) {
    const Guess guess = [&, next = i + 1](std::span<const float>) mutable -> std::optional<Token> {
      if (next >= text.size()) return std::nullopt;
      const Token token = text[next++];
      return next % 6 == 0 ? (token + 1) % vocab_size : token;
    };
    ExpectOk(session->Decode(text[i], guess));
    if (i == 150) ExpectOk(session->TruncateTo(session->next_position() - 33));

    const std::span<const Position> positions = draft.cache().positions(0);
    const std::span<const float> scores = draft.settler().ScoresOf(0);
    ASSERT_EQ(scores.size(), positions.size()) << i;
    for (size_t row = 0; row < scores.size(); ++row) {
      const double shown = mass.at(positions[row]) / SmallModelOptions().num_layers /
                           SmallModelOptions().num_q_heads;
      ASSERT_NEAR(scores[row], shown, 1e-4) << i << ", position " << positions[row];
    }
    const Ledger& ledger = *session->ledger();
    ASSERT_EQ(ledger.next_position(), draft.next()) << i;
    std::vector<Tier> expected(draft.next(), Tier::kT3);
    for (size_t row = 0; row < positions.size(); ++row) {
      expected[positions[row]] = draft.cache().tiers(0)[row];
    }
    ASSERT_TRUE(std::ranges::equal(ledger.tiers(0), expected)) << i;
  }
  const auto by_step = session->ledger()->RowsByStep();
  for (const Tier tier : {Tier::kT0, Tier::kT2, Tier::kT3}) {
    EXPECT_GT(session->ledger()->rows(tier), 0);
    EXPECT_EQ(by_step.back()[static_cast<size_t>(tier)], session->ledger()->rows(tier));
  }
  const LosslessReport& report = *session->lossless_report();
  EXPECT_GT(report.accepted, 100);
  EXPECT_LT(report.accepted, report.drafted - 20);
}

// What a step showed of its tokens, and of the mass that its queries gave the rows.
struct Step {
  Position first = 0;
  int num_tokens = 0;
  std::map<std::string, std::vector<float>> of_tokens;
  std::vector<float> queries;
  std::map<Position, float> mass;
};

// Of the decode steps of a text that repeats itself.
std::vector<Step> StepsOfRepetitions(const SessionOptions& session_options) {
  std::vector<Step> steps;
  SessionOptions options = session_options;
  options.extra_signals = {.mass = MassNeed::kSummed,
                           .num_recent_queries = 3,
                           .hidden_layers = {1},
                           .keys = true,
                           .keys_before_rope = true,
                           .values = true};
  options.on_signals = [&](int group, std::span<const Position> positions,
                           const GroupSignals& signals, const StepSignals& step) {
    if (group != 0 || step.kind == StepKind::kPrefill) return;
    const auto all = [](std::span<const float> of) { return std::vector(of.begin(), of.end()); };
    steps.push_back({.first = step.first_position,
                     .num_tokens = step.num_tokens,
                     .of_tokens = {{"keys", all(step.keys[1])},
                                   {"keys before rope", all(step.keys_before_rope[1])},
                                   {"values", all(step.values[1])},
                                   {"hidden", all(step.hidden[0])}},
                     .queries = all(step.recent_queries[1]),
                     .mass = {}});
    for (size_t row = 0; row < positions.size(); ++row) {
      steps.back().mass[positions[row]] = signals.mass[row];
    }
  };
  auto engine = MakeEngine();
  auto session = Open(*engine, options);
  ExpectOk(session->Prefill(SomeTokens(40)));
  std::vector<Token> text;
  for (int round = 0; round < 6; ++round) {
    for (const Token token : SomeTokens(30, 3)) text.push_back(token);
  }
  for (size_t i = 0; i < text.size(); ++i) ExpectOk(session->Decode(text[i], Knowing(text, i + 1)));
  return steps;
}

TEST(LosslessDraft, SeesOfALookedUpStepWhatStepsOfOneTokenShow) {
  const std::vector<Step> full = StepsOfRepetitions({});
  const std::vector<Step> lossless = StepsOfRepetitions(
      Lossless({.name = "streaming", .sinks = 2, .window = 20}, {.draft_min = 2}));
  int looked_up = 0;
  for (const Step& step : lossless) {
    if (step.num_tokens == 1) continue;  // of the draft itself, which has other logits
    if (step.first + step.num_tokens > full.back().first + 1) continue;  // beyond the text
    looked_up += step.num_tokens;
    const auto singles = std::span(full).subspan(step.first - full.front().first, step.num_tokens);
    for (const auto& [name, values] : step.of_tokens) {
      std::vector<float> expected;
      for (const Step& single : singles) {
        const std::vector<float>& of_one = single.of_tokens.at(name);
        expected.insert(expected.end(), of_one.begin(), of_one.end());
      }
      EXPECT_EQ(values, expected) << name << " from " << step.first;
    }
    // A shorter step leaves some of the draft's own.
    if (step.num_tokens >= 3) {
      EXPECT_EQ(step.queries, singles.back().queries) << step.first;
    }
    for (const auto& [position, mass] : step.mass) {
      float sum = 0;
      int seen_by = 0;
      for (const Step& single : singles) {
        const auto found = single.mass.find(position);
        if (found == single.mass.end()) continue;
        sum += found->second;
        ++seen_by;
      }
      EXPECT_NEAR(mass, sum / static_cast<float>(seen_by), 1e-5) << step.first << ", " << position;
    }
  }
  EXPECT_GT(looked_up, 0);  // how many follows the clock
}

constexpr Token kPoison = 11;

// Returns a model whose logits after one token are not finite.
std::shared_ptr<const Model> PoisonedModel() {
  RandomGgufOptions options = SmallModelOptions();
  options.embeddings = RandomGgufOptions::Embeddings::kUntied;
  const TempFolder folder;
  const std::string path = folder.File("model.gguf");
  ExpectOk(WriteRandomGguf(options, path));
  auto file = GgufEdit::Open(path);
  EXPECT_TRUE(file.ok()) << file.status().ToString();
  ggml_tensor* const embeddings = file->tensor("token_embd.weight");
  EXPECT_EQ(embeddings->type, GGML_TYPE_F32);
  std::fill_n(static_cast<float*>(embeddings->data) + kPoison * embeddings->ne[0],
              embeddings->ne[0], std::numeric_limits<float>::infinity());
  ExpectOk(file->Save(path));
  auto model = Model::Load({.path = path});
  EXPECT_TRUE(model.ok()) << model.status().ToString();
  return *model;
}

TEST(LosslessDraft, AGuessAfterWhichLogitsAreNotFiniteCostsItsDraftAlone) {
  const auto model = PoisonedModel();
  std::vector<Token> text = SomeTokens(60, 3);
  std::ranges::replace(text, kPoison, kPoison + 1);
  const std::span<const Token> prompt = std::span(text).first(20);
  auto engine = MakeEngineOf(model, {.threads = 1});
  auto full = Open(*engine);
  ExpectOk(full->Prefill(prompt));
  for (size_t i = prompt.size(); i + 1 < text.size(); ++i) ExpectOk(full->Decode(text[i]));
  for (const auto verify : {LosslessOptions::Verify::kExact, LosslessOptions::Verify::kFast}) {
    auto session = Open(
        *engine, Lossless({.name = "streaming", .sinks = 2, .window = 20},
                          {.verify = verify, .draft_min = 6, .draft_max = 6, .looks_up = false}));
    ExpectOk(session->Prefill(prompt));
    int num_poisoned = 0;
    for (size_t i = prompt.size(); i + 1 < text.size(); ++i) {
      const Guess guess = [&, next = i + 1](std::span<const float>) mutable {
        const Token guessed = next == i + 1 ? text[next] : kPoison;
        if (guessed == kPoison) ++num_poisoned;
        ++next;
        return std::optional<Guessed>(guessed);
      };
      ExpectOk(session->Decode(text[i], guess));
    }
    EXPECT_GT(num_poisoned, 5);
    EXPECT_GT(session->lossless_report()->accepted, 5);
    if (verify == LosslessOptions::Verify::kExact) {
      EXPECT_EQ(session->logits_hash(), full->logits_hash());
    }
    const StepOutcome poisoned = session->Decode(kPoison);
    EXPECT_EQ(poisoned.status.code(), StatusCode::kCorrupt) << "a token that the caller chose";
  }
}

}  // namespace
}  // namespace ebb

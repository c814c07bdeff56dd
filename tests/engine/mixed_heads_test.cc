// A model whose layers have different numbers of kv heads, through all that happens to rows.
#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>
#include <ostream>

#include "tests/engine/dms/dms_fixture.h"
#include "tests/engine/engine_fixture.h"
#include "tests/engine/sessions/session_fixture.h"
#include "tests/support/skip.h"

namespace ebb {
namespace {

constexpr int kMixedPromptTokens = 60;
constexpr int kMixedDecodeTokens = 200;
const std::vector<int> kKvHeads = {2, 6, 1, 3};
constexpr int kStreams = 12;

RandomGgufOptions MixedOptions(int eviction_window = 0, Marks marks = Marks::kAdapter) {
  RandomGgufOptions options = SmallModelOptions();
  options.family = "deci";
  options.num_layers = static_cast<int>(kKvHeads.size());
  options.kv_heads_by_layer = kKvHeads;
  options.eviction_window = eviction_window;
  options.marks = marks;
  return options;
}

std::shared_ptr<const Model> MixedModel() {
  static const std::shared_ptr<const Model> kModel = RandomModel(MixedOptions());
  return kModel;
}

const std::vector<Token>& MixedText() {
  static const std::vector<Token> kText = SomeTokens(kMixedPromptTokens + kMixedDecodeTokens);
  return kText;
}

void ReadMixed(Session& session) {
  ExpectOk(session.Prefill(std::span(MixedText()).first(kMixedPromptTokens)));
}

void DecodeMixed(Session& session, int from, int to) {
  for (int i = from; i < to; ++i) ExpectOk(session.Decode(MixedText()[kMixedPromptTokens + i]));
}

// (layer, kv head) pairs of each group.
std::vector<int> StreamsOfGroups(Granularity granularity) {
  if (granularity == Granularity::kToken) return {kStreams};
  return granularity == Granularity::kLayer ? kKvHeads : std::vector<int>(kStreams, 1);
}

TEST(MixedHeads, TheModelSaysWhichLayerHasHowMany) {
  const ModelShape& shape = MixedModel()->shape();
  EXPECT_EQ(shape.kv_heads_by_layer, kKvHeads);
  EXPECT_EQ(shape.num_kv_heads, 6);
  EXPECT_EQ(shape.NumStreams(), kStreams);
  EXPECT_TRUE(SmallModel()->shape().kv_heads_by_layer.empty());
}

// "deci" is what libllama takes such files as; its decoder is that of llama.
TEST(MixedHeads, ALlamaWithAnArrayIsADeciWithTheSameWeights) {
  RandomGgufOptions options = MixedOptions();
  options.family = "deci";
  std::vector<uint64_t> hashes;
  for (const auto& model : {MixedModel(), RandomModel(options)}) {
    auto engine = MakeEngineOf(model);
    auto session = Open(*engine);
    ReadMixed(*session);
    DecodeMixed(*session, 0, 40);
    hashes.push_back(session->logits_hash());
  }
  EXPECT_EQ(hashes[0], hashes[1]);
}

TEST(MixedHeads, SignalsAreOfTheHeadsThatAGroupHas) {
  for (const Granularity granularity :
       {Granularity::kToken, Granularity::kLayer, Granularity::kHead}) {
    for (const MassNeed need : {MassNeed::kSummed, MassNeed::kPerKvHead, MassNeed::kPerQueryHead}) {
      SCOPED_TRACE(testing::Message() << GranularityName(granularity) << int(need));
      auto engine = MakeEngineOf(MixedModel(), {.threads = 2});
      SessionOptions options;
      options.policy = {.name = "full", .granularity = granularity};
      options.extra_signals = {.mass = need, .mass_in_prefill = true, .keys = true, .values = true};
      const std::vector<int> streams = StreamsOfGroups(granularity);
      int num_calls = 0;
      options.on_signals = [&](int group, std::span<const Position> positions,
                               const GroupSignals& signals, const StepSignals& step) {
        ++num_calls;
        const int layers = granularity == Granularity::kToken ? 4 : 1;
        int first = 0, layer = 0;
        while (granularity == Granularity::kHead && first + kKvHeads[layer] <= group) {
          first += kKvHeads[layer++];
        }
        const int query_heads =
            granularity == Granularity::kHead ? 6 / kKvHeads[layer] : 6 * layers;
        const int heads = need == MassNeed::kSummed      ? 1
                          : need == MassNeed::kPerKvHead ? streams[group]
                                                         : query_heads;
        ASSERT_EQ(signals.num_mass_heads, heads);
        ASSERT_EQ(signals.num_layers_counted, layers);
        ASSERT_EQ(signals.mass.size(), heads * positions.size());
        const double sum = std::accumulate(signals.mass.begin(), signals.mass.end(), 0.0);
        ASSERT_NEAR(sum, double(query_heads) * step.num_tokens, 1e-4 * sum);
        for (int i = 0; i < 4; ++i) {
          ASSERT_EQ(step.keys[i].size(), size_t(step.num_tokens) * kKvHeads[i] * 64);
          ASSERT_EQ(step.values[i].size(), step.keys[i].size());
          ASSERT_TRUE(std::ranges::none_of(step.keys[i], [](float x) { return x == 0; }));
        }
      };
      auto session = Open(*engine, options);
      ReadMixed(*session);
      DecodeMixed(*session, 0, 10);
      EXPECT_EQ(num_calls, 11 * static_cast<int>(streams.size()));
    }
  }
}

struct MixedCase {
  std::string name;
  PolicySpec policy;
  bool is_exact = false;  // the bits of the full cache
  std::optional<EngineTiers> tiers = {};
};
std::ostream& operator<<(std::ostream& out, const MixedCase& c) { return out << c.name; }

std::vector<MixedCase> MixedCases() {
  std::vector<MixedCase> cases;
  for (const Granularity granularity :
       {Granularity::kToken, Granularity::kLayer, Granularity::kHead}) {
    const std::string at = "_" + std::string(GranularityName(granularity));
    const auto add = [&](const std::string& name, PolicySpec policy, bool is_exact) {
      policy.granularity = granularity;
      cases.push_back({name + at, policy, is_exact});
    };
    const auto add_tiered = [&](const std::string& name, const TierSetting& tiers, bool is_exact) {
      add(name, {.name = "attention", .window = 8, .interval = 8, .tiers = tiers.shares}, is_exact);
      cases.back().tiers = tiers.engine;
    };
    add("full", {.name = "full"}, true);
    for (const char* name : {"h2o", "tova", "streaming", "rkv", "lazy_eviction", "quest", "vatp",
                             "raas", "thinkv_original"}) {
      add(name, {.name = name, .budget = *ParseBudget("100")}, false);
    }
    for (const char* name : {"attention", "combined"}) {
      add(name, {.name = name, .budget = *ParseBudget("+60"), .window = 16, .interval = 8}, false);
    }
    for (const char* name : {"lag_kv", "kv_key", "segment_hs"}) {
      add(name, {.name = name, .budget = *ParseBudget("+60"), .interval = 8}, false);
    }
    add_tiered("t1_host", {.engine = {.t1 = T1Place::kHost}, .shares = {.t0_share = 0.4}}, true);
    add_tiered("t1_file", {.engine = {.t1 = T1Place::kFile}, .shares = {.t0_share = 0.3}}, true);
    add_tiered("t1_evict",
               {.engine = {.t1 = T1Place::kHost}, .shares = {.t0_share = 0.4, .evict_share = 0.2}},
               false);
    add_tiered("t2",
               {.engine = {.t1 = T1Place::kHost, .t2_type = CompressedType::kInt8},
                .shares = {.t0_share = 0.5, .t2_share = 0.5}},
               false);
    add_tiered("t2_file",
               {.engine = {.t1 = T1Place::kFile, .t2_type = CompressedType::kInt8},
                .shares = {.t0_share = 0.3, .t2_share = 0.4}},
               false);
  }
  return cases;
}

class MixedHeadsAtAnyPolicy : public testing::TestWithParam<MixedCase> {
 protected:
  [[nodiscard]] static SessionOptions Options() {
    SessionOptions options;
    options.policy = GetParam().policy;
    options.ledger = SessionOptions::Record::kYes;
    return options;
  }
  [[nodiscard]] static Result<std::unique_ptr<Engine>> MakeIts() {
    return TryMakeEngineOf(MixedModel(), {.threads = 2, .tiers = GetParam().tiers});
  }
  void SetUp() override {
    const auto engine = MakeIts();
    if (engine.status().code() == StatusCode::kUnsupported)
      EBB_SKIP_WITHOUT("direct_io") << engine.status().message();
    ASSERT_TRUE(engine.ok()) << engine.status().ToString();
  }
};

INSTANTIATE_TEST_SUITE_P(All, MixedHeadsAtAnyPolicy, testing::ValuesIn(MixedCases()),
                         [](const auto& info) { return info.param.name; });

TEST_P(MixedHeadsAtAnyPolicy, RowsAreCountedByTheStreamsThatAGroupHas) {
  auto engine = *MakeIts();
  auto session = Open(*engine, Options());
  const std::vector<int> streams = StreamsOfGroups(GetParam().policy.granularity.value());
  ReadMixed(*session);
  for (int i = 0; i < kMixedDecodeTokens; ++i) {
    DecodeMixed(*session, i, i + 1);
    int64_t rows = 0;
    for (size_t group = 0; group < streams.size(); ++group) {
      const auto visible = session->visible_positions(static_cast<int>(group));
      rows += static_cast<int64_t>(visible.size()) * streams[group];
    }
    const CacheAccounting cache = session->accounting();
    ASSERT_EQ(AllRows(cache), rows);
    ASSERT_EQ(cache.rows_evicted, int64_t{session->next_position()} * kStreams - rows);
    for (const Tier tier : {Tier::kT0, Tier::kT1, Tier::kT2}) {
      ASSERT_EQ(session->ledger()->rows(tier), cache.tiers[static_cast<int>(tier)].rows);
    }
    ASSERT_EQ(session->ledger()->rows(Tier::kT3), cache.rows_evicted);
  }
}

TEST_P(MixedHeadsAtAnyPolicy, TheBitsAreThoseOfTheFullCacheWhereNothingGoes) {
  auto engine = *MakeIts();
  auto session = Open(*engine, Options());
  ReadMixed(*session);
  DecodeMixed(*session, 0, kMixedDecodeTokens);
  static const uint64_t kFull = [] {
    auto full_engine = MakeEngineOf(MixedModel());
    auto full = Open(*full_engine);
    ReadMixed(*full);
    DecodeMixed(*full, 0, kMixedDecodeTokens);
    return full->logits_hash();
  }();
  if (GetParam().is_exact) {
    EXPECT_EQ(session->logits_hash(), kFull);
  } else {
    EXPECT_NE(session->logits_hash(), kFull);
  }
}

TEST_P(MixedHeadsAtAnyPolicy, ASavedOrForkedSessionGoesOnBitForBit) {
  const TempFolder folder;
  const std::string path = folder.File("session.ebb");
  auto engine = *MakeIts();
  auto session = Open(*engine, Options());
  ReadMixed(*session);
  DecodeMixed(*session, 0, 120);
  ExpectOk(SaveSession(*session, path, ""));
  auto fork = session->Fork();
  ASSERT_TRUE(fork.ok()) << fork.status().ToString();
  auto other_engine = *MakeIts();
  auto resumed = ResumeSession(*other_engine, path, Options());
  ASSERT_TRUE(resumed.ok()) << resumed.status().ToString();
  for (Session* one : {session.get(), fork->get(), resumed->session.get()}) {
    DecodeMixed(*one, 120, kMixedDecodeTokens);
  }
  EXPECT_EQ((*fork)->logits_hash(), session->logits_hash());
  EXPECT_EQ(resumed->session->logits_hash(), session->logits_hash());
  EXPECT_EQ(AllRows(resumed->session->accounting()), AllRows(session->accounting()));
}

TEST(MixedHeads, ARollBackLeavesTheBitsOfAShorterText) {
  auto engine = MakeEngineOf(MixedModel());
  auto session = Open(*engine), fresh = Open(*engine);
  ReadMixed(*session);
  DecodeMixed(*session, 0, 100);
  ExpectOk(session->TruncateTo(kMixedPromptTokens + 50));
  DecodeMixed(*session, 50, 100);
  ReadMixed(*fresh);
  DecodeMixed(*fresh, 0, 100);
  EXPECT_EQ(Logits(*session), Logits(*fresh));
}

TEST(MixedHeads, KeysThatAreRotatedAnewGoOn) {
  auto engine = MakeEngineOf(MixedModel());
  SessionOptions options;
  options.policy = {.name = "streaming_rerotated", .budget = *ParseBudget("40"), .interval = 8};
  options.context = 64;
  auto session = Open(*engine, options);
  ExpectOk(session->Prefill(std::span(MixedText()).first(40)));
  for (int i = 40; i < 200; ++i) ExpectOk(session->Decode(MixedText()[i]));
  EXPECT_EQ(session->accounting().tiers[0].rows, 40 * kStreams);
  EXPECT_TRUE(std::ranges::all_of(session->logits(), [](float x) { return std::isfinite(x); }));
}

TEST(MixedHeads, ALosslessSessionHasTheBitsOfTheFullCache) {
  EBB_CPU_ONLY("tests/engine/devices/backend_lossless_test.cc has lossless sessions over devices");
  auto engine = MakeEngineOf(MixedModel());
  SessionOptions options;
  options.policy = SmallPolicy("attention", "100");
  options.lossless.emplace();
  auto session = Open(*engine, options), full = Open(*engine);
  for (Session* one : {session.get(), full.get()}) {
    ReadMixed(*one);
    DecodeMixed(*one, 0, 100);
  }
  EXPECT_EQ(session->logits_hash(), full->logits_hash());
}

class MixedHeadsMarks : public testing::TestWithParam<Marks> {};
INSTANTIATE_TEST_SUITE_P(All, MixedHeadsMarks,
                         testing::Values(Marks::kQueryChannel, Marks::kAdapter),
                         [](const auto& info) {
                           return info.param == Marks::kAdapter ? "Adapter" : "QueryChannel";
                         });

TEST_P(MixedHeadsMarks, MarkedRowsGoByTheRule) {
  const std::shared_ptr<const Model> model = RandomModel(MixedOptions(kMarksWindow, GetParam()));
  for (const Granularity granularity :
       {Granularity::kToken, Granularity::kLayer, Granularity::kHead}) {
    SCOPED_TRACE(GranularityName(granularity));
    auto engine = MakeEngineOf(model, {.threads = 2});
    PolicySpec spec = kDms;
    spec.granularity = granularity;
    auto session = Open(*engine, spec);
    MarksRule rule(model->shape(), granularity, kMarksWindow, 1);
    const int num_groups = model->shape().NumGroups(granularity);
    for (int done = 0; done < kMixedPromptTokens; done += 20) {
      ExpectOk(session->Prefill(std::span(MixedText()).subspan(done, 20)));
      rule.See(session->last_signals());
      ASSERT_EQ(VisibleRows(*session, num_groups), rule.Visible()) << "at " << done;
    }
    for (int i = 0; i < 100; ++i) {
      DecodeMixed(*session, i, i + 1);
      rule.See(session->last_signals());
      ASSERT_EQ(VisibleRows(*session, num_groups), rule.Visible()) << "at " << i;
    }
    EXPECT_GT(session->accounting().rows_evicted, 0);
  }
}

}  // namespace
}  // namespace ebb

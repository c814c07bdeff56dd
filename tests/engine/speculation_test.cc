// Sessions with guesses (SessionOptions::speculation): whatever is guessed, and however often it is
// wrong, tokens, bits, rows, tiers, ledger and the policy's state are those of plain decoding.
#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <functional>
#include <iterator>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "ebb/session_file.h"
#include "src/session/session_impl.h"
#include "tests/engine/engine_fixture.h"
#include "tests/support/skip.h"

namespace ebb {
namespace {

EBB_CPU_ONLY_FILE("a device rounds several tokens of a step differently than one");

struct Case {
  std::string name;
  PolicySpec policy;
  std::optional<EngineTiers> tiers;
  bool guesses = true;  // whether there is no obstacle
};

PolicySpec WithShares(PolicySpec policy, const TierShares& shares) {
  policy.budget = {};
  policy.window = 16;
  policy.interval = 8;
  policy.tiers = shares;
  return policy;
}

PolicySpec Budgeted(const std::string& name) {
  return {.name = name, .budget = *ParseBudget("25%"), .window = 16, .interval = 8};
}

std::vector<Case> Cases() {
  const EngineTiers host = {.t1 = T1Place::kHost};
  const EngineTiers file = {.t1 = T1Place::kFile};
  const EngineTiers int4 = {.t1 = T1Place::kNone, .t2_type = CompressedType::kInt4};
  const EngineTiers int8 = {.t1 = T1Place::kHost, .t2_type = CompressedType::kInt8};
  std::vector<Case> cases = {
      {"full", {.name = "full"}, {}},
      {"streaming", {.name = "streaming", .sinks = 4, .window = 12}, {}},
      {"recency", Budgeted("recency"), {}},
      {"random", Budgeted("random"), {}},
      {"lagKv", Budgeted("lag_kv"), {}},
      {"kvKey", Budgeted("kv_key"), {}},
      {"kvVal", Budgeted("kv_val"), {}},
      {"hsVariance", Budgeted("hs_variance"), {}},
      {"attention", SmallPolicy("attention", "25%"), {}},
      {"h2o", SmallPolicy("h2o", "24"), {}},
      {"raas", Budgeted("raas"), {}},
      {"redundancy", Budgeted("redundancy"), {}},
      {"combined", Budgeted("combined"), {}},
      {"attentionMean", Budgeted("attention_mean"), {}},
      {"attentionRecent", Budgeted("attention_recent"), {}},
      {"rkv", {.name = "rkv", .budget = *ParseBudget("48")}, {}, false},
      {"epikv", Budgeted("epikv"), {}},
      {"attnHs", Budgeted("attn_hs"), {}},
      {"quest",
       {.name = "quest", .params = {{"page", "8"}}, .budget = *ParseBudget("24")},
       {},
       false},
      {"host", WithShares({.name = "lag_kv"}, {.t0_share = 0.3}), host},
      {"file", WithShares({.name = "lag_kv"}, {.t0_share = 0.3, .evict_share = 0.1}), file},
      {"hierarchy", WithShares({.name = "attention"}, {.t0_share = 0.3, .evict_share = 0.1}), host},
      {"int8", WithShares({.name = "attention"}, {.t0_share = 0.3, .t2_share = 0.5}), int8},
      {"int4", WithShares({.name = "recency"}, {.t2_share = 0.5, .evict_share = 0.2}), int4},
      {"old", {.tiers = TierShares{.t2_rows = T2Rows::kOld}}, int4},
  };
  return cases;
}

// Proposes the tokens that the test is going to append, each right with a probability.
class Oracle {
 public:
  Oracle(std::span<const Token> text, double right, uint32_t seed)
      : text_(text), right_(right), random_(seed) {}
  void StandAt(size_t next) { next_ = next; }
  std::vector<Token> Propose(int most) {
    std::vector<Token> guesses;
    const int wanted = static_cast<int>(random_() % 13);
    for (size_t i = next_;
         i < text_.size() && static_cast<int>(guesses.size()) < std::min(most, wanted); ++i) {
      const bool right = std::uniform_real_distribution<>()(random_) < right_;
      guesses.push_back(right ? text_[i] : (text_[i] + 1) % SmallModel()->shape().vocab_size);
    }
    return guesses;
  }

 private:
  std::span<const Token> text_;
  double right_;
  std::mt19937 random_;
  size_t next_ = 0;
};

void ExpectSame(Session& plain, Session& guessing) {
  ASSERT_TRUE(std::ranges::equal(plain.tokens(), guessing.tokens()));
  ASSERT_TRUE(std::ranges::all_of(plain.logits(), [](float x) { return std::isfinite(x); }));
  ASSERT_EQ(plain.logits_hash(), guessing.logits_hash()) << plain.next_position();
  SequenceCache& expected = Internals::SequenceOf(plain).cache();
  SequenceCache& found = Internals::SequenceOf(guessing).cache();
  for (int group = 0; group < expected.layout().num_groups(); ++group) {
    ASSERT_TRUE(std::ranges::equal(expected.positions(group), found.positions(group))) << group;
    ASSERT_TRUE(std::ranges::equal(expected.tiers(group), found.tiers(group))) << group;
  }
  ExpectOk(found.Validate());
  const Ledger& ledger = *plain.ledger();
  for (int group = 0; group < ledger.num_groups(); ++group) {
    ASSERT_TRUE(std::ranges::equal(ledger.tiers(group), guessing.ledger()->tiers(group)));
  }
  const auto bytes = plain.CountPolicyBytes();
  if (bytes.ok()) {
    ASSERT_EQ(*bytes, *guessing.CountPolicyBytes());
  }
}

class SpeculationAt : public testing::TestWithParam<std::tuple<Case, Granularity>> {
 protected:
  // Two sessions, of which the second guesses by `oracle`.
  void OpenBoth(Oracle* oracle) {
    const auto& [c, granularity] = GetParam();
    SessionOptions options = {.policy = c.policy, .ledger = SessionOptions::Record::kYes};
    options.policy.granularity = granularity;
    for (const Speculation speculation : {Speculation::kOff, Speculation::kLookup}) {
      options.speculation = speculation;
      auto engine = Engine::Create(SmallModel(), {.threads = 1, .tiers = c.tiers});
      if (engine.status().code() == StatusCode::kUnsupported) {
        EBB_SKIP_WITHOUT("direct_io") << engine.status().message();
      }
      ExpectOk(engine.status());
      engines_.push_back(*std::move(engine));
      sessions_.push_back(Open(*engines_.back(), options));
    }
    ASSERT_EQ(guessing().speculation_obstacle().empty(), c.guesses)
        << guessing().speculation_obstacle();
    if (!c.guesses) return;
    Internals::Of(guessing()).lookup->GuessBy([oracle](int most) { return oracle->Propose(most); });
  }
  Session& plain() { return *sessions_[0]; }
  Session& guessing() { return *sessions_[1]; }
  void Both(const std::function<Status(Session&)>& act) {
    for (const auto& session : sessions_) ExpectOk(act(*session));
  }
  void Replace(std::unique_ptr<Session> session, int which) {
    sessions_[which] = std::move(session);
  }

 private:
  std::vector<std::unique_ptr<Engine>> engines_;
  std::vector<std::unique_ptr<Session>> sessions_;
};

// Decodes, reads prompts, rolls back, changes T0's share and parks in random order.
TEST_P(SpeculationAt, EverythingIsAsWithoutGuesses) {
  const std::vector<Token> text = SomeTokens(420, 3);
  Oracle oracle(text, 0.85, 1);
  ASSERT_NO_FATAL_FAILURE(OpenBoth(&oracle));
  if (IsSkipped()) return;
  Both([](Session& s) { return s.Prefill(SomeTokens(40)).status; });
  std::mt19937 random(2);
  for (size_t i = 0; i < text.size(); ++i) {
    oracle.StandAt(i + 1);
    Both([&](Session& s) { return s.Decode(text[i]).status; });
    ASSERT_NO_FATAL_FAILURE(ExpectSame(plain(), guessing()));
    switch (random() % 40) {
      case 0: {
        const auto end = plain().next_position() - static_cast<Position>(random() % 9);
        if (plain().CanTruncateTo(end)) Both([&](Session& s) { return s.TruncateTo(end); });
        break;
      }
      case 1: {
        const std::vector<Token> more = SomeTokens(1 + random() % 6, i);
        Both([&](Session& s) { return s.Prefill(more).status; });
        break;
      }
      case 2: {
        const double share = 0.25 * static_cast<double>(random() % 5);
        const Status status = plain().SetT0Share(share);
        EXPECT_EQ(status.code(), guessing().SetT0Share(share).code());
        break;
      }
      case 3:
        EXPECT_EQ(plain().Park().code(), guessing().Park().code());
        break;
      default:
        break;
    }
  }
  if (!guessing().speculation_obstacle().empty()) return;
  const SpeculationReport report = guessing().speculation_report();
  EXPECT_GT(report.drafted, 20);
  EXPECT_GT(report.accepted, 10);
  EXPECT_LT(report.accepted, report.drafted);
}

std::string NameOf(const testing::TestParamInfo<std::tuple<Case, Granularity>>& info) {
  constexpr std::array kNames = {"Token", "Layer", "Head"};
  const auto& [c, granularity] = info.param;
  return c.name + kNames[static_cast<size_t>(granularity)];
}

INSTANTIATE_TEST_SUITE_P(Policies, SpeculationAt,
                         testing::Combine(testing::ValuesIn(Cases()),
                                          testing::Values(Granularity::kToken, Granularity::kLayer,
                                                          Granularity::kHead)),
                         NameOf);

// Decodes a text with guesses, of which one in ten is wrong, and without.
void ExpectGuessesChangeNothing(const RandomGgufOptions& shape, size_t num_tokens) {
  const auto model = RandomModel(shape);
  auto engine = MakeEngineOf(model);
  SessionOptions options = {.ledger = SessionOptions::Record::kYes};
  auto plain = Open(*engine, options);
  options.speculation = Speculation::kLookup;
  auto guessing = Open(*engine, options);
  ASSERT_EQ(guessing->speculation_obstacle(), "");
  const std::vector<Token> text = RandomTokens(shape, num_tokens, 5);
  Oracle oracle(text, 0.9, 7);
  Internals::Of(*guessing).lookup->GuessBy([&](int most) { return oracle.Propose(most); });
  for (Session* session : {plain.get(), guessing.get()}) ExpectOk(session->Prefill(text));
  for (size_t i = 0; i < text.size(); ++i) {
    oracle.StandAt(i + 1);
    for (Session* session : {plain.get(), guessing.get()}) ExpectOk(session->Decode(text[i]));
    ASSERT_NO_FATAL_FAILURE(ExpectSame(*plain, *guessing));
  }
  EXPECT_GT(guessing->speculation_report().accepted, 50);
}

// Takes every window by itself: rows leave it while guesses are taken.
TEST(SpeculationTest, WindowsExpireAsWithoutGuesses) {
  const RandomGgufOptions shape = {.family = "gemma3",
                                   .num_layers = 4,
                                   .embed_dim = 128,
                                   .num_q_heads = 4,
                                   .num_kv_heads = 2,
                                   .sliding_window = 40,
                                   .window_layers = {true, true, false, true},
                                   .head_dim = 64,
                                   .feed_forward_dim = 192,
                                   .context = 2048};
  ExpectGuessesChangeNothing(shape, 200);
}

// Weights of 16 bits have other bits in products of several columns, and are multiplied token by
// token.
TEST(SpeculationTest, WeightsOf16BitsAreMultipliedByToken) {
  for (const char* type : {"f16", "bf16", "f32", "q8_0"}) {
    RandomGgufOptions shape = SmallModelOptions();
    shape.weight_type = type;
    SCOPED_TRACE(type);
    ExpectGuessesChangeNothing(shape, 120);
  }
}

// Batches take what was computed before, and drop it at another token.
TEST(SpeculationTest, BatchesHaveTheBitsOfPlainSteps) {
  auto engine = MakeEngine();
  const std::vector<Token> text = SomeTokens(120, 3);
  Oracle oracle(text, 0.8, 1);
  auto plain = Open(*engine), neighbour = Open(*engine);
  SessionOptions options = {.speculation = Speculation::kLookup};
  auto guessing = Open(*engine, options);
  Internals::Of(*guessing).lookup->GuessBy([&](int most) { return oracle.Propose(most); });
  for (Session* session : {plain.get(), neighbour.get(), guessing.get()}) {
    ExpectOk(session->Prefill(SomeTokens(30)));
  }
  for (size_t i = 0; i < text.size(); ++i) {
    oracle.StandAt(i + 1);
    ExpectOk(plain->Decode(text[i]));
    if (i % 3 == 0) {
      ExpectOk(guessing->Decode(text[i]));
    } else {
      const std::vector<Session*> sessions = {neighbour.get(), guessing.get()};
      const std::vector<Token> tokens = {text[i], text[i]};
      ExpectOk(engine->DecodeBatch(sessions, tokens));
    }
    ASSERT_EQ(plain->logits_hash(), guessing->logits_hash()) << i;
  }
  EXPECT_GT(guessing->speculation_report().accepted, 20);
}

// In a batch, too, sessions compute guesses, each as many as it likes.
TEST(SpeculationTest, GuessesOfABatchHaveTheBitsOfPlainSteps) {
  auto engine = MakeEngine();
  constexpr size_t kSessions = 4;
  const std::vector<Token> text = SomeTokens(200, 3);
  std::vector<std::unique_ptr<Session>> plain, guessing;
  std::vector<Oracle> oracles;
  for (uint32_t i = 0; i < kSessions; ++i) {
    oracles.emplace_back(std::span(text).subspan(10 * i), 0.6 + 0.1 * i, i);
    SessionOptions options = {.ledger = SessionOptions::Record::kYes};
    plain.push_back(Open(*engine, options));
    options.speculation = Speculation::kLookup;
    guessing.push_back(Open(*engine, options));
    for (Session* one : {plain.back().get(), guessing.back().get()}) {
      ExpectOk(one->Prefill(SomeTokens(20 + 7 * i, i)));
    }
  }
  for (uint32_t i = 0; i + 1 < kSessions; ++i) {  // the last one guesses by its lookup alone
    Internals::Of(*guessing[i]).lookup->GuessBy([&oracle = oracles[i]](int most) {
      return oracle.Propose(most);
    });
  }
  size_t num_guesses = 0;
  for (size_t step = 0; step < 150; ++step) {
    std::vector<SessionStep> parts(kSessions);
    for (uint32_t i = 0; i < kSessions; ++i) {
      const Token token = text[10 * i + step];
      ExpectOk(plain[i]->Decode(token));
      oracles[i].StandAt(step + 1);
      parts[i] = {.session = guessing[i].get(), .token = token, .most_guesses = 11};
    }
    ExpectOk(engine->Step(parts));
    for (uint32_t i = 0; i < kSessions; ++i) {
      num_guesses += parts[i].num_guesses;
      ASSERT_EQ(parts[i].num_taken, 1u);
      ASSERT_NO_FATAL_FAILURE(ExpectSame(*plain[i], *guessing[i])) << step << ", " << i;
    }
  }
  size_t drafted = 0;
  for (const auto& session : guessing) {
    EXPECT_LE(session->speculation_report().accepted, session->speculation_report().drafted);
    drafted += static_cast<size_t>(session->speculation_report().drafted);
  }
  EXPECT_EQ(drafted, num_guesses);
  EXPECT_GT(guessing[0]->speculation_report().accepted, 20);
}

// Guesses come from a predicted text, too, which the session never has as tokens.
TEST(SpeculationTest, PredictedTextIsGuessedFrom) {
  auto engine = MakeEngine();
  const std::vector<Token> text = SomeTokens(300, 9);
  auto plain = Open(*engine),
       guessing = Open(*engine, SessionOptions{.speculation = Speculation::kLookup});
  guessing->Predict(text);
  for (Session* one : {plain.get(), guessing.get()}) ExpectOk(one->Prefill(SomeTokens(20)));
  for (const Token token : text) {
    for (Session* one : {plain.get(), guessing.get()}) ExpectOk(one->Decode(token));
    ASSERT_EQ(guessing->logits_hash(), plain->logits_hash());
  }
  EXPECT_TRUE(std::ranges::equal(plain->tokens(), guessing->tokens()));
  GuessingDecoder& lookup = *Internals::Of(*guessing).lookup;
  EXPECT_LE(lookup.report().accepted, lookup.report().drafted);
  EXPECT_GT(lookup.memory_bytes(), 600 * sizeof(Token));
  ExpectOk(guessing->TruncateTo(30));
  guessing->Predict({});
  ExpectOk(guessing->Decode(3));
}

std::string ContentsOf(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// An engine checks itself before its first session with guesses, and keeps the result.
TEST(SpeculationTest, AModelWhoseBitsDifferIsNotGuessedFor) {
  const TempFolder folder;
  const std::string path = folder.File("new/checks");
  const SessionOptions guessing = {.speculation = Speculation::kLookup};
  auto engine = MakeEngine({.threads = 1, .checks_file = path});
  (void)Open(*engine);
  EXPECT_EQ(ContentsOf(path), "") << "sessions without guesses need no check";
  EXPECT_EQ(Open(*engine, guessing)->speculation_obstacle(), "");
  const std::string kept = ContentsOf(path);
  ASSERT_TRUE(kept.ends_with(" same\n")) << kept;
  // Another program takes the result without computing it.
  std::ofstream(path) << kept.substr(0, kept.size() - 6) << " differ\n";
  auto other = MakeEngine({.threads = 1, .checks_file = path});
  auto session = Open(*other, guessing);
  EXPECT_NE(session->speculation_obstacle().find("round differently"), std::string::npos);
  ExpectOk(session->Prefill(SomeTokens(20)));
  ExpectOk(session->Decode(3));
  EXPECT_EQ(session->speculation_report().drafted, 0);
}

// The same file may be multiplied by other kernels: with its weights as 32-bit floats.
TEST(SpeculationTest, IsCheckedForEachKindOfWeights) {
  const TempFolder folder;
  const std::string path = folder.File("checks"), file = folder.File("model.gguf");
  RandomGgufOptions shape = SuperBlockModelOptions();
  shape.weight_type = "q8_0";
  ExpectOk(WriteRandomGguf(shape, file));
  for (const WeightMode weights : {WeightMode::kAsStored, WeightMode::kDequantize}) {
    const auto model = Model::Load({.path = file, .weights = weights});
    ExpectOk(model.status());
    auto engine = MakeEngineOf(*model, {.threads = 1, .checks_file = path});
    const SessionOptions guessing = {.speculation = Speculation::kLookup};
    EXPECT_EQ(Open(*engine, guessing)->speculation_obstacle(), "");
  }
  EXPECT_EQ(std::ranges::count(ContentsOf(path), '\n'), 2);
}

// Where there is no room for the check, there are no guesses until it was made.
TEST(SpeculationTest, IsNotGuessedForUntilItIsChecked) {
  const TempFolder folder;
  const std::string path = folder.File("checks");
  const SessionOptions guessing = {.speculation = Speculation::kLookup};
  auto engine = MakeEngine({.threads = 1, .kv_cap_bytes = uint64_t{2} << 20, .checks_file = path});
  auto other = Open(*engine);
  ExpectOk(other->Prefill(SomeTokens(2040)));
  EXPECT_NE(Open(*engine, guessing)->speculation_obstacle().find("could not run"),
            std::string::npos);
  EXPECT_EQ(ContentsOf(path), "");
  other.reset();
  EXPECT_EQ(Open(*engine, guessing)->speculation_obstacle(), "");
  EXPECT_NE(ContentsOf(path), "");
}

// The lookup finds what repeats, and steps are never taken for it where nothing does.
TEST(SpeculationTest, TheLookupGuessesWhatRepeats) {
  auto engine = MakeEngine();
  auto session = Open(*engine, SessionOptions{.speculation = Speculation::kLookup});
  auto plain = Open(*engine);
  const std::vector<Token> text = SomeTokens(40, 9);
  for (Session* one : {session.get(), plain.get()}) ExpectOk(one->Prefill(text));
  for (int round = 0; round < 4; ++round) {
    for (const Token token : text) {
      for (Session* one : {session.get(), plain.get()}) ExpectOk(one->Decode(token));
      ASSERT_EQ(session->logits_hash(), plain->logits_hash());
    }
  }
  EXPECT_LE(session->speculation_report().accepted, session->speculation_report().drafted);
}

}  // namespace
}  // namespace ebb

// Lossless sessions that fork in the midst of what they drafted: each way has the bits of the full
// cache, drafts anew, and can be rolled back, saved and forked again.
#include <algorithm>
#include <ostream>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "ebb/generate.h"
#include "src/session/session_impl.h"
#include "tests/engine/sessions/session_fixture.h"
#include "tests/support/skip.h"

namespace ebb {
namespace {

EBB_CPU_ONLY_FILE(
    "tests/engine/devices/backend_lossless_test.cc has lossless sessions over devices");

constexpr int kForkPromptTokens = 150;
constexpr size_t kWayTokens = 120;

struct LosslessForkCase {
  std::string name;
  T1Place t1 = T1Place::kHost;
  SessionOptions options;
};
std::ostream& operator<<(std::ostream& out, const LosslessForkCase& c) { return out << c.name; }

std::vector<LosslessForkCase> LosslessForkCases() {
  PolicySpec in_tiers = SmallPolicy("attention", "10%");
  in_tiers.budget = {};
  in_tiers.tiers = TierShares{.t0_share = 0.3, .t2_share = 0.4};
  std::vector<LosslessForkCase> cases;
  for (const auto& [name, t1] :
       {std::pair("Host", T1Place::kHost), {"File", T1Place::kFile}, {"Memory", T1Place::kNone}}) {
    for (const PolicySpec& policy :
         {PolicySpec{.name = "streaming", .sinks = 4, .window = 30}, SmallPolicy("h2o", "40%"),
          SmallPolicy("attention", "25%"), in_tiers}) {
      SessionOptions options = {.policy = policy,
                                .lossless = LosslessOptions{.draft_min = 6, .draft_max = 6}};
      options.ledger = SessionOptions::Record::kYes;
      const std::string drafts = policy.tiers.has_value() ? "tiers" : policy.name;
      cases.push_back({.name = name + ("_" + drafts), .t1 = t1, .options = options});
    }
  }
  return cases;
}

// The tokens of a way, of whose successors a session's guesses know seven in eight.
std::vector<Token> Way(uint64_t way) { return SomeTokens(kWayTokens, 100 + way); }

void Follow(std::span<const Token> tokens, Session* session) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    size_t next = i + 1;
    ExpectOk(session->Decode(tokens[i], [&](std::span<const float>) -> std::optional<Guessed> {
      if (next >= tokens.size()) return std::nullopt;
      const bool is_right = next % 8 != 5;
      return Guessed(is_right ? tokens[next++] : (tokens[next++] + 1) % 300);
    }));
  }
}

class LosslessFork : public testing::TestWithParam<LosslessForkCase> {
 protected:
  void SetUp() override {
    const EngineTiers tiers = {.t1 = GetParam().t1, .t2_type = CompressedType::kInt8};
    auto engine = Engine::Create(SmallModel(), {.threads = 1, .tiers = tiers});
    if (engine.status().code() == StatusCode::kUnsupported) {
      EBB_SKIP_WITHOUT("direct_io") << engine.status().message();  // a disk without direct reads
    }
    ASSERT_TRUE(engine.ok()) << engine.status().ToString();
    engine_ = *std::move(engine);
  }
  std::unique_ptr<Session> Forked(Session* session) {
    auto fork = session->Fork();
    EXPECT_TRUE(fork.ok()) << fork.status().ToString();
    return *std::move(fork);
  }
  // The draft has no row twice, and the ledger knows as many as there are.
  static void ExpectSound(Session& session) {
    const SequenceCache& cache = Internals::SequenceOf(session).cache();
    ExpectOk(cache.Validate());
    ASSERT_EQ(session.ledger()->next_position(),
              session.next_position() + static_cast<Position>(session.drafted().size()));
    for (int group = 0; group < session.ledger()->num_groups(); ++group) {
      const auto positions = session.visible_positions(group);
      const std::set<Position> visible(positions.begin(), positions.end());
      const std::span<const Tier> tiers = session.ledger()->tiers(group);
      for (size_t i = 0; i < tiers.size(); ++i) {
        const bool is_full = tiers[i] == Tier::kT0 || tiers[i] == Tier::kT1;
        ASSERT_TRUE(!is_full || visible.contains(static_cast<Position>(i))) << i;
        ASSERT_TRUE(tiers[i] != Tier::kT3 || !visible.contains(static_cast<Position>(i))) << i;
      }
    }
  }
  // Of the full cache that read the prompt and then these ways.
  static uint64_t FullHash(const std::vector<std::vector<Token>>& ways) {
    const auto engine = MakeEngine();
    const auto session = Open(*engine);
    ExpectOk(session->Prefill(SomeTokens(kForkPromptTokens)));
    for (const std::vector<Token>& way : ways) {
      for (const Token token : way) ExpectOk(session->Decode(token));
    }
    return session->logits_hash();
  }

  std::unique_ptr<Engine> engine_;
};

TEST_P(LosslessFork, InTheMidstOfADraftGoesItsOwnWayWithTheFullCachesBits) {
  auto first = Open(*engine_, GetParam().options);
  ExpectOk(first->Prefill(SomeTokens(kForkPromptTokens)));
  const std::vector<Token> one = Way(1);
  // A run of six tokens is drafted, and two of them have been asked for.
  const std::vector<Token> begun(one.begin(), one.begin() + 20);
  size_t next = 0;
  for (size_t i = 0; i < begun.size(); ++i) {
    next = i + 1;
    ExpectOk(first->Decode(
        begun[i], [&](std::span<const float>) -> std::optional<Guessed> { return one[next++]; }));
  }
  ASSERT_FALSE(first->drafted().empty());
  auto second = Forked(first.get());
  EXPECT_TRUE(first->drafted().empty());
  EXPECT_TRUE(second->drafted().empty());
  EXPECT_EQ(second->logits_hash(), first->logits_hash());
  EXPECT_EQ(Logits(*second), Logits(*first));
  EXPECT_EQ(second->lossless_report()->drafted, 0);
  ExpectSound(*first);
  ExpectSound(*second);
  // Turn by turn, so that each changes pages that the other holds too.
  const std::vector<Token> rest(one.begin() + 20, one.end());
  const std::vector<Token> two = Way(2);
  for (size_t i = 0; i < 4; ++i) {
    Follow(std::span(rest).subspan(i * 25, 25), first.get());
    Follow(std::span(two).subspan(i * 30, 30), second.get());
    ExpectSound(*first);
    ExpectSound(*second);
  }
  EXPECT_GT(second->lossless_report()->accepted, 0);
  EXPECT_GT(second->lossless_report()->drafted, second->lossless_report()->accepted);
  EXPECT_EQ(first->logits_hash(), FullHash({begun, rest}));
  EXPECT_EQ(second->logits_hash(), FullHash({begun, two}));
  // One that forks from the fork, when the first is gone.
  first.reset();
  auto third = Forked(second.get());
  second.reset();
  Follow(Way(3), third.get());
  EXPECT_EQ(third->logits_hash(), FullHash({begun, two, Way(3)}));
  third.reset();
  for (const Tier tier : {Tier::kT0, Tier::kT1, Tier::kT2}) {
    EXPECT_EQ(engine_->arena_accounting(tier).used_bytes, 0U);
  }
  EXPECT_EQ(engine_->newest_accounting().used_bytes, 0U);
}

TEST_P(LosslessFork, RollsBackIntoWhatItSharesAndRestsInAFile) {
  auto first = Open(*engine_, GetParam().options);
  ExpectOk(first->Prefill(SomeTokens(kForkPromptTokens)));
  Follow(Way(1), first.get());
  auto fork = Forked(first.get());
  const auto full_engine = MakeEngine();
  const auto full = Open(*full_engine);
  ExpectOk(full->Prefill(SomeTokens(kForkPromptTokens)));
  for (const Token token : Way(1)) ExpectOk(full->Decode(token));
  const uint64_t hash_of_first = full->logits_hash();
  for (Session* session : {fork.get(), full.get()}) {
    ExpectOk(session->TruncateTo(70));
    ExpectOk(session->Prefill(SomeTokens(50, 3)));
  }
  Follow(Way(4), fork.get());
  for (const Token token : Way(4)) ExpectOk(full->Decode(token));
  EXPECT_EQ(fork->logits_hash(), full->logits_hash());
  EXPECT_EQ(first->logits_hash(), hash_of_first);
  const TempFolder folder;
  ExpectOk(SaveSession(*fork, folder.File("fork")));
  const auto resumed = ResumeSession(*engine_, folder.File("fork"), GetParam().options);
  ASSERT_TRUE(resumed.ok()) << resumed.status().ToString();
  Follow(Way(5), resumed->session.get());
  Follow(Way(5), fork.get());
  for (const Token token : Way(5)) ExpectOk(full->Decode(token));
  EXPECT_EQ(resumed->session->logits_hash(), full->logits_hash());
  EXPECT_EQ(fork->logits_hash(), full->logits_hash());
}

// Forks that write texts of their own, as sampling has it: guesses are those of generations.
TEST_P(LosslessFork, GenerationsOfForksAreTheFullCaches) {
  const auto texts = [](Session* session) {
    std::vector<std::string> all;
    std::vector<std::unique_ptr<Session>> forks;
    for (uint64_t seed = 0; seed < 3; ++seed) {
      auto fork = session->Fork();
      EXPECT_TRUE(fork.ok()) << fork.status().ToString();
      forks.push_back(*std::move(fork));
      const auto sampler = Sampler::Create(*SmallModel(), {.seed = seed});
      all.push_back(Generate(*forks.back(), **sampler,
                             {.max_tokens = 60, .on_end = GenerateOptions::OnEnd::kIgnore})
                        .text);
      all.push_back(std::to_string(forks.back()->logits_hash()));
    }
    return all;
  };
  const auto full_engine = MakeEngine();
  const auto full = Open(*full_engine);
  const auto lossless = Open(*engine_, GetParam().options);
  for (Session* session : {full.get(), lossless.get()}) {
    ExpectOk(session->Prefill(SomeTokens(kForkPromptTokens)));
  }
  EXPECT_EQ(texts(lossless.get()), texts(full.get()));
}

INSTANTIATE_TEST_SUITE_P(Places, LosslessFork, testing::ValuesIn(LosslessForkCases()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace ebb

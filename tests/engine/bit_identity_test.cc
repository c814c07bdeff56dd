// The same visible rows give the same logits, bit for bit, wherever the rows lie and however many
// threads run.
#include "tests/engine/engine_fixture.h"

namespace ebb {
namespace {

constexpr int kBitsPromptTokens = 150;
constexpr int kBitsDecodeTokens = 60;

const std::vector<Token>& BitsText() {
  static const std::vector<Token> kText = SomeTokens(kBitsPromptTokens + kBitsDecodeTokens);
  return kText;
}

void ReadPrompt(Session& session) {
  ExpectOk(session.Prefill(std::span(BitsText()).first(kBitsPromptTokens)));
}

void DecodeRest(Session& session, int count = kBitsDecodeTokens) {
  for (int i = 0; i < count; ++i) ExpectOk(session.Decode(BitsText()[kBitsPromptTokens + i]));
}

uint64_t HashAlone(const EngineOptions& options, const PolicySpec& policy, int decode_tokens) {
  auto engine = MakeEngine(options);
  auto session = Open(*engine, policy);
  ReadPrompt(*session);
  DecodeRest(*session, decode_tokens);
  return session->logits_hash();
}

class BitIdentity : public testing::TestWithParam<const char*> {
 protected:
  [[nodiscard]] PolicySpec policy() const { return SmallPolicy(GetParam(), "170"); }
};

TEST_P(BitIdentity, OneTwoAndThreeThreadsGiveTheSameLogits) {
  const uint64_t one = HashAlone({.threads = 1}, policy(), kBitsDecodeTokens);
  EXPECT_EQ(one, HashAlone({.threads = 2}, policy(), kBitsDecodeTokens));
  EXPECT_EQ(one, HashAlone({.threads = 3}, policy(), kBitsDecodeTokens));
}

TEST_P(BitIdentity, TheHashTellsTextsApart) {
  EXPECT_NE(HashAlone({.threads = 1}, policy(), 20), HashAlone({.threads = 1}, policy(), 19));
  // Two texts of one length that differ in one token.
  std::vector<uint64_t> hashes;
  for (const int changed : {-1, 10}) {
    auto engine = MakeEngine();
    auto session = Open(*engine, policy());
    ReadPrompt(*session);
    for (int i = 0; i < 20; ++i) {
      const Token token = BitsText()[kBitsPromptTokens + i];
      ExpectOk(session->Decode(i == changed ? token + 1 : token));
    }
    hashes.push_back(session->logits_hash());
  }
  EXPECT_NE(hashes[0], hashes[1]);
}

TEST_P(BitIdentity, OtherSequencesBetweenTheRowsChangeNothing) {
  const uint64_t alone = HashAlone({.threads = 1}, policy(), kBitsDecodeTokens);
  auto engine = MakeEngine();
  auto neighbour = Open(*engine);
  ExpectOk(neighbour->Prefill(SomeTokens(100, 1)));
  auto session = Open(*engine, policy());
  ReadPrompt(*session);
  const std::vector<Token> others = SomeTokens(kBitsDecodeTokens, 2);
  for (int i = 0; i < kBitsDecodeTokens; ++i) {
    ExpectOk(neighbour->Decode(others[i]));
    ExpectOk(session->Decode(BitsText()[kBitsPromptTokens + i]));
    // Half way the neighbour leaves, and its pages are used again.
    if (i == kBitsDecodeTokens / 2) ExpectOk(neighbour->TruncateTo(3));
  }
  EXPECT_EQ(session->logits_hash(), alone);
}

TEST_P(BitIdentity, MassAndOtherSignalsChangeNoLogit) {
  auto engine = MakeEngine();
  SessionOptions options;
  options.policy = policy();
  options.extra_signals = {.mass = MassNeed::kPerQueryHead,
                           .mass_in_prefill = true,
                           .num_recent_queries = 3,
                           .hidden_layers = {0},
                           .keys = true,
                           .keys_before_rope = true,
                           .values = true};
  auto session = Open(*engine, options);
  ReadPrompt(*session);
  DecodeRest(*session);
  EXPECT_EQ(session->logits_hash(), HashAlone({.threads = 1}, policy(), kBitsDecodeTokens));
}

TEST(OtherDevice, EnginesAreMadeForTheDeviceThatWasNamed) {
  const char* const named = OtherDevice();
  EXPECT_EQ(MakeEngine()->device_report().name, named == nullptr ? "cpu" : named);
}

INSTANTIATE_TEST_SUITE_P(Policies, BitIdentity,
                         testing::Values("full", "streaming", "h2o", "attention", "random"),
                         [](const auto& info) { return std::string(info.param); });

TEST(RollBack, TheSameTokensGiveTheSameLogitsAgain) {
  auto engine = MakeEngine();
  auto session = Open(*engine);
  ReadPrompt(*session);
  DecodeRest(*session, 10);
  const std::vector<float> first = Logits(*session);
  DecodeRest(*session, 20);
  ExpectOk(session->TruncateTo(kBitsPromptTokens + 9));
  EXPECT_TRUE(session->logits().empty());
  ExpectOk(session->Decode(BitsText()[kBitsPromptTokens + 9]));
  EXPECT_EQ(Logits(*session), first);
}

TEST(RollBack, OfNothingIsRefusedBeyondTheEndAndBelowZero) {
  auto engine = MakeEngine();
  auto session = Open(*engine);
  ReadPrompt(*session);
  EXPECT_EQ(session->TruncateTo(kBitsPromptTokens + 1).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(session->TruncateTo(-1).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(session->next_position(), kBitsPromptTokens);
}

TEST(Compaction, FreedRowsGoBackAndTheRestKeepTheirBits) {
  // Two runs of the same text under the same policy; in one, a neighbour's pages make the layout
  // and what compaction moves entirely different.
  const PolicySpec policy = SmallPolicy("h2o", "64");
  const uint64_t alone = HashAlone({.threads = 1}, policy, kBitsDecodeTokens);
  auto engine = MakeEngine();
  std::vector<std::unique_ptr<Session>> crowd;
  for (int i = 0; i < 5; ++i) {
    crowd.push_back(Open(*engine));
    ExpectOk(crowd.back()->Prefill(SomeTokens(70 + 30 * i, i)));
  }
  auto session = Open(*engine, policy);
  ReadPrompt(*session);
  crowd.erase(crowd.begin(), crowd.begin() + 4);
  DecodeRest(*session);
  EXPECT_EQ(session->logits_hash(), alone);
  // 64 rows of each head and some new ones lie in two pages; all 210 would fill four.
  auto full = Open(*engine);
  ReadPrompt(*full);
  DecodeRest(*full);
  EXPECT_EQ(2 * session->page_bytes(Tier::kT0), full->page_bytes(Tier::kT0));
  full.reset();
  EXPECT_EQ(engine->arena_accounting().used_bytes,
            session->page_bytes(Tier::kT0) + crowd.front()->page_bytes(Tier::kT0));
}

// Several tokens of a step up to a handful are attended to with the arithmetic of decode.
TEST(Prefill, AFewTokensAtOnceGiveTheAttentionOfSingleSteps) {
  auto engine = MakeEngine({.threads = 1, .kv_type = RowType::kF32});
  auto single = Open(*engine);
  auto several = Open(*engine);
  ReadPrompt(*single);
  ReadPrompt(*several);
  for (int i = 0; i < 6; ++i) ExpectOk(single->Prefill({&BitsText()[kBitsPromptTokens + i], 1}));
  const std::vector<float> expected = Logits(*single);
  ExpectOk(several->Prefill(std::span(BitsText()).subspan(kBitsPromptTokens, 6)));
  EXPECT_LT(LargestDifference(expected, Logits(*several)), 1e-4);
}

TEST(Prefill, ChunksOfAnySizeAgreeWithSingleTokens) {
  auto reference = MakeEngine({.threads = 1, .kv_type = RowType::kF32, .prefill_chunk = 1});
  auto expected = Open(*reference);
  ReadPrompt(*expected);
  for (const int chunk : {7, 16, 64, 149, 512}) {
    auto engine = MakeEngine({.threads = 1, .kv_type = RowType::kF32, .prefill_chunk = chunk});
    auto session = Open(*engine);
    ReadPrompt(*session);
    EXPECT_LT(LargestDifference(Logits(*expected), Logits(*session)), 1e-4) << chunk;
  }
}

}  // namespace
}  // namespace ebb

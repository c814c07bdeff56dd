// A request that cannot proceed says why and loses nothing.
#include <gmock/gmock.h>

#include "tests/engine/engine_fixture.h"
#include "tests/support/gguf_edit.h"

namespace ebb {
namespace {

using testing::HasSubstr;

TEST(Failure, ACapReachedWhileDecodingLosesNothing) {
  auto engine = MakeEngine({.threads = 1, .kv_cap_bytes = 2 << 20});
  auto session = Open(*engine);
  auto bystander = Open(*engine);
  ExpectOk(bystander->Prefill(SomeTokens(20, 3)));
  ExpectOk(session->Prefill(SomeTokens(100)));
  Status status;
  Position before = 0;
  std::vector<float> last;
  while (status.ok()) {
    before = session->next_position();
    last = Logits(*session);
    status = session->Decode(5).status;
    ASSERT_LT(before, 2048);
  }
  EXPECT_EQ(status.code(), StatusCode::kT0Full) << status.ToString();
  EXPECT_THAT(status.message(), HasSubstr("cap"));
  EXPECT_EQ(session->next_position(), before);
  EXPECT_EQ(session->visible_positions(0).size(), static_cast<size_t>(before));
  EXPECT_EQ(Logits(*session), last);
  EXPECT_LE(engine->arena_accounting().peak_bytes, size_t{2} << 20);
  // Room made by rolling back is used again, and the bystander never noticed.
  ExpectOk(session->TruncateTo(before - 64));
  ExpectOk(session->Decode(5));
  ExpectOk(bystander->Decode(5));
}

TEST(Failure, ACapReachedInABatchChangesNoSession) {
  auto engine = MakeEngine({.threads = 1, .kv_cap_bytes = 2 << 20});
  auto a = Open(*engine);
  auto b = Open(*engine);
  ExpectOk(a->Prefill(SomeTokens(64)));
  ExpectOk(b->Prefill(SomeTokens(64)));
  Session* const both[] = {a.get(), b.get()};
  const Token tokens[] = {5, 6};
  Status status;
  Position before = 0;
  while (status.ok()) {
    before = a->next_position();
    status = engine->DecodeBatch(both, tokens).status;
    ASSERT_LT(before, 2048);
  }
  EXPECT_EQ(status.code(), StatusCode::kT0Full);
  EXPECT_EQ(a->next_position(), before);
  EXPECT_EQ(b->next_position(), before);
  EXPECT_EQ(a->visible_positions(0).size(), static_cast<size_t>(before));
  EXPECT_EQ(b->visible_positions(0).size(), static_cast<size_t>(before));
}

// A key or value beyond f16 is an error of its sequence, not a text; a wider row type holds it.
TEST(Failure, LogitsThatAreNotFiniteAreAnErrorOfTheirSequence) {
  const TempFolder folder;
  const std::string path = folder.File("model.gguf");
  ExpectOk(WriteRandomGguf(SmallModelOptions(), path));
  auto file = GgufEdit::Open(path);
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  ggml_tensor* const values = file->tensor("blk.0.attn_v.weight");
  ASSERT_EQ(values->type, GGML_TYPE_F32);
  for (int64_t i = 0; i < ggml_nelements(values); ++i) {
    static_cast<float*>(values->data)[i] *= 1e7F;
  }
  ExpectOk(file->Save(path));
  const auto model = Model::Load({.path = path});
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  for (const bool whole : {true, false}) {
    auto engine = MakeEngineOf(*model, {.threads = 1});
    auto session = Open(*engine);
    Status status;
    if (whole) {
      status = session->Prefill(SomeTokens(20)).status;
    } else {
      ExpectOk(session->BeginPrompt(SomeTokens(20)));
      std::vector<SessionStep> batch = {{.session = session.get()}};
      status = engine->Step(batch).status;
      EXPECT_EQ(batch[0].status.code(), StatusCode::kCorrupt);
    }
    EXPECT_EQ(status.code(), StatusCode::kCorrupt);
    EXPECT_THAT(status.message(), HasSubstr("not finite"));
    EXPECT_THAT(status.message(), HasSubstr("--kv-type"));
  }
  for (const RowType type : {RowType::kBf16, RowType::kF32}) {
    auto engine = MakeEngineOf(*model, {.threads = 1, .kv_type = type});
    auto session = Open(*engine);
    ExpectOk(session->Prefill(SomeTokens(20)));
    ExpectOk(session->Decode(5));
  }
}

TEST(Failure, TheContextsEndIsSaid) {
  auto engine = MakeEngine();
  SessionOptions options;
  options.context = 40;
  auto session = Open(*engine, options);
  const Status too_long = session->Prefill(SomeTokens(41)).status;
  EXPECT_EQ(too_long.message(),
            "the context of 40 tokens is full: it has 0, and 41 more do not fit");
  EXPECT_EQ(session->next_position(), 0);
  ExpectOk(session->Prefill(SomeTokens(39)));
  ExpectOk(session->Decode(5));
  const Status full = session->Decode(5).status;
  EXPECT_EQ(full.code(), StatusCode::kContextFull);
  EXPECT_THAT(full.message(), HasSubstr("context of 40 tokens"));
  EXPECT_EQ(session->next_position(), 40);
}

TEST(Failure, AContextBeyondTheTrainedOneIsRefused) {
  auto engine = MakeEngine();
  SessionOptions options;
  options.context = 4096;
  EXPECT_THAT(engine->OpenSession(options).status().message(), HasSubstr("trained for 2048"));
  options.context = -1;
  EXPECT_FALSE(engine->OpenSession(options).ok());
}

TEST(Failure, TokensOutsideTheVocabularyAreRefused) {
  auto engine = MakeEngine();
  auto session = Open(*engine);
  const Token bad[] = {5, 1 << 30};
  EXPECT_THAT(session->Prefill(bad).status.message(), HasSubstr("not in the vocabulary"));
  EXPECT_EQ(session->next_position(), 0);
  EXPECT_FALSE(session->Decode(-1).ok());
  EXPECT_FALSE(session->Prefill({}).ok());
}

TEST(Failure, ABudgetSmallerThanWhatIsProtectedIsRefusedOnceThePromptIsKnown) {
  auto engine = MakeEngine();
  auto session = Open(*engine, SmallPolicy("attention", "60"));
  const Status status = session->Prefill(SomeTokens(200)).status;
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.ToString();
  EXPECT_THAT(status.message(), HasSubstr("60"));
}

TEST(Failure, ReadingStopsWhenCancelled) {
  auto engine = MakeEngine({.threads = 1, .prefill_chunk = 32});
  auto session = Open(*engine);
  std::atomic<bool> cancel = false;
  PrefillOptions options;
  options.cancel = &cancel;
  options.progress = [&](size_t done) { cancel = done >= 64; };
  EXPECT_EQ(session->Prefill(SomeTokens(200), options).status.code(), StatusCode::kCancelled);
  EXPECT_EQ(session->next_position(), 64);
}

TEST(Failure, OptionsOutOfRangeAreRefused) {
  const auto refusal = [](const EngineOptions& options) {
    return Engine::Create(SmallModel(), options).status().Text();
  };
  EXPECT_THAT(refusal({.threads = -1}), testing::StartsWith("threads: expected 0 to "));
  EXPECT_THAT(refusal({.threads = 100000}), testing::EndsWith(", found 100000"));
  EXPECT_EQ(refusal({.threads = 1, .prefill_chunk = 0}),
            "prefill_chunk: expected at least 1 token, found 0");
  EXPECT_EQ(refusal({.threads = 1, .kv_cap_bytes = 8 << 20, .tiers = EngineTiers()}),
            "kv_cap_bytes: cannot be combined with these tiers, which take caps on T0 and T1; a "
            "compressed cache without a T1 takes it");
  EXPECT_THAT(refusal({.threads = 1, .t1_mode = T1Mode::kCompute}),
              testing::StartsWith("t1_mode: compute needs a device with memory of its own"));
  EXPECT_FALSE(Engine::Create(SmallModel(), {.threads = 1, .kv_cap_bytes = 1000}).ok());
}

TEST(Failure, AnUnknownKernelNamesTheKnownOnes) {
  ASSERT_EQ(setenv("EBB_ATTENTION", "abacus", 1), 0);
  const Status status = Engine::Create(SmallModel(), {.threads = 1}).status();
  unsetenv("EBB_ATTENTION");
  EXPECT_THAT(status.message(), HasSubstr("abacus"));
  EXPECT_THAT(status.message(), HasSubstr("reference"));
}

// Runs out of memory when it decides for the third time.
class Failing final : public Placement {
 public:
  std::string Name() const override { return "failing"; }
  bool NeedsScores() const override { return false; }
  bool Due(const PlacementInput&, size_t) const override { return true; }
  void Place(const PlacementInput& input, std::vector<Move>* moves) override {
    if (++calls_ == 3) throw std::bad_alloc();
    if (input.positions.size() > 10) moves->push_back({.row = 0, .to = Tier::kT3});
  }

 private:
  int calls_ = 0;
};

TEST(Failure, APolicyWithoutMemoryEndsItsSequenceAlone) {
  auto engine = MakeEngine();
  SessionOptions options;
  options.make_policy = [](const PolicyContext& context) -> Result<Policy> {
    EBB_ASSIGN_OR_RETURN(Policy policy, MakePolicy({.name = "full"}, context));
    policy.placement = std::make_unique<Failing>();
    return policy;
  };
  auto session = Open(*engine, options);
  auto bystander = Open(*engine);
  ExpectOk(session->Prefill(SomeTokens(20)));
  ExpectOk(bystander->Prefill(SomeTokens(20)));
  Session* const both[] = {session.get(), bystander.get()};
  const Token tokens[] = {5, 6};
  ExpectOk(engine->DecodeBatch(both, tokens));
  EXPECT_EQ(engine->DecodeBatch(both, tokens).status.code(), StatusCode::kOutOfMemory);
  // Both have taken the token; one cannot go on.
  EXPECT_EQ(session->next_position(), 22);
  EXPECT_EQ(bystander->next_position(), 22);
  EXPECT_THAT(session->Decode(5).status.message(), HasSubstr("cannot go on"));
  EXPECT_EQ(session->TruncateTo(3).code(), StatusCode::kOutOfMemory);
  ExpectOk(bystander->Decode(5));
}

// Behind a prompt of 150 tokens: parts the tables of the groups, then empties their first pages,
// but for one that has no memory for that.
class FailingApart final : public Placement {
 public:
  std::string Name() const override { return "failing_apart"; }
  bool NeedsScores() const override { return true; }
  bool GroupsAreIndependent() const override { return true; }
  bool Due(const PlacementInput& input, size_t) const override {
    return input.step_kind == StepKind::kDecode;
  }
  void Place(const PlacementInput& input, std::vector<Move>* moves) override {
    const bool first = input.next_position == 151;
    if (!first && input.group == 3) throw std::bad_alloc();
    for (uint32_t row = 0; row < (first ? 1 : 100); ++row) moves->push_back({row, Tier::kT3});
  }
};

TEST(Failure, APolicyWhoseThreadHasNoMemoryLeaksNoPage) {
  for (const int threads : {1, 2, 3}) {
    auto engine = MakeEngine({.threads = threads});
    SessionOptions options;
    options.make_policy = [](const PolicyContext& context) -> Result<Policy> {
      EBB_ASSIGN_OR_RETURN(Policy policy, MakePolicy(SmallPolicy("h2o", "64"), context));
      policy.placement = std::make_unique<FailingApart>();
      return policy;
    };
    auto session = Open(*engine, options);
    ExpectOk(session->Prefill(SomeTokens(150)));
    ExpectOk(session->Decode(5));
    EXPECT_EQ(session->accounting().num_tables, 4);
    EXPECT_EQ(session->Decode(6).status.code(), StatusCode::kOutOfMemory);
    EXPECT_EQ(session->accounting().rows_evicted, 4 + 3 * 100);
    EXPECT_EQ(engine->arena_accounting().used_bytes, session->accounting().tiers[0].page_bytes);
    EXPECT_THAT(session->Decode(5).status.message(), HasSubstr("cannot go on"));
    session.reset();
    EXPECT_EQ(engine->arena_accounting().used_bytes, 0u);
  }
}

}  // namespace
}  // namespace ebb

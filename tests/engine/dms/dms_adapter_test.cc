// Models that mark rows by tensors of their own: beside them the base model computes what it always
// does, and their file may be a second one.
#include <gmock/gmock.h>

#include "tests/engine/dms/dms_fixture.h"
#include "tests/engine/sessions/session_fixture.h"

namespace ebb {
namespace {

EBB_CPU_ONLY_FILE("tests/engine/devices/backend_device_test.cc has marked rows over devices");

using testing::HasSubstr;

// A model that marks nothing, it with the tensors in its file, and it with an adapter's file.
struct Models {
  std::shared_ptr<const Model> base, whole, joined;
};

Models Write(RandomGgufOptions options) {
  const TempFolder folder;
  const std::string base = folder.File("base.gguf"), whole = folder.File("whole.gguf");
  const std::string adapter = folder.File("adapter.gguf");
  options.eviction_window = 0;
  ExpectOk(WriteRandomGguf(options, base));
  options.eviction_window = kMarksWindow;
  options.marks = Marks::kAdapter;
  ExpectOk(WriteRandomGguf(options, whole));
  ExpectOk(WriteRandomAdapter(options, adapter));
  const auto load = [](const ModelOptions& from) {
    auto model = Model::Load(from);
    EXPECT_TRUE(model.ok()) << model.status().ToString();
    return *model;
  };
  return {.base = load({.path = base}),
          .whole = load({.path = whole}),
          .joined = load({.path = base, .adapter = adapter})};
}

// A session that read a prompt and decoded.
std::unique_ptr<Session> RunOf(Engine& engine, const SessionOptions& options) {
  auto session = Open(engine, options);
  const std::vector<Token> tokens = SomeTokens(70);
  ExpectOk(session->Prefill(std::span(tokens).first(45)));
  for (size_t i = 45; i < tokens.size(); ++i) ExpectOk(session->Decode(tokens[i]));
  return session;
}

TEST(DmsAdapter, WhoAsksForNoMarksComputesTheBaseModelBitForBit) {
  for (const ModelVariant& variant : ModelVariants()) {
    SCOPED_TRACE(variant.name);
    const Models models = Write(variant.options);
    for (const char* policy : {"full", "h2o"}) {
      SessionOptions options;
      options.policy = SmallPolicy(policy, "48");
      auto base_engine = MakeEngineOf(models.base);
      const uint64_t expected = RunOf(*base_engine, options)->logits_hash();
      for (const auto& model : {models.whole, models.joined}) {
        auto engine = MakeEngineOf(model);
        EXPECT_EQ(RunOf(*engine, options)->logits_hash(), expected) << policy;
      }
    }
    // Nor do the marks change anything that only watches them.
    SessionOptions watching;
    auto base_engine = MakeEngineOf(models.base);
    const uint64_t expected = RunOf(*base_engine, watching)->logits_hash();
    watching.extra_signals.eviction_logits = true;
    auto engine = MakeEngineOf(models.joined);
    EXPECT_EQ(RunOf(*engine, watching)->logits_hash(), expected);
  }
}

TEST(DmsAdapter, InAFileOfItsOwnItMarksTheSameRows) {
  for (const ModelVariant& variant : ModelVariants()) {
    SCOPED_TRACE(variant.name);
    const Models models = Write(variant.options);
    SessionOptions options;
    options.policy = kDms;
    auto whole_engine = MakeEngineOf(models.whole), joined_engine = MakeEngineOf(models.joined);
    const auto whole = RunOf(*whole_engine, options), joined = RunOf(*joined_engine, options);
    const int num_groups = models.whole->shape().NumGroups(Granularity::kHead);
    EXPECT_EQ(joined->logits_hash(), whole->logits_hash());
    EXPECT_EQ(VisibleRows(*joined, num_groups), VisibleRows(*whole, num_groups));
    EXPECT_GT(whole->accounting().rows_evicted, 0);
  }
}

TEST(DmsAdapter, ASessionIsOneOfTheModelAndItsAdapter) {
  const Models models = Write(SmallModelOptions());
  RandomGgufOptions other_options = SmallModelOptions();
  other_options.eviction_shift = 2;
  const Models others = Write(other_options);
  const TempFolder folder;
  const std::string path = folder.File("session");
  auto engine = MakeEngineOf(models.joined);
  ExpectOk(SaveSession(*RunOf(*engine, SessionOptions()), path));
  ExpectOk(ResumeSession(*engine, path, SessionOptions()).status());
  for (const auto& model : {models.base, models.whole, others.joined}) {
    auto other = MakeEngineOf(model);
    const Status refused = ResumeSession(*other, path, SessionOptions()).status();
    EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(refused.message(), HasSubstr("a session of another model"));
  }
}

}  // namespace
}  // namespace ebb

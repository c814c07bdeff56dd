// Lossless generation on the default model, over thoughts of 2,000 tokens: what a user would see
// with
//   ebb run --raw -p PROMPT -n 2000 --ignore-eos --temp 0.8 --seed 1 --lossless --json
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ebb/generate.h"
#include "src/model/sampling/gumbel_draw.h"
#include "tests/support/default_model.h"
#include "tests/support/engine/libllama_runner.h"
#include "tests/support/engine/long_thought.h"
#include "tests/support/logits.h"
#include "tests/support/skip.h"

namespace ebb {
namespace {

constexpr int kThreads = 1;  // a busy machine makes more of them spin
constexpr int kTokens = 2000;

using Verify = LosslessOptions::Verify;

struct Sampling {
  std::string name;
  float temperature;
  uint64_t seed;
};
const Sampling kSamplings[] = {
    {"Greedy", 0, 0}, {"Seed1", 0.8F, 1}, {"Seed2", 0.8F, 2}, {"Seed3", 0.8F, 3}};

size_t IndexOf(const Sampling& sampling) {
  return std::ranges::find(kSamplings, sampling.name, &Sampling::name) - std::begin(kSamplings);
}

SamplingOptions OptionsOf(const Sampling& sampling) {
  // Nothing is cut off, so that what decides between two tokens is one comparison.
  return {.temperature = sampling.temperature,
          .top_k = 0,
          .top_p = 1,
          .min_p = 0,
          .seed = sampling.seed};
}

struct Draft {
  std::string name;
  PolicySpec policy;
  EngineTiers tiers;  // the place of T1
};

std::vector<Draft> Drafts() {
  return {{"window 256", {.name = "streaming", .sinks = 4, .window = 256}, {.t1 = T1Place::kFile}},
          {"attention at 10 %",
           {.name = "attention", .budget = *ParseBudget("10%")},
           {.t1 = T1Place::kHost}},
          {"int4 T2",
           {.name = "attention", .tiers = TierShares{.t0_share = 1, .t2_share = 1}},
           {.t1 = T1Place::kHost, .t2_type = CompressedType::kInt4}}};
}

struct Thought {
  std::vector<Token> tokens;
  std::string text;
  uint64_t hash = 0;
  LosslessReport report;
};

class LosslessThoughts : public testing::TestWithParam<Sampling> {
 protected:
  void SetUp() override {
    if (DefaultModelPath().empty()) EBB_SKIP_WITHOUT("default_model") << kNoDefaultModel;
  }
  void Load(WeightMode weights) {
    auto model = Model::Load({.path = DefaultModelPath(), .weights = weights});
    ASSERT_TRUE(model.ok()) << model.status().ToString();
    model_ = *std::move(model);
    const auto engine = Engine::Create(model_, {.threads = 1, .tiers = EngineTiers()});
    if (engine.status().code() == StatusCode::kUnsupported) {
      EBB_SKIP_WITHOUT("direct_io") << engine.status().message();  // a disk without direct reads
    }
  }
  [[nodiscard]] std::vector<Token> Prompt(const char* text) const {
    return *model_->Tokenize(text, Model::AddBos::kAsModelSays, Model::Specials::kAsText);
  }
  [[nodiscard]] Thought Think(const char* prompt, const EngineOptions& engine_options,
                              const SessionOptions& options) const {
    auto engine = *Engine::Create(model_, engine_options);
    auto session = *engine->OpenSession(options);
    EXPECT_TRUE(session->Prefill(Prompt(prompt)).ok());
    auto sampler = *Sampler::Create(*model_, OptionsOf(GetParam()));
    GenerateResult result = Generate(
        *session, *sampler, {.max_tokens = kTokens, .on_end = GenerateOptions::OnEnd::kIgnore});
    EXPECT_EQ(result.finish_reason, FinishReason::kLength) << result.error.ToString();
    const LosslessReport* report = session->lossless_report();
    return {.tokens = std::move(result.answer.tokens),
            .text = std::move(result.text),
            .hash = session->logits_hash(),
            .report = report == nullptr ? LosslessReport() : *report};
  }

  std::shared_ptr<const Model> model_;
};

TEST_P(LosslessThoughts, HaveTheTextAndTheBitsOfTheFullCache) {
  ASSERT_NO_FATAL_FAILURE(Load(WeightMode::kAsStored));
  for (const char* prompt : kThoughtPrompts) {
    const Thought full = Think(prompt, {.threads = kThreads}, {});
    for (const Draft& draft : Drafts()) {
      const Thought lossless =
          Think(prompt, {.threads = kThreads, .tiers = draft.tiers},
                {.policy = draft.policy, .lossless = LosslessOptions{.draft_min = 4}});
      EXPECT_EQ(lossless.text, full.text) << draft.name << ": " << prompt;
      EXPECT_EQ(lossless.hash, full.hash) << draft.name << ": " << prompt;
      EXPECT_GT(lossless.report.accepted, kTokens / 2) << draft.name;
    }
  }
}

// How much less the full cache likes `token` than the one that it would have taken.
double Gap(std::span<const float> logits, Token token, Position position, const Sampling& sampling,
           const Model& model) {
  const auto value = [&](Token of) {
    if (sampling.temperature == 0) return double{logits[of]};
    return logits[of] / double{sampling.temperature} + GumbelNoise(sampling.seed, position, of);
  };
  double most = -std::numeric_limits<double>::infinity();
  for (Token of = 0; of < static_cast<Token>(logits.size()); ++of) {
    if (!model.EndsGeneration(of)) most = std::max(most, value(of));
  }
  return most - value(token);
}

// With F32 weights and rows a product over many columns rounds in the last bits alone: the text is
// the full cache's but where two tokens are as good.
TEST_P(LosslessThoughts, VerifiedFastAreThoseOfTheFullCacheButForTies) {
  ASSERT_NO_FATAL_FAILURE(Load(WeightMode::kDequantize));
  const EngineOptions engine_options = {.threads = kThreads, .kv_type = RowType::kF32};
  int ties = 0;
  // Two of the prompts, others for each sampling: such weights take four times as long to read.
  for (const size_t i : {0, 1}) {
    const size_t number = 2 * IndexOf(GetParam()) + i;
    const char* prompt = kThoughtPrompts[number % std::size(kThoughtPrompts)];
    for (const Draft& draft : Drafts()) {
      EngineOptions with_tiers = engine_options;
      with_tiers.tiers = draft.tiers;
      const Thought lossless =
          Think(prompt, with_tiers,
                {.policy = draft.policy,
                 .lossless = LosslessOptions{.verify = Verify::kFast, .draft_min = 4}});
      std::vector<Token> all = Prompt(prompt);
      const size_t first = all.size();
      all.insert(all.end(), lossless.tokens.begin(), lossless.tokens.end());
      auto engine = *Engine::Create(model_, engine_options);
      auto session = *engine->OpenSession({});
      PrefillOptions prefill;
      prefill.on_logits = [&](Position position, std::span<const float> logits) {
        const size_t next = static_cast<size_t>(position) + 1;
        if (next < first || next >= all.size()) return;
        const double gap = Gap(logits, all[next], position + 1, GetParam(), *model_);
        EXPECT_LE(gap, 1e-3) << draft.name << " at " << next << ": " << prompt;
        ties += gap > 0 ? 1 : 0;
      };
      EXPECT_TRUE(session->Prefill(all, prefill).ok());
    }
  }
  RecordProperty("ties", ties);
}

INSTANTIATE_TEST_SUITE_P(Samplings, LosslessThoughts, testing::ValuesIn(kSamplings),
                         [](const auto& info) { return info.param.name; });

// Products that take several columns at once round quantised activations as ever, but sum up in
// another order.
using LosslessRounding = LosslessThoughts;
TEST_P(LosslessRounding, VerifiedFastIsNoFurtherFromTheFullCacheThanLibllamaFromItself) {
  ASSERT_NO_FATAL_FAILURE(Load(WeightMode::kAsStored));
  const int vocab_size = model_->shape().vocab_size;
  constexpr size_t kCompared = 1000;
  std::vector<Token> text = Prompt(kThoughtPrompts[0]);
  const size_t first = text.size();
  const Thought full = Think(kThoughtPrompts[0], {.threads = kThreads}, {});
  text.insert(text.end(), full.tokens.begin(), full.tokens.begin() + kCompared);
  const std::span<const Token> to_come = std::span(text).subspan(first);
  const auto logits = [&](const SessionOptions& options) {
    auto engine = *Engine::Create(model_, {.threads = kThreads});
    auto session = *engine->OpenSession(options);
    EXPECT_TRUE(session->Prefill(std::span(text).first(first)).ok());
    std::vector<float> all;
    for (size_t i = 0; i < to_come.size(); ++i) {
      size_t next = i + 1;
      const Guess guess = [&](std::span<const float>) -> std::optional<Token> {
        return next < to_come.size() ? std::optional(to_come[next++]) : std::nullopt;
      };
      EXPECT_TRUE(session->Decode(to_come[i], guess).ok());
      all.insert(all.end(), session->logits().begin(), session->logits().end());
    }
    return all;
  };
  const std::vector<float> expected = logits({});
  SessionOptions lossless = {.policy = Drafts().front().policy};
  lossless.lossless = LosslessOptions{.verify = Verify::kFast, .draft_min = 16, .draft_max = 16};
  const double ours = MeanKl(expected, logits(lossless), vocab_size);

  const auto libllamas = [&](LibllamaOptions::FlashAttention flash_attention) {
    auto runner = LibllamaRunner::Create({.path = DefaultModelPath(),
                                          .threads = kThreads,
                                          .kv_type = RowType::kF16,
                                          .flash_attention = flash_attention});
    EXPECT_TRUE(runner.ok()) << runner.status().ToString();
    EXPECT_TRUE((*runner)->Append(std::span(text).first(first)).ok());
    std::vector<float> all;
    for (size_t i = first; i < text.size(); ++i) {
      const auto step = (*runner)->Append(std::span(text).subspan(i, 1));
      EXPECT_TRUE(step.ok());
      all.insert(all.end(), step->begin(), step->end());
    }
    return all;
  };
  const double libllama = MeanKl(libllamas(LibllamaOptions::FlashAttention::kOff),
                                 libllamas(LibllamaOptions::FlashAttention::kOn), vocab_size);
  RecordProperty("mean_kl", std::to_string(ours));
  RecordProperty("mean_kl_of_libllama", std::to_string(libllama));
  EXPECT_GT(ours, 0);
  EXPECT_LE(ours, libllama);
}
INSTANTIATE_TEST_SUITE_P(Samplings, LosslessRounding, testing::Values(kSamplings[1]),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace ebb

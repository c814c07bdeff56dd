#include "tests/support/engine/long_thought.h"

#include <gtest/gtest.h>

#include "ebb/generate.h"
#include "ebb/model.h"

namespace ebb {

LongThought Think(const std::shared_ptr<const Model>& model, const std::string& prompt,
                  const EngineOptions& options, const std::optional<TierShares>& shares) {
  const auto engine = Engine::Create(model, options);
  EXPECT_TRUE(engine.ok()) << engine.status().ToString();
  if (!engine.ok()) return {};
  SessionOptions session_options;
  if (shares.has_value()) session_options.policy = {.name = "attention", .tiers = shares};
  const auto session = (*engine)->OpenSession(session_options);
  const auto sampler = Sampler::Create(*model, {.temperature = 0});
  const auto tokens = model->Tokenize(prompt, Model::AddBos::kAsModelSays, Model::Specials::kParse);
  EXPECT_TRUE(session.ok() && sampler.ok() && tokens.ok());
  if (!session.ok() || !sampler.ok() || !tokens.ok()) return {};
  const Status read = (*session)->Prefill(*tokens).status;
  EXPECT_TRUE(read.ok()) << read.ToString();
  GenerateOptions generate;
  generate.max_tokens = kThoughtTokens;
  generate.on_end = GenerateOptions::OnEnd::kIgnore;
  const GenerateResult result = Generate(**session, **sampler, generate);
  EXPECT_EQ(result.generated_tokens, kThoughtTokens) << result.error.ToString();
  const auto all = (*session)->tokens();
  return {.hash = (*session)->logits_hash(),
          .tokens = {all.begin(), all.end()},
          .cache = (*session)->accounting(),
          .device = (*engine)->device_report()};
}

}  // namespace ebb

// Describes the server as llama-server does: GET /props and GET /slots.
#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "src/server/api/openai/llama_settings.h"
#include "src/server/server_impl.h"

namespace ebb::server {
namespace {

std::string TextOfToken(const Model& model, std::optional<Token> token) {
  return token.has_value() ? model.TokenText(*token, Model::ControlTokens::kShow) : "";
}

// Formats a share as the options of `ebb serve` take it; T2Text() does so for T2.
std::string ShareText(double share) { return fmt::format("{:.6g}%", share * 100); }
std::string T2Text(const TierSetting& tiers) {
  const std::string rows =
      CompressesOldRows(tiers.shares) ? std::string("old") : ShareText(tiers.shares.t2_share);
  const CompressedType type = tiers.engine.t2_type.value_or(kDefaultT2Type);
  return fmt::format("{}:{}", rows, CompressedTypeName(type));
}

}  // namespace

int Server::Impl::Context() const {
  const int given = options.defaults.session.context;
  return given > 0 ? given : model->shape().trained_context;
}

Json Server::Impl::Props() const {
  return {{"default_generation_settings",
           {{"params", LlamaDefaults(options.defaults)}, {"n_ctx", Context()}}},
          {"total_slots", options.driver.most_running},
          {"model_alias", options.defaults.model_id},
          {"model_path", options.model_file},
          {"modalities", {{"vision", false}, {"audio", false}}},
          {"endpoint_slots", true},
          {"endpoint_props", false},
          {"endpoint_metrics", true},
          {"chat_template", model->chat_template()},
          {"bos_token", TextOfToken(*model, model->BeginToken())},
          {"eos_token", TextOfToken(*model, model->EndToken())},
          {"build_info", fingerprint},
          {"is_sleeping", false},
          {"ebb", OwnProps()}};
}

Json Server::Impl::OwnProps() const {
  const SessionOptions& session = options.defaults.session;
  Json policies = Json::array();
  for (const PolicyInfo& policy : BuiltinPolicies()) {
    // Skips the oracle, whose scores need a text that is known already.
    if (policy.scorer == "oracle") continue;
    policies.push_back({{"name", policy.name},
                        {"description", policy.description},
                        {"takes_budget", !policy.percent_of.empty()}});
  }
  Json tiers;
  if (const auto& engine = options.defaults.engine; engine.tiers.has_value()) {
    SessionOptions placed;
    placed.policy.tiers = session.policy.tiers.value_or(TierShares());
    const TierSetting seen = *TiersOf(engine, placed);
    tiers = {{"t0", ShareText(seen.shares.t0_share.value_or(kDefaultT0Share))},
             {"t0_cap_bytes", engine.tiers->t0_cap_bytes},
             {"t1", T1PlaceName(*seen.engine.t1)},
             {"t2", T2Text(seen)},
             {"evict", ShareText(seen.shares.evict_share)}};
  }
  return {{"sessions", keeper != nullptr},
          {"chat_page", options.chat_page == ChatPageMode::kOn},
          {"dashboard", options.dashboard != DashboardMode::kOff},
          {"thinks", thinks},
          {"thinking_budget", options.defaults.generate.thinking_budget},
          {"lossless", session.lossless.has_value()},
          {"policy", session.policy.name},
          {"policies", std::move(policies)},
          {"tiers", std::move(tiers)}};
}

// Reports as many busy slots as requests run: a slot has no memory of its own, so a request has no
// fixed slot.
Json Server::Impl::Slots() const {
  const Figures figures = driver->figures();
  const size_t num_running = figures.reading + figures.decoding;
  Json slots = Json::array();
  for (size_t i = 0; i < options.driver.most_running; ++i) {
    slots.push_back({{"id", i},
                     {"n_ctx", Context()},
                     {"speculative", options.defaults.session.speculation != Speculation::kOff},
                     {"is_processing", i < num_running}});
  }
  return slots;
}

}  // namespace ebb::server

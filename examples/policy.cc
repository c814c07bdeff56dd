// A policy of one's own in one file: a row stays when any step ever looked at it hard. Its score is
// the most mass that it received in one step, where `attention` sums the mass of all steps.
// Usage: policy MODEL.gguf [PROMPT]
#include <algorithm>
#include <cstdio>
#include <memory>
#include <vector>

#include "ebb/engine.h"
#include "ebb/generate.h"
#include "ebb/model.h"
#include "ebb/policy.h"

namespace {

class PeakScorer final : public ebb::Scorer {
 public:
  explicit PeakScorer(int num_groups) : peaks_(static_cast<size_t>(num_groups)) {}

  std::string Name() const override { return "attention_peak"; }
  ebb::SignalNeeds Needs() const override { return {.mass = ebb::MassNeed::kSummed}; }
  void Append(int group, std::span<const ebb::Position> positions) override {
    Of(group).resize(Of(group).size() + positions.size());
  }
  void ObserveGroup(int group, const ebb::GroupSignals& signals, const ebb::StepSignals&) override {
    std::vector<float>& peaks = Of(group);
    for (size_t row = 0; row < signals.mass.size(); ++row)
      peaks[row] = std::max(peaks[row], signals.mass[row]);
  }
  void Retain(int group, std::span<const uint32_t> kept) override {
    std::vector<float>& peaks = Of(group);
    for (size_t i = 0; i < kept.size(); ++i) peaks[i] = peaks[kept[i]];
    peaks.resize(kept.size());
  }
  std::span<const float> Scores(int group) override { return Of(group); }

 private:
  std::vector<float>& Of(int group) { return peaks_[static_cast<size_t>(group)]; }

  std::vector<std::vector<float>> peaks_;  // [groups][rows]
};

ebb::Status Run(const char* path, const char* prompt) {
  const auto policies = std::make_shared<ebb::PolicyRegistry>();
  EBB_RETURN_IF_ERROR(
      policies->Add({.name = "attention_peak",
                     .description = "rows that never received much attention in one step go",
                     .granularity = ebb::Granularity::kLayer,
                     .make_scorer = [](const ebb::PolicyExtension::Context& context) {
                       return std::make_unique<PeakScorer>(context.NumGroups());
                     }}));

  EBB_ASSIGN_OR_RETURN(auto model, ebb::Model::Load({.path = path}));
  EBB_ASSIGN_OR_RETURN(auto engine,
                       ebb::Engine::Create(model, {.threads = 2, .policies = policies}));
  ebb::SessionOptions options;
  EBB_RETURN_IF_ERROR(ebb::ParsePolicy("attention_peak", &options.policy));
  EBB_ASSIGN_OR_RETURN(options.policy.budget, ebb::ParseBudget("25%"));
  options.policy.window = 16;
  options.policy.interval = 16;
  EBB_ASSIGN_OR_RETURN(auto session, engine->OpenSession(options));

  EBB_ASSIGN_OR_RETURN(auto tokens, model->Tokenize(prompt, ebb::Model::AddBos::kAsModelSays,
                                                    ebb::Model::Specials::kAsText));
  EBB_RETURN_IF_ERROR(session->Prefill(tokens).status);
  EBB_ASSIGN_OR_RETURN(auto sampler, ebb::Sampler::Create(*model, {.temperature = 0}));
  const auto result = ebb::Generate(*session, *sampler, {.max_tokens = 128});
  EBB_RETURN_IF_ERROR(result.error);

  const auto cache = session->accounting();
  std::printf("%s: %d tokens; %lld rows stay, %lld were evicted\n", session->policy().name.c_str(),
              result.generated_tokens, static_cast<long long>(cache.tiers[0].rows),
              static_cast<long long>(cache.rows_evicted));
  return ebb::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::puts("usage: policy MODEL.gguf [PROMPT]");
    return 0;
  }
  const ebb::Status status = Run(argv[1], argc > 2 ? argv[2] : "The tide ebbs because");
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}

// Names the samplers, and reads a list of names.
#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "ebb/sampler.h"

namespace ebb {
namespace {

constexpr std::array<std::pair<std::string_view, SamplerStage>, 9> kStages = {
    {{"penalties", SamplerStage::kPenalties},
     {"dry", SamplerStage::kDry},
     {"top_n_sigma", SamplerStage::kTopNSigma},
     {"top_k", SamplerStage::kTopK},
     {"typ_p", SamplerStage::kTypicalP},
     {"top_p", SamplerStage::kTopP},
     {"min_p", SamplerStage::kMinP},
     {"xtc", SamplerStage::kXtc},
     {"temperature", SamplerStage::kTemperature}}};

}  // namespace

std::string_view SamplerStageName(SamplerStage stage) {
  return kStages[static_cast<size_t>(stage)].first;
}

std::optional<SamplerStage> FindSamplerStage(std::string_view name) {
  const auto found = std::ranges::find(kStages, name, &decltype(kStages)::value_type::first);
  return found == kStages.end() ? std::nullopt : std::optional(found->second);
}

Result<std::vector<SamplerStage>> ParseSamplerStages(std::string_view text) {
  std::vector<SamplerStage> stages;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find_first_of(";,", begin), text.size());
    const std::string_view name = text.substr(begin, end - begin);
    const std::optional<SamplerStage> stage = FindSamplerStage(name);
    if (!stage.has_value()) {
      std::string all;
      for (const auto& [one, _] : kStages) all += fmt::format("{}{}", all.empty() ? "" : ";", one);
      return InvalidArgument("samplers",
                             fmt::format("expected samplers of {}, found \"{}\"", all, name));
    }
    if (std::ranges::count(stages, *stage) > 0) {
      return InvalidArgument("samplers",
                             fmt::format("expected each sampler once, found {} twice", name));
    }
    stages.push_back(*stage);
    begin = end + 1;
  }
  return stages;
}

}  // namespace ebb

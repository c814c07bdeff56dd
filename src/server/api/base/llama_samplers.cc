#include "src/server/api/base/llama_samplers.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

namespace ebb::server {
namespace {

// kLetters are llama-server's short names; '?' marks samplers that ebb lacks.
constexpr std::array<std::pair<char, std::string_view>, 11> kLetters = {{{'e', "penalties"},
                                                                         {'d', "dry"},
                                                                         {'s', "top_n_sigma"},
                                                                         {'k', "top_k"},
                                                                         {'y', "typ_p"},
                                                                         {'p', "top_p"},
                                                                         {'m', "min_p"},
                                                                         {'x', "xtc"},
                                                                         {'t', "temperature"},
                                                                         {'i', "infill"},
                                                                         {'a', "adaptive_p"}}};

std::vector<std::string> SamplerNamesIn(const Json& json, JsonFields* fields) {
  std::vector<std::string> names;
  if (json.is_string()) {
    for (const char letter : json.get<std::string>()) {
      const auto found =
          std::ranges::find(kLetters, letter, &decltype(kLetters)::value_type::first);
      names.emplace_back(found == kLetters.end() ? std::string_view(&letter, 1) : found->second);
    }
    return names;
  }
  if (!json.is_array()) {
    fields->Fail("samplers", "expected an array of names, or a string", "invalid_type");
    return names;
  }
  for (const Json& name : json) {
    if (!name.is_string()) {
      fields->Fail("samplers", "expected names, which are strings", "invalid_type");
      break;
    }
    names.push_back(name.get<std::string>());
  }
  return names;
}

}  // namespace

std::vector<std::string> ReadLlamaSamplers(JsonFields* fields, SamplingOptions* sampling) {
  std::vector<std::string> unknown;
  const Json* json = fields->Any("samplers");
  if (json == nullptr) return unknown;
  sampling->samplers.clear();
  for (std::string& name : SamplerNamesIn(*json, fields)) {
    const std::optional<SamplerStage> stage =
        name == "typical_p" ? SamplerStage::kTypicalP : FindSamplerStage(name);
    if (!stage.has_value()) {
      unknown.push_back(std::move(name));
    } else if (std::ranges::count(sampling->samplers, *stage) == 0) {
      sampling->samplers.push_back(*stage);
    }
  }
  return unknown;
}

void RefuseLlamaSamplers(JsonFields* fields) {
  const auto target = fields->Number("adaptive_target", {});
  if (!target.has_value() || *target < 0) return;
  fields->Fail("adaptive_target",
               fmt::format("expected a negative value, which switches this sampler off, which ebb "
                           "has not, found {}",
                           *target),
               "unsupported");
}

std::vector<std::string_view> LlamaSamplerNames(const SamplingOptions& sampling) {
  std::vector<std::string_view> names;
  for (const SamplerStage stage : sampling.samplers) names.push_back(SamplerStageName(stage));
  return names;
}

}  // namespace ebb::server

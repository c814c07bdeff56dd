#include "src/server/api/llama/llama_samplers.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <optional>
#include <span>

#include <fmt/format.h>

namespace ebb::server {
namespace {

struct LlamaSampler {
  char letter;
  std::string_view name;
};
// kOwnSamplers lists ebb's samplers in the order in which they run.
constexpr LlamaSampler kOwnSamplers[] = {
    {'e', "penalties"}, {'k', "top_k"}, {'p', "top_p"}, {'m', "min_p"}, {'t', "temperature"}};
constexpr LlamaSampler kOtherSamplers[] = {{'d', "dry"}, {'s', "top_n_sigma"}, {'y', "typ_p"},
                                           {'x', "xtc"}, {'i', "infill"},      {'a', "adaptive_p"}};

// OffParameter is a parameter with the range of values that switch its sampler off.
struct OffParameter {
  const char* name;
  double least_off;
  double most_off;
};
constexpr double kAny = std::numeric_limits<double>::max();
constexpr OffParameter kOffParameters[] = {
    {"dynatemp_range", 0, 0},          {"typical_p", 1, kAny},
    {"xtc_probability", 0, 0},         {"mirostat", 0, 0},
    {"top_n_sigma", -kAny, 0},         {"dry_multiplier", 0, 0},
    {"adaptive_target", -kAny, -1e-30}};
// kIdleParameters lists parameters without effect while their sampler is off.
constexpr const char* kIdleParameters[] = {
    "dynatemp_exponent", "xtc_threshold",      "mirostat_tau",       "mirostat_eta",
    "dry_base",          "dry_allowed_length", "dry_penalty_last_n", "dry_sequence_breakers",
    "adaptive_decay"};

std::string_view NameOfLetter(char letter) {
  for (const std::span<const LlamaSampler> table :
       {std::span<const LlamaSampler>(kOwnSamplers),
        std::span<const LlamaSampler>(kOtherSamplers)}) {
    const auto found = std::ranges::find(table, letter, &LlamaSampler::letter);
    if (found != table.end()) return found->name;
  }
  return {};
}

std::vector<std::string> SamplerNamesIn(const Json& json, JsonFields* fields) {
  std::vector<std::string> names;
  if (json.is_string()) {
    for (const char letter : json.get<std::string>()) {
      const std::string_view name = NameOfLetter(letter);
      names.emplace_back(name.empty() ? std::string_view(&letter, 1) : name);
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

LlamaSamplers ReadLlamaSamplers(JsonFields* fields) {
  LlamaSamplers samplers;
  const Json* json = fields->Any("samplers");
  if (json == nullptr) return samplers;
  samplers.is_given = true;
  std::ptrdiff_t last = -1;
  for (std::string& name : SamplerNamesIn(*json, fields)) {
    const auto* const own = std::ranges::find(kOwnSamplers, name, &LlamaSampler::name);
    if (own == std::end(kOwnSamplers)) {
      samplers.unknown.push_back(std::move(name));
      continue;
    }
    const std::ptrdiff_t place = own - std::begin(kOwnSamplers);
    samplers.is_in_order = samplers.is_in_order && place > last;
    last = std::max(last, place);
    samplers.known.push_back(own->name);
  }
  return samplers;
}

std::vector<std::string> RefuseLlamaSamplers(JsonFields* fields) {
  std::vector<std::string> names(std::begin(kIdleParameters), std::end(kIdleParameters));
  for (const OffParameter& parameter : kOffParameters) {
    const auto value = fields->Number(parameter.name, {});
    if (value.has_value() && (*value < parameter.least_off || *value > parameter.most_off)) {
      fields->Fail(parameter.name,
                   fmt::format("expected a value that switches this sampler off, which ebb has "
                               "not, found {}",
                               *value),
                   "unsupported");
    }
    names.emplace_back(parameter.name);
  }
  return names;
}

void ApplyLlamaSamplers(const LlamaSamplers& samplers, SamplingOptions* sampling) {
  if (!samplers.is_given) return;
  const auto has = [&](std::string_view name) {
    return std::ranges::find(samplers.known, name) != samplers.known.end();
  };
  if (!has("penalties")) {
    sampling->repeat_penalty = 1;
    sampling->presence_penalty = sampling->frequency_penalty = 0;
  }
  if (!has("top_k")) sampling->top_k = 0;
  if (!has("top_p")) sampling->top_p = 1;
  if (!has("min_p")) sampling->min_p = 0;
  if (!has("temperature")) sampling->temperature = 1;
}

std::vector<std::string_view> LlamaSamplerNames(const SamplingOptions& sampling) {
  std::vector<std::string_view> names;
  const bool has_penalties = sampling.repeat_penalty != 1 || sampling.presence_penalty != 0 ||
                             sampling.frequency_penalty != 0;
  if (has_penalties) names.emplace_back("penalties");
  if (sampling.temperature > 0) {
    if (sampling.top_k > 0) names.emplace_back("top_k");
    if (sampling.top_p < 1) names.emplace_back("top_p");
    if (sampling.min_p > 0) names.emplace_back("min_p");
  }
  names.emplace_back("temperature");
  return names;
}

}  // namespace ebb::server

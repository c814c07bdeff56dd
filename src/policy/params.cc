#include "src/policy/params.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "src/policy/policy_table.h"

namespace ebb {
namespace {

std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const size_t end = std::min(text.find(separator), text.size());
    parts.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

struct Declared {
  std::string_view name;
  std::string_view values;  // "N", "P", "T", "X" or words
};

std::vector<Declared> ReadDeclaration(std::string_view declared) {
  std::vector<Declared> all;
  for (const std::string_view part : Split(declared, ',')) {
    const size_t equals = part.find('=');
    all.push_back({part.substr(0, equals), part.substr(equals + 1)});
  }
  return all;
}

template <typename T>
bool ParseAll(std::string_view text, T* number) {
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, *number);
  return error == std::errc() && rest == end;
}

// Returns the smallest and the largest whole number that a declared kind of number (N, P, T)
// allows.
std::pair<int, int> Bounds(std::string_view values, int context) {
  if (values == "N") return {0, kMaxNumber};
  if (values == "P") return {1, kMaxNumber};
  return {1, context > 0 ? std::min(context, kMostTokensKept) : kMostTokensKept};
}

// Reads a value into `params`. Returns an empty text, or the expected form if the value has another
// form.
std::string ReadValue(const Declared& declared, std::string_view text, int context,
                      Params* params) {
  const std::string name(declared.name);
  if (declared.values == "X") {
    double value = 0;
    if (!ParseAll(text, &value) || !std::isfinite(value) || value < 0) return "a number from 0 on";
    params->numbers[name] = value;
    return "";
  }
  if (declared.values == "N" || declared.values == "P" || declared.values == "T") {
    const auto [least, most] = Bounds(declared.values, context);
    int value = 0;
    if (!ParseAll(text, &value) || value < least || value > most) {
      return fmt::format("{} to {}", least, most);
    }
    params->numbers[name] = value;
    return "";
  }
  const std::vector<std::string_view> words = Split(declared.values, '|');
  if (std::find(words.begin(), words.end(), text) == words.end()) {
    return fmt::format("{}", fmt::join(words, ", "));
  }
  params->words[name] = text;
  return "";
}

}  // namespace

std::optional<int> Params::Find(std::string_view key) const {
  const auto found = numbers.find(key);
  if (found == numbers.end()) return std::nullopt;
  return static_cast<int>(found->second);
}

int Params::Int(std::string_view key, int otherwise) const { return Find(key).value_or(otherwise); }

float Params::Number(std::string_view key, float otherwise) const {
  const auto found = numbers.find(key);
  return found == numbers.end() ? otherwise : static_cast<float>(found->second);
}

std::string Params::Word(std::string_view key, std::string_view otherwise) const {
  const auto found = words.find(key);
  return found == words.end() ? std::string(otherwise) : found->second;
}

std::vector<std::string_view> ParamNames(std::string_view declared) {
  std::vector<std::string_view> names;
  for (const Declared& one : ReadDeclaration(declared)) names.push_back(one.name);
  return names;
}

Result<Params> ReadParams(std::string_view policy, std::string_view declared,
                          const std::map<std::string, std::string>& given, int context) {
  const std::vector<Declared> all = ReadDeclaration(declared);
  Params params;
  for (const auto& [key, text] : given) {
    const auto found = std::find_if(all.begin(), all.end(),
                                    [&key = key](const Declared& one) { return one.name == key; });
    if (found == all.end()) {
      const bool is_option = std::ranges::any_of(kPolicyOptionNames,
                                                 [&](const auto& one) { return one.first == key; });
      return InvalidArgument(fmt::format(
          "policy \"{}\" has no parameter \"{}\"{}; {}", policy, key,
          is_option ? ", which is an option of its own" : "",
          all.empty() ? std::string("it has none")
                      : fmt::format("valid: {}", fmt::join(ParamNames(declared), ", "))));
    }
    const std::string expected = ReadValue(*found, text, context, &params);
    if (!expected.empty()) {
      return InvalidArgument(
          fmt::format("policy \"{}\": {}=\"{}\": expected {}", policy, key, text, expected));
    }
  }
  return params;
}

}  // namespace ebb

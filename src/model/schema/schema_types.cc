// Rewrites the values other than objects and arrays that the keywords of a case admit.
#include <algorithm>
#include <cmath>
#include <set>
#include <string>

#include <fmt/format.h>

#include "src/model/schema/number_range.h"
#include "src/model/schema/regex_grammar.h"
#include "src/model/schema/schema_formats.h"
#include "src/model/schema/schema_rewriter.h"
#include "src/model/schema/schema_type_bits.h"
#include "src/model/schema/schema_validator.h"

namespace ebb {
namespace {

// kLargestInteger limits integers to 16 digits, the most that the converter supports. The converter
// gets a single bound wrong, so both bounds are always written.
constexpr int64_t kLargestInteger = 9'999'999'999'999'999;
constexpr int64_t kMostMultiples = 1000;
// kMostConverterLength is the longest count for which the converter keeps the upper bound.
constexpr size_t kMostConverterLength = 1000;

// Returns the nearest integer that a bound admits.
int64_t ClosedBound(const SchemaJson& bound, bool is_lower, bool is_exclusive) {
  const int64_t step = is_lower ? 1 : -1;
  if (bound.is_number_integer()) {
    const bool is_huge = bound.is_number_unsigned() &&
                         bound.get<uint64_t>() > static_cast<uint64_t>(kLargestInteger);
    const int64_t value = is_huge ? kLargestInteger + 1 : bound.get<int64_t>();
    return std::clamp(value, -kLargestInteger - 1, kLargestInteger + 1) + (is_exclusive ? step : 0);
  }
  const double value = bound.get<double>();
  const double whole = is_lower ? std::ceil(value) : std::floor(value);
  constexpr auto kLargest = static_cast<double>(kLargestInteger);
  if (whole > kLargest) return kLargestInteger + 1;
  if (whole < -kLargest) return -kLargestInteger - 1;
  return static_cast<int64_t>(whole) + (is_exclusive && whole == value ? step : 0);
}

}  // namespace

std::vector<SchemaJson> SchemaRewriter::Typed(const SchemaCase& one) {
  if (IsExhausted()) return {};
  if (auto listed = Listed(one)) return *std::move(listed);
  std::set<std::string> forbidden;
  const uint32_t declared = TypesOf(one);
  const uint32_t types = WithoutExcluded(one, declared, &forbidden);
  std::vector<SchemaJson> schemas;
  for (uint32_t type = 1; type <= kAllTypes; type <<= 1) {
    if ((types & type) == 0) continue;
    // The type "number" includes integers, so they need no schema of their own.
    if (type == kIntegerType && (types & kFractionType) != 0) continue;
    auto schema = OfType(one, type, forbidden);
    if (schema.has_value()) schemas.push_back(*std::move(schema));
  }
  const bool is_any = types == kAllTypes && std::ranges::all_of(schemas, [](const SchemaJson& s) {
                        return s.size() == 1 && s.contains("type");
                      });
  if (is_any) return {SchemaJson::object()};
  return schemas;
}

// Returns the values of `enum` and `const`; nullopt: the case has neither.
std::optional<std::vector<SchemaJson>> SchemaRewriter::Listed(const SchemaCase& one) {
  SchemaJson values;
  const SchemaJson* lists = nullptr;
  for (const SchemaJson* node : one.nodes) {
    const SchemaJson* const list = SchemaDocument::Find(*node, "enum");
    const SchemaJson* const constant = SchemaDocument::Find(*node, "const");
    if (list != nullptr && !list->is_array()) Refuse(*node, "enum", "is no list of values");
    if (list != nullptr && list->is_array()) values = *list;
    if (constant != nullptr) values = SchemaJson::array({*constant});
    if (!values.is_null()) lists = node;
    if (lists != nullptr) break;
  }
  if (lists == nullptr) return std::nullopt;
  SchemaJson admitted = SchemaJson::array();
  std::set<std::string> said;
  bool is_uncertain = false;
  for (const SchemaJson& value : values) {
    Verdict verdict = Verdict::kYes;
    for (const SchemaJson* node : one.nodes) {
      // To decide whether the schemas of `oneOf` exclude each other, validation ignores
      // combinations, or the question would ask itself.
      verdict = std::min(verdict, only_asks_ ? ValidateAlone(document_, value, *node)
                                             : Validate(document_, value, *node));
    }
    for (const SchemaJson* node : one.excluded) {
      const Verdict excluded = Validate(document_, value, *node);
      if (excluded == Verdict::kYes) verdict = Verdict::kNo;
      if (excluded == Verdict::kUncertain) verdict = std::min(verdict, Verdict::kUncertain);
    }
    if (verdict == Verdict::kNo) continue;
    is_uncertain = is_uncertain || verdict == Verdict::kUncertain;
    // A value that is not certainly admitted is left out of answers; the others suffice.
    const bool is_kept = verdict == Verdict::kYes || use_ == SchemaUse::kTool || only_asks_;
    if (is_kept && said.insert(EqualityText(value)).second) admitted.push_back(value);
  }
  if (is_uncertain && (admitted.empty() || use_ == SchemaUse::kTool)) {
    Refuse(*lists, "", "has values that cannot be checked");
  }
  if (admitted.empty()) return std::vector<SchemaJson>();
  std::vector<SchemaJson> schemas(1, SchemaJson::object());
  schemas[0]["enum"] = std::move(admitted);
  return schemas;
}

uint32_t SchemaRewriter::TypesOf(const SchemaCase& one) {
  uint32_t types = kAllTypes, spoken_of = 0;
  bool is_declared = false;
  for (const SchemaJson* node : one.nodes) {
    for (const auto& [keyword, argument] : node->items()) spoken_of |= TypeOfKeyword(keyword);
    const SchemaJson* const type = SchemaDocument::Find(*node, "type");
    if (type == nullptr) continue;
    const uint32_t declared = TypeBits(*type);
    if (declared == 0) {
      Refuse(*node, "type", "names no type of JSON Schema");
      continue;
    }
    is_declared = true;
    types &= declared;
  }
  // If no type is declared, the types that the keywords constrain are meant.
  return !is_declared && spoken_of != 0 ? spoken_of : types;
}

uint32_t SchemaRewriter::WithoutExcluded(const SchemaCase& one, uint32_t types,
                                         std::set<std::string>* forbidden) {
  for (const SchemaJson* excluded : one.excluded) {
    const SchemaJson* schema = excluded;
    for (int links = 0; links < 10; ++links) {
      const SchemaJson* const reference = SchemaDocument::Find(*schema, "$ref");
      if (reference == nullptr || !reference->is_string() || schema->size() != 1) break;
      const SchemaJson* const target = document_.Resolve(reference->get_ref<const std::string&>());
      if (target == nullptr) break;
      schema = target;
    }
    if (TakeExcludedSchema(*schema, &types, forbidden)) continue;
    const SchemaJson* const type = SchemaDocument::Find(*schema, "type");
    const uint32_t bits = type == nullptr ? 0 : TypeBits(*type);
    if (bits != 0 && (bits & types) == 0) continue;
    Refuse(*excluded, "", "excludes values, which is not supported");
  }
  return types;
}

bool SchemaRewriter::TakeExcludedSchema(const SchemaJson& excluded, uint32_t* types,
                                        std::set<std::string>* forbidden) {
  if (excluded.is_boolean()) {
    if (excluded.get<bool>()) *types = 0;
    return true;
  }
  if (!excluded.is_object()) return false;
  if (std::ranges::none_of(excluded.items(),
                           [](const auto& item) { return IsConstraint(item.key()); })) {
    *types = 0;
    return true;
  }
  if (excluded.size() != 1) return false;
  if (const SchemaJson* type = SchemaDocument::Find(excluded, "type")) {
    const uint32_t bits = TypeBits(*type);
    // JSON Schema has no type for fractions alone, so this remainder cannot be expressed.
    const bool leaves_fractions =
        (bits & kIntegerType) != 0 && (bits & kFractionType) == 0 && (*types & kFractionType) != 0;
    if (bits == 0 || leaves_fractions) return false;
    *types &= ~bits;
    return true;
  }
  const SchemaJson* const required = SchemaDocument::Find(excluded, "required");
  if (required == nullptr || !required->is_array() || required->size() != 1) return false;
  if (!required->front().is_string()) return false;
  // `required` only constrains objects, so only objects without the member are left.
  *types &= kObjectType;
  forbidden->insert(required->front().get<std::string>());
  return true;
}

std::optional<SchemaJson> SchemaRewriter::OfType(const SchemaCase& one, uint32_t type,
                                                 const std::set<std::string>& forbidden) {
  switch (type) {
    case kNullType:
      return SchemaJson{{"type", "null"}};
    case kBooleanType:
      return SchemaJson{{"type", "boolean"}};
    case kIntegerType:
      return Integer(one);
    case kFractionType:
      return Number(one);
    case kStringType:
      return String(one);
    case kArrayType:
      return Array(one);
    default:
      return Object(one, forbidden);
  }
}

std::optional<size_t> SchemaRewriter::Count(const SchemaCase& one, const char* keyword,
                                            bool largest) {
  std::optional<size_t> count;
  for (const SchemaJson* node : one.nodes) {
    const SchemaJson* const argument = SchemaDocument::Find(*node, keyword);
    if (argument == nullptr) continue;
    const double value = argument->is_number() ? argument->get<double>() : -1;
    if (value < 0 || std::floor(value) != value) {
      Refuse(*node, keyword, "is no count");
      continue;
    }
    // Limits counts to far more than a context holds.
    const auto next = static_cast<size_t>(std::min(value, 1e9));
    const bool wins = !count.has_value() || (largest ? next > *count : next < *count);
    if (wins) count = next;
  }
  return count;
}

std::optional<SchemaJson> SchemaRewriter::Integer(const SchemaCase& one) {
  int64_t least = -kLargestInteger, most = kLargestInteger;
  bool is_bounded = false;
  for (const SchemaJson* node : one.nodes) {
    for (const char* keyword : {"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"}) {
      const SchemaJson* const bound = SchemaDocument::Find(*node, keyword);
      if (bound == nullptr) continue;
      if (!bound->is_number()) {
        Refuse(*node, keyword, "is no number");
        continue;
      }
      const bool is_lower = std::string_view(keyword).ends_with("inimum");
      const int64_t closed = ClosedBound(*bound, is_lower, keyword[0] == 'e');
      (is_lower ? least : most) = is_lower ? std::max(least, closed) : std::min(most, closed);
      is_bounded = true;
    }
  }
  if (least > most) return std::nullopt;
  for (const SchemaJson* node : one.nodes) {
    if (node->contains("multipleOf")) return MultiplesOf(one, least, most);
  }
  if (!is_bounded) return SchemaJson{{"type", "integer"}};
  return SchemaJson{{"type", "integer"}, {"minimum", least}, {"maximum", most}};
}

// Returns a list of the multiples if they are few.
std::optional<SchemaJson> SchemaRewriter::MultiplesOf(const SchemaCase& one, int64_t least,
                                                      int64_t most) {
  const SchemaJson* asks = nullptr;
  double largest = 1;
  for (const SchemaJson* node : one.nodes) {
    const SchemaJson* const step = SchemaDocument::Find(*node, "multipleOf");
    if (step == nullptr) continue;
    const double value = step->is_number() ? step->get<double>() : 0;
    if (value <= 0) {
      Refuse(*node, "multipleOf", "is no positive number");
      continue;
    }
    // Every integer is a multiple of 1, 0.5, 0.1 and so on, so such a step constrains nothing.
    if (std::floor(1 / value) == 1 / value) continue;
    asks = node;
    if (std::floor(value) == value) largest = std::max(largest, value);
  }
  const SchemaJson range = {{"type", "integer"}, {"minimum", least}, {"maximum", most}};
  if (asks == nullptr) return range;
  const auto step = static_cast<int64_t>(std::min(largest, 1e15));
  if ((most - least) / step > kMostMultiples) {
    Refuse(*asks, "multipleOf", "is supported for at most 1000 values");
    return range;
  }
  SchemaJson values = SchemaJson::array();
  const int64_t below = least >= 0 ? least : least - step + 1;
  for (int64_t value = below / step * step; value <= most; value += step) {
    if (value < least) continue;
    const bool is_admitted = std::ranges::all_of(one.nodes, [&](const SchemaJson* node) {
      const SchemaJson* const other = SchemaDocument::Find(*node, "multipleOf");
      return other == nullptr || !other->is_number() || other->get<double>() <= 0 ||
             std::fmod(static_cast<double>(value), other->get<double>()) == 0;
    });
    if (is_admitted) values.push_back(value);
  }
  if (values.empty()) return std::nullopt;
  return SchemaJson{{"enum", std::move(values)}};
}

std::optional<SchemaJson> SchemaRewriter::Number(const SchemaCase& one) {
  std::optional<NumberBound> least, most;
  double low = -INFINITY, high = INFINITY;
  for (const SchemaJson* node : one.nodes) {
    if (node->contains("multipleOf")) {
      Refuse(*node, "multipleOf", "is supported for integers alone");
    }
    for (const char* keyword : {"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"}) {
      const SchemaJson* const argument = SchemaDocument::Find(*node, keyword);
      if (argument == nullptr) continue;
      std::optional<NumberBound> bound;
      if (argument->is_number()) bound = NumberBound::Parse(argument->dump());
      if (!bound.has_value()) {
        Refuse(*node, keyword, "is no number of at most 16 digits before the point and 15 behind");
        continue;
      }
      bound->is_open = keyword[0] == 'e';
      const bool is_lower = std::string_view(keyword).ends_with("inimum");
      double& said = is_lower ? low : high;
      std::optional<NumberBound>& kept = is_lower ? least : most;
      const auto value = argument->get<double>();
      if (is_lower ? value < said : value > said) continue;
      if (value == said) bound->is_open = bound->is_open || (kept.has_value() && kept->is_open);
      said = value;
      kept = bound;
    }
  }
  if (!least.has_value() && !most.has_value()) return SchemaJson{{"type", "number"}};
  const std::optional<RegexNode> numbers = NumbersBetween(least, most);
  if (!numbers.has_value()) return std::nullopt;
  return only_asks_ ? SchemaJson{{"type", "number"}} : StandIn(*numbers);
}

// Returns a constant that replaces these numbers in the schema.
SchemaJson SchemaRewriter::StandIn(const RegexNode& numbers) {
  const std::string rule = fmt::format("number-{}-{}", name_, numbers_.size());
  int64_t value = 0;
  for (const char c : name_) value = (value * 131 + static_cast<unsigned char>(c)) % 1'000'000'000;
  value = -7'000'000'000'000'000'000 - value * 1'000'000 - static_cast<int64_t>(numbers_.size());
  numbers_.push_back(
      {.stand_in = std::to_string(value), .rule = rule, .rules = RegexGrammar(numbers, rule)});
  return SchemaJson{{"enum", SchemaJson::array({value})}};
}

// Returns the expression of all patterns and formats of the case that a grammar can enforce.
std::optional<RegexNode> SchemaRewriter::PatternOfCase(const SchemaCase& one, bool* has_pattern) {
  std::optional<RegexNode> pattern;
  std::string source;
  for (const SchemaJson* node : one.nodes) {
    for (const char* keyword : {"pattern", "format"}) {
      const SchemaJson* const argument = SchemaDocument::Find(*node, keyword);
      if (argument == nullptr) continue;
      if (!argument->is_string()) {
        Refuse(*node, keyword, "is no text");
        continue;
      }
      const auto& text = argument->get_ref<const std::string&>();
      const bool is_format = std::string_view(keyword) == "format";
      if (is_format && !IsAssertedFormat(text)) continue;
      const std::string said = is_format ? std::string(FormatPattern(text, use_)) : text;
      if (is_format && said.empty()) {
        Refuse(*node, keyword, fmt::format("\"{}\" is not supported", text));
        continue;
      }
      const auto parsed = ParseRegex(said, RegexMatch::kAnywhere);
      if (!parsed.ok()) {
        Refuse(*node, keyword, "has " + parsed.status().message() + ", which is not supported");
      } else if (pattern.has_value() && source != said) {
        Refuse(*node, keyword, "is not supported next to another pattern or format");
      } else {
        pattern = *parsed;
        source = said;
      }
    }
  }
  *has_pattern = pattern.has_value();
  return pattern;
}

std::optional<SchemaJson> SchemaRewriter::String(const SchemaCase& one) {
  const LengthRange lengths = {Count(one, "minLength", true).value_or(0),
                               Count(one, "maxLength", false).value_or(RegexNode::kNoLimit)};
  if (lengths.least > lengths.most) return std::nullopt;
  bool has_pattern = false;
  std::optional<RegexNode> pattern = PatternOfCase(one, &has_pattern);
  const bool has_limit = lengths.most != RegexNode::kNoLimit;
  const bool has_lengths = lengths.least > 0 || has_limit;
  if (!has_pattern) {
    if (!has_lengths) return SchemaJson{{"type", "string"}};
    const size_t largest = has_limit ? lengths.most : lengths.least;
    if (largest <= kMostConverterLength) {
      SchemaJson schema = {{"type", "string"}, {"minLength", lengths.least}};
      if (has_limit) schema["maxLength"] = lengths.most;
      return schema;
    }
    pattern = Repeated(SetNode(CharSet().Complement()), lengths.least, lengths.most);
  } else if (has_lengths) {
    const LengthRange own = LengthsOf(*pattern);
    if (own.least > lengths.most || own.most < lengths.least) return std::nullopt;
    const auto both = WithLengths(*pattern, lengths);
    if (both.has_value()) {
      pattern = both;
    } else {
      const auto by_length = [](const SchemaJson* node) {
        return node->contains("maxLength") || node->contains("minLength");
      };
      const SchemaJson& node = **std::ranges::find_if(one.nodes, by_length);
      Refuse(node, node.contains("maxLength") ? "maxLength" : "minLength",
             "is not supported next to this pattern or format");
    }
  }
  return SchemaJson{{"type", "string"}, {"pattern", ConverterPattern(JsonEncoded(*pattern))}};
}

}  // namespace ebb

#include "src/model/schema/schema_validator.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "src/model/schema/regex.h"
#include "src/model/schema/schema_formats.h"

namespace ebb {
namespace {

constexpr int kMostChecks = 10000;
constexpr int kMostCheckedLevels = 100;

Verdict Both(Verdict a, Verdict b) { return std::min(a, b); }
Verdict Either(Verdict a, Verdict b) { return std::max(a, b); }
Verdict Opposite(Verdict a) {
  if (a == Verdict::kUncertain) return a;
  return a == Verdict::kYes ? Verdict::kNo : Verdict::kYes;
}
Verdict Certain(bool yes) { return yes ? Verdict::kYes : Verdict::kNo; }

class Validation {
 public:
  // Makes a validation. alone: only by the schema's own keywords.
  Validation(const SchemaDocument& document, bool alone) : document_(document), alone_(alone) {}

  Verdict Check(const SchemaJson& value, const SchemaJson& schema, int level) {
    if (schema.is_boolean()) return Certain(schema.get<bool>());
    const bool is_too_much = ++steps_ > kMostChecks || level > kMostCheckedLevels || !Spend(1);
    if (!schema.is_object() || is_too_much) return Verdict::kUncertain;
    Verdict verdict = Verdict::kYes;
    for (const auto& [keyword, argument] : schema.items()) {
      if (level == 0 && alone_ && IsOfOthers(keyword)) continue;
      verdict = Both(verdict, CheckKeyword(value, schema, keyword, argument, level));
      if (verdict == Verdict::kNo) return verdict;
    }
    return verdict;
  }

 private:
  Verdict CheckKeyword(const SchemaJson& value, const SchemaJson& schema, const std::string& name,
                       const SchemaJson& argument, int level) {
    if (name == "$ref" && argument.is_string()) {
      const SchemaJson* target = document_.Resolve(argument.get_ref<const std::string&>());
      return target == nullptr ? Verdict::kUncertain : Check(value, *target, level + 1);
    }
    if (name == "type") return CheckType(value, argument);
    if (name == "const") return Certain(EqualityText(value) == EqualityText(argument));
    if (name == "enum") return Certain(document_.Lists(argument, value));
    if (name == "not") return Opposite(Check(value, argument, level + 1));
    if (name == "allOf" || name == "anyOf" || name == "oneOf") {
      return CheckList(value, name, argument, level);
    }
    if (value.is_number()) return CheckNumber(value, name, argument);
    if (value.is_string()) return CheckString(value, name, argument);
    if (value.is_object()) return CheckObject(value, schema, name, argument, level);
    if (value.is_array()) return CheckArray(value, schema, name, argument, level);
    return IsConditional(name) ? Verdict::kUncertain : Verdict::kYes;
  }

  bool Spend(size_t steps) {
    size_t& work = *document_.work();
    work -= std::min(work, steps);
    return work > 0;
  }

  static bool IsOfOthers(std::string_view name) {
    return name == "$ref" || name == "allOf" || name == "anyOf" || name == "oneOf" || name == "not";
  }

  Verdict MatchesAnywhere(const SchemaJson& pattern, const std::string& text) {
    if (!pattern.is_string()) return Verdict::kUncertain;
    const auto regex = ParseRegex(pattern.get_ref<const std::string&>(), RegexMatch::kAnywhere);
    if (!regex.ok()) return Verdict::kUncertain;
    const std::optional<bool> matches = MatchesWhole(*regex, text, document_.work());
    return matches.has_value() ? Certain(*matches) : Verdict::kUncertain;
  }

  static bool IsConditional(const std::string& name) {
    return name == "if" || name == "$dynamicRef" || name == "$recursiveRef";
  }

  static Verdict CheckType(const SchemaJson& value, const SchemaJson& argument) {
    const auto is_of = [&](const SchemaJson& type) {
      return type.is_string() && IsOfType(value, type.get_ref<const std::string&>());
    };
    return Certain(argument.is_array() ? std::ranges::any_of(argument, is_of) : is_of(argument));
  }

  Verdict CheckList(const SchemaJson& value, const std::string& name, const SchemaJson& list,
                    int level) {
    if (!list.is_array()) return Verdict::kUncertain;
    Verdict all = Verdict::kYes, any = Verdict::kNo;
    int certain = 0, possible = 0;
    for (const SchemaJson& schema : list) {
      const Verdict one = Check(value, schema, level + 1);
      all = Both(all, one);
      any = Either(any, one);
      certain += one == Verdict::kYes ? 1 : 0;
      possible += one != Verdict::kNo ? 1 : 0;
    }
    if (name == "allOf") return all;
    if (name == "anyOf") return any;
    if (possible == 0 || certain > 1) return Verdict::kNo;
    return certain == 1 && possible == 1 ? Verdict::kYes : Verdict::kUncertain;
  }

  static Verdict CheckNumber(const SchemaJson& value, const std::string& name,
                             const SchemaJson& argument) {
    if (IsConditional(name)) return Verdict::kUncertain;
    if (!argument.is_number()) return Verdict::kYes;
    const auto number = value.get<double>(), bound = argument.get<double>();
    if (name == "minimum") return Certain(number >= bound);
    if (name == "maximum") return Certain(number <= bound);
    if (name == "exclusiveMinimum") return Certain(number > bound);
    if (name == "exclusiveMaximum") return Certain(number < bound);
    if (name != "multipleOf" || bound <= 0) return Verdict::kYes;
    const bool are_integers = std::floor(number) == number && std::floor(bound) == bound;
    return are_integers ? Certain(std::fmod(number, bound) == 0) : Verdict::kUncertain;
  }

  Verdict CheckString(const SchemaJson& value, const std::string& name,
                      const SchemaJson& argument) {
    if (IsConditional(name)) return Verdict::kUncertain;
    const auto& text = value.get_ref<const std::string&>();
    if (name == "format") return CheckFormat(argument, text);
    if (name == "pattern") return MatchesAnywhere(argument, text);
    if (!argument.is_number()) return Verdict::kYes;
    const auto length = static_cast<double>(CodePoints(text).size());
    if (name == "minLength") return Certain(length >= argument.get<double>());
    if (name == "maxLength") return Certain(length <= argument.get<double>());
    return Verdict::kYes;
  }

  Verdict CheckFormat(const SchemaJson& format, const std::string& text) {
    if (!format.is_string()) return Verdict::kUncertain;
    const auto& name = format.get_ref<const std::string&>();
    if (!IsAssertedFormat(name)) return Verdict::kYes;
    const std::string pattern(FormatPattern(name, SchemaUse::kAnswer));
    const bool matches =
        !pattern.empty() && MatchesAnywhere(SchemaJson(pattern), text) == Verdict::kYes;
    if (matches) return Verdict::kYes;
    const bool is_all = !FormatPattern(name, SchemaUse::kTool).empty();
    return is_all ? Verdict::kNo : Verdict::kUncertain;
  }

  Verdict CheckObject(const SchemaJson& value, const SchemaJson& schema, const std::string& name,
                      const SchemaJson& argument, int level) {
    const auto size = static_cast<double>(value.size());
    if (name == "required") {
      return Certain(std::ranges::all_of(argument, [&](const SchemaJson& one) {
        return !one.is_string() || value.contains(one.get_ref<const std::string&>());
      }));
    }
    if (name == "minProperties" && argument.is_number()) return Certain(size >= argument);
    if (name == "maxProperties" && argument.is_number()) return Certain(size <= argument);
    Verdict verdict = Verdict::kYes;
    if (name == "properties" && argument.is_object()) {
      for (const auto& [key, part] : argument.items()) {
        const auto found = value.find(key);
        if (found != value.end()) verdict = Both(verdict, Check(*found, part, level + 1));
      }
      return verdict;
    }
    if (name == "propertyNames") {
      for (const auto& [key, part] : value.items()) {
        verdict = Both(verdict, Check(SchemaJson(key), argument, level + 1));
      }
      return verdict;
    }
    if (name == "additionalProperties" && !schema.contains("patternProperties")) {
      for (const auto& [key, part] : value.items()) {
        const SchemaJson* properties = SchemaDocument::Find(schema, "properties");
        if (properties != nullptr && properties->contains(key)) continue;
        verdict = Both(verdict, Check(part, argument, level + 1));
      }
      return verdict;
    }
    static const std::set<std::string> kOthers = {"additionalProperties", "patternProperties",
                                                  "dependentRequired",    "dependentSchemas",
                                                  "dependencies",         "unevaluatedProperties"};
    return kOthers.contains(name) || IsConditional(name) ? Verdict::kUncertain : Verdict::kYes;
  }

  Verdict CheckArray(const SchemaJson& value, const SchemaJson& schema, const std::string& name,
                     const SchemaJson& argument, int level) {
    const auto size = static_cast<double>(value.size());
    if (name == "minItems" && argument.is_number()) return Certain(size >= argument);
    if (name == "maxItems" && argument.is_number()) return Certain(size <= argument);
    const bool is_tuple = name == "prefixItems" || (name == "items" && argument.is_array());
    if (is_tuple || name == "items") {
      const SchemaJson* before = SchemaDocument::Find(schema, "prefixItems");
      const size_t first = is_tuple || before == nullptr ? 0 : before->size();
      Verdict verdict = Verdict::kYes;
      for (size_t i = first; i < value.size() && (!is_tuple || i < argument.size()); ++i) {
        verdict = Both(verdict, Check(value[i], is_tuple ? argument[i] : argument, level + 1));
      }
      return verdict;
    }
    static const std::set<std::string> kOthers = {"uniqueItems", "contains", "additionalItems",
                                                  "unevaluatedItems"};
    return kOthers.contains(name) || IsConditional(name) ? Verdict::kUncertain : Verdict::kYes;
  }

  const SchemaDocument& document_;
  const bool alone_;
  int steps_ = 0;
};

}  // namespace

Verdict ValidateAlone(const SchemaDocument& document, const SchemaJson& value,
                      const SchemaJson& schema) {
  return Validation(document, /*alone=*/true).Check(value, schema, 0);
}

Verdict Validate(const SchemaDocument& document, const SchemaJson& value,
                 const SchemaJson& schema) {
  return Validation(document, /*alone=*/false).Check(value, schema, 0);
}

bool IsOfType(const SchemaJson& value, std::string_view type) {
  if (type == "null") return value.is_null();
  if (type == "boolean") return value.is_boolean();
  if (type == "string") return value.is_string();
  if (type == "array") return value.is_array();
  if (type == "object") return value.is_object();
  if (type == "number") return value.is_number();
  if (type != "integer" || !value.is_number()) return false;
  return value.is_number_integer() || std::floor(value.get<double>()) == value.get<double>();
}

}  // namespace ebb

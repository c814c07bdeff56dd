#include "src/model/schema/schema_type_bits.h"

#include <algorithm>
#include <utility>

namespace ebb {
namespace {

constexpr std::pair<std::string_view, uint32_t> kTypeNames[] = {
    {"object", kObjectType},   {"array", kArrayType},     {"string", kStringType},
    {"integer", kIntegerType}, {"boolean", kBooleanType}, {"number", kIntegerType | kFractionType},
    {"null", kNullType}};

constexpr uint32_t kNumberTypes = kIntegerType | kFractionType;
constexpr std::pair<std::string_view, uint32_t> kKeywordTypes[] = {
    {"properties", kObjectType},
    {"required", kObjectType},
    {"additionalProperties", kObjectType},
    {"patternProperties", kObjectType},
    {"minProperties", kObjectType},
    {"maxProperties", kObjectType},
    {"propertyNames", kObjectType},
    {"dependentRequired", kObjectType},
    {"dependentSchemas", kObjectType},
    {"dependencies", kObjectType},
    {"unevaluatedProperties", kObjectType},
    {"items", kArrayType},
    {"prefixItems", kArrayType},
    {"minItems", kArrayType},
    {"maxItems", kArrayType},
    {"uniqueItems", kArrayType},
    {"contains", kArrayType},
    {"additionalItems", kArrayType},
    {"unevaluatedItems", kArrayType},
    {"minLength", kStringType},
    {"maxLength", kStringType},
    {"pattern", kStringType},
    {"minimum", kNumberTypes},
    {"maximum", kNumberTypes},
    {"exclusiveMinimum", kNumberTypes},
    {"exclusiveMaximum", kNumberTypes},
    {"multipleOf", kNumberTypes}};

constexpr std::string_view kOfAllTypes[] = {"type",  "enum",   "const",       "allOf",
                                            "anyOf", "oneOf",  "not",         "if",
                                            "$ref",  "format", "$dynamicRef", "$recursiveRef"};

}  // namespace

uint32_t TypeBits(const SchemaJson& argument) {
  if (argument.is_array()) {
    uint32_t bits = 0;
    for (const SchemaJson& one : argument) {
      const uint32_t type = one.is_string() ? TypeBits(one) : 0;
      if (type == 0) return 0;
      bits |= type;
    }
    return bits;
  }
  if (!argument.is_string()) return 0;
  for (const auto& [name, bits] : kTypeNames) {
    if (argument.get_ref<const std::string&>() == name) return bits;
  }
  return 0;
}

uint32_t TypeOfKeyword(std::string_view keyword) {
  for (const auto& [name, types] : kKeywordTypes) {
    if (keyword == name) return types;
  }
  return 0;
}

bool IsConstraint(std::string_view keyword) {
  return TypeOfKeyword(keyword) != 0 ||
         std::ranges::find(kOfAllTypes, keyword) != std::end(kOfAllTypes);
}

}  // namespace ebb

// Rewrites the objects and arrays that the keywords of a case admit.
#include <algorithm>

#include <fmt/format.h>

#include "src/model/schema/regex.h"
#include "src/model/schema/schema_rewriter.h"
#include "src/model/schema/schema_type_bits.h"
#include "src/model/schema/schema_validator.h"

namespace ebb {
namespace {

// kMostOptional limits the optional members of an object, because the converter's rules grow with
// the square of their number.
constexpr size_t kMostOptional = 200;
constexpr size_t kMostOfOneNeeded = 30;  // members of which one has to be there
constexpr size_t kMostTuple = 64;

// Returns whether every name matches the pattern, for the common spellings of such patterns.
bool MatchesAll(std::string_view pattern) {
  for (const std::string_view all : {"", ".*", "^.*$", "^.*", ".*$", "^", "$"}) {
    if (pattern == all) return true;
  }
  return false;
}

// Returns whether a name can be part of a class of characters, into which the converter copies it
// unescaped.
bool IsPlainName(std::string_view name) {
  return !name.empty() && name != "*" && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.' || c == '$' || c == ' ' || c == ':' || c == '/' || c == '@';
  });
}

}  // namespace

struct SchemaRewriter::ObjectCase {
  std::vector<std::string> names;  // in the order of the schema
  std::set<std::string> required;
  std::set<std::string> forbidden;
  std::vector<std::pair<std::string, SchemaJson>> members;  // those of `names` that may be there
  // Holds the schema of members that are not named; nullopt: there may be none.
  std::optional<SchemaJson> additional = {};
};

struct SchemaRewriter::ArrayCase {
  std::vector<SchemaNodes> first;                   // of the items in front, one after the other
  std::optional<SchemaNodes> rest = SchemaNodes();  // of those behind; nothing: there may be none
  size_t least = 0;
  size_t most = RegexNode::kNoLimit;
};

std::optional<SchemaJson> SchemaRewriter::Array(const SchemaCase& one) {
  ArrayCase array;
  array.least = Count(one, "minItems", true).value_or(0);
  array.most = Count(one, "maxItems", false).value_or(RegexNode::kNoLimit);
  for (const SchemaJson* node : one.nodes) {
    const SchemaJson* items = SchemaDocument::Find(*node, "items");
    const SchemaJson* first = SchemaDocument::Find(*node, "prefixItems");
    if (items != nullptr && items->is_array()) {
      first = items;
      items = SchemaDocument::Find(*node, "additionalItems");
    }
    if (items == nullptr) items = SchemaDocument::Find(*node, "unevaluatedItems");
    const size_t num_first = first != nullptr && first->is_array() ? first->size() : 0;
    // For places where only one node lists items, the other nodes' `items` schema applies.
    while (array.first.size() < num_first)
      array.first.push_back(array.rest.value_or(SchemaNodes()));
    for (size_t i = 0; i < array.first.size(); ++i) {
      if (i < num_first) {
        array.first[i].push_back(&(*first)[i]);
      } else if (items != nullptr) {
        array.first[i].push_back(items);
      }
    }
    if (items != nullptr && array.rest.has_value()) array.rest->push_back(items);
    const SchemaJson* const unique = SchemaDocument::Find(*node, "uniqueItems");
    if (unique != nullptr && *unique != false && array.most > 1) {
      Refuse(*node, "uniqueItems", "is not supported");
    }
    const SchemaJson* const at_least = SchemaDocument::Find(*node, "minContains");
    const bool asks = at_least == nullptr || *at_least != 0 || node->contains("maxContains");
    if (node->contains("contains") && asks) Refuse(*node, "contains", "is not supported");
  }
  if (array.least > array.most) return std::nullopt;
  if (!array.first.empty()) return Tuples(array);
  const std::optional<SchemaJson> item = Together(*array.rest);
  if (!item.has_value()) {
    if (array.least > 0) return std::nullopt;
    array.most = 0;
  }
  SchemaJson schema = {{"type", "array"}};
  if (item.has_value() && !item->empty()) schema["items"] = *item;
  if (array.least > 0) schema["minItems"] = array.least;
  if (array.most != RegexNode::kNoLimit) schema["maxItems"] = array.most;
  constexpr size_t kMostItems = 1000;
  for (const char* keyword : {"minItems", "maxItems"}) {
    if (!schema.contains(keyword) || schema[keyword] <= kMostItems) continue;
    const auto by_keyword = [&](const SchemaJson* node) { return node->contains(keyword); };
    Refuse(**std::ranges::find_if(one.nodes, by_keyword), keyword, "is supported up to 1000");
    schema.erase(keyword);
  }
  return schema;
}

// Returns one tuple for each allowed length.
std::optional<SchemaJson> SchemaRewriter::Tuples(const ArrayCase& array) {
  std::vector<SchemaJson> items;
  std::optional<SchemaJson> rest = Together(*array.rest);
  const size_t most = std::min(array.most, std::max(array.first.size(), array.least));
  for (size_t i = 0; i < std::min(most, kMostTuple); ++i) {
    const auto item = i < array.first.size() ? Together(array.first[i]) : rest;
    if (!item.has_value()) break;
    items.push_back(*item);
  }
  // Arrays may also be longer than the tuples written here.
  const bool is_longer = rest.has_value() && array.most > items.size();
  if (is_longer && use_ == SchemaUse::kTool) {
    SchemaJson schema = {{"type", "array"}};
    const SchemaJson& asks = array.first[0].empty() ? document_.root() : *array.first[0].back();
    Refuse(asks, "", "");
    return schema;
  }
  if (items.size() < array.least) return std::nullopt;
  SchemaJson tuples = SchemaJson::array();
  for (size_t size = array.least; size <= items.size(); ++size) {
    if (size == 0) {
      tuples.push_back({{"type", "array"}, {"maxItems", 0}});
      continue;
    }
    SchemaJson some = SchemaJson::array();
    for (size_t i = 0; i < size; ++i) some.push_back(items[i]);
    tuples.push_back({{"type", "array"}, {"prefixItems", std::move(some)}});
  }
  if (tuples.size() == 1) return tuples[0];
  return SchemaJson{{"anyOf", std::move(tuples)}};
}

std::optional<SchemaJson> SchemaRewriter::Object(const SchemaCase& one,
                                                 const std::set<std::string>& forbidden) {
  ObjectCase object;
  object.forbidden = forbidden;
  ReadNames(one, &object);
  CheckMemberKeywords(one, &object);
  ReadMembers(one, &object);
  for (const std::string& name : object.required) {
    const bool is_there = std::ranges::any_of(
        object.members, [&](const auto& member) { return member.first == name; });
    if (!is_there) return std::nullopt;
  }
  const bool is_plain = std::ranges::all_of(
      object.members, [](const auto& member) { return IsPlainName(member.first); });
  const bool hides = object.members.size() < object.names.size();
  if (object.additional.has_value() && !object.members.empty() && (!is_plain || hides)) {
    // A grammar could not distinguish the names of further members from these, so further members
    // are left out.
    if (use_ == SchemaUse::kTool) {
      Refuse(*one.nodes.front(), "", "");
      return SchemaJson{{"type", "object"}};
    }
    object.additional.reset();
  }
  return WithCounts(one, &object);
}

void SchemaRewriter::ReadNames(const SchemaCase& one, ObjectCase* object) {
  const auto add = [&](const std::string& name) {
    if (std::ranges::find(object->names, name) == object->names.end()) {
      object->names.push_back(name);
    }
  };
  for (const SchemaJson* node : one.nodes) {
    const SchemaJson* const properties = SchemaDocument::Find(*node, "properties");
    if (properties == nullptr) continue;
    if (!properties->is_object()) {
      Refuse(*node, "properties", "is no object");
      continue;
    }
    for (const auto& [name, part] : properties->items()) add(name);
  }
  for (const SchemaJson* node : one.nodes) {
    const SchemaJson* const required = SchemaDocument::Find(*node, "required");
    if (required == nullptr || !required->is_array()) continue;  // Draft 4 has a boolean there
    for (const SchemaJson& name : *required) {
      if (!name.is_string()) continue;
      add(name.get<std::string>());
      object->required.insert(name.get<std::string>());
    }
  }
  // Adds the names that propertyNames lists.
  for (const SchemaJson* node : one.nodes) {
    const SchemaJson* const names = SchemaDocument::Find(*node, "propertyNames");
    const SchemaJson* const list =
        names == nullptr ? nullptr : SchemaDocument::Find(*names, "enum");
    if (list == nullptr || !list->is_array()) continue;
    for (const SchemaJson& name : *list) {
      if (name.is_string()) add(name.get<std::string>());
    }
  }
}

// Returns the schemas that apply to the member with that name.
SchemaNodes SchemaRewriter::MemberNodes(const SchemaCase& one, const std::string& name) {
  SchemaNodes nodes;
  for (const SchemaJson* node : one.nodes) {
    bool is_evaluated = false;
    const SchemaJson* const properties = SchemaDocument::Find(*node, "properties");
    if (properties != nullptr && properties->is_object() && properties->contains(name)) {
      nodes.push_back(&*properties->find(name));
      is_evaluated = true;
    }
    const SchemaJson* const patterns = SchemaDocument::Find(*node, "patternProperties");
    if (patterns != nullptr && patterns->is_object()) {
      for (const auto& [pattern, part] : patterns->items()) {
        const auto regex = ParseRegex(pattern, RegexMatch::kAnywhere);
        if (!regex.ok()) {
          Refuse(*node, "patternProperties",
                 "has " + regex.status().message() + ", which is not supported");
        } else if (MatchesWhole(*regex, name, document_.work()).value_or(false)) {
          nodes.push_back(&part);
          is_evaluated = true;
        }
      }
    }
    const SchemaJson* const others = SchemaDocument::Find(*node, "additionalProperties");
    if (!is_evaluated && others != nullptr) nodes.push_back(others);
  }
  return nodes;
}

void SchemaRewriter::CheckMemberKeywords(const SchemaCase& one, ObjectCase* object) {
  for (const SchemaJson* node : one.nodes) {
    const SchemaJson* const names = SchemaDocument::Find(*node, "propertyNames");
    if (names == nullptr) continue;
    for (const std::string& name : object->names) {
      const Verdict verdict = Validate(document_, SchemaJson(name), *names);
      if (verdict == Verdict::kNo) object->forbidden.insert(name);
      if (verdict == Verdict::kUncertain) {
        Refuse(*node, "propertyNames", "is not supported with these keywords");
      }
    }
  }
}

void SchemaRewriter::ReadMembers(const SchemaCase& one, ObjectCase* object) {
  for (const std::string& name : object->names) {
    if (object->forbidden.contains(name)) continue;
    auto schema = Together(MemberNodes(one, name));
    if (schema.has_value()) object->members.emplace_back(name, *std::move(schema));
  }
  SchemaNodes others;
  bool is_asked_for = false, is_closed = false;
  for (const SchemaJson* node : one.nodes) {
    const SchemaJson* additional = SchemaDocument::Find(*node, "additionalProperties");
    const SchemaJson* const unevaluated = SchemaDocument::Find(*node, "unevaluatedProperties");
    const SchemaJson* const patterns = SchemaDocument::Find(*node, "patternProperties");
    const SchemaJson* const names = SchemaDocument::Find(*node, "propertyNames");
    if (patterns != nullptr && patterns->is_object() && !patterns->empty()) {
      if (patterns->size() == 1 && MatchesAll(patterns->begin().key())) {
        others.push_back(&patterns->front());
        is_asked_for = true;
        continue;
      }
      // If the object has no other members, the pattern is all that describes it.
      const bool is_all = object->members.empty() || use_ == SchemaUse::kTool;
      if (is_all) Refuse(*node, "patternProperties", "is supported for named members alone");
      if (use_ == SchemaUse::kTool) {
        is_asked_for = true;
        continue;
      }
      is_closed = true;
    }
    if (names != nullptr && names->is_object() && !names->empty()) {
      const bool is_listed = names->contains("enum");
      const bool is_any = names->size() == 1 && names->contains("type");
      const bool is_all = object->members.empty() || use_ == SchemaUse::kTool;
      if (!is_listed && !is_any && is_all) {
        Refuse(*node, "propertyNames", "is supported for named members alone");
      } else if (!is_any) {
        is_closed = true;
      }
    }
    if (additional == nullptr && unevaluated != nullptr) additional = unevaluated;
    if (additional == nullptr) continue;
    is_asked_for = true;
    others.push_back(additional);
  }
  const bool has_properties = std::ranges::any_of(
      one.nodes, [](const SchemaJson* node) { return node->contains("properties"); });
  if (is_closed || (!is_asked_for && has_properties)) return;
  object->additional = Together(others);
}

// Applies the counts of members, as far as the required members decide them.
std::optional<SchemaJson> SchemaRewriter::WithCounts(const SchemaCase& one, ObjectCase* object) {
  const size_t least = Count(one, "minProperties", true).value_or(0);
  const size_t most = Count(one, "maxProperties", false).value_or(RegexNode::kNoLimit);
  const auto refuse = [&](const char* keyword) {
    const auto by_keyword = [&](const SchemaJson* node) { return node->contains(keyword); };
    Refuse(**std::ranges::find_if(one.nodes, by_keyword), keyword, "is not supported here");
  };
  const size_t num_required = object->required.size();
  if (num_required > most || least > most) return std::nullopt;
  const bool is_closed = !object->additional.has_value();
  if (is_closed && object->members.size() < least) return std::nullopt;
  const bool is_answer = use_ == SchemaUse::kAnswer;
  if (most != RegexNode::kNoLimit && (!is_closed || object->members.size() > most)) {
    if (object->members.size() <= most && is_answer && !object->members.empty()) {
      object->additional.reset();
    } else if (most == num_required && is_answer) {
      std::erase_if(object->members,
                    [&](const auto& member) { return !object->required.contains(member.first); });
      object->additional.reset();
    } else {
      refuse("maxProperties");
    }
  }
  SchemaJson schema = {{"type", "object"}};
  SchemaJson properties = SchemaJson::object(), required = SchemaJson::array();
  for (auto& [name, member] : object->members) {
    properties[name] = std::move(member);
    if (object->required.contains(name)) required.push_back(name);
  }
  if (properties.size() - required.size() > kMostOptional) {
    Refuse(*one.nodes.front(), "properties", "has more than 200 members that may be left out");
    return SchemaJson{{"type", "object"}};
  }
  const auto num_members = properties.size();
  const bool is_any =
      num_members == 0 && object->additional.has_value() && object->additional->empty();
  if (!is_any) schema["properties"] = std::move(properties);
  if (!required.empty()) schema["required"] = std::move(required);
  if (object->additional.has_value() && !is_any) {
    schema["additionalProperties"] =
        object->additional->empty() ? SchemaJson(true) : *object->additional;
  }
  if (least <= num_required) return schema;
  const bool is_of_one = least == 1 && num_members > 0 && num_members <= kMostOfOneNeeded &&
                         (is_answer || !object->additional.has_value());
  if (!is_of_one) {
    if (is_answer && !object->additional.has_value() && num_members == least) {
      for (const auto& [name, member] : schema["properties"].items()) {
        if (!object->required.contains(name)) schema["required"].push_back(name);
      }
      return schema;
    }
    refuse("minProperties");
    return schema;
  }
  SchemaJson choices = SchemaJson::array();
  for (const auto& [name, member] : schema["properties"].items()) {
    choices.push_back(schema);
    choices.back()["required"] = SchemaJson::array({name});
  }
  return choices.size() == 1 ? choices[0] : SchemaJson{{"anyOf", std::move(choices)}};
}

}  // namespace ebb

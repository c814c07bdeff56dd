// What becomes of a schema. Whether the grammars admit the right texts is tests/schemas' to say.
#include "src/model/schema/schema_rewrite.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "ebb/grammar.h"

namespace ebb {
namespace {

using nlohmann::ordered_json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

// The rewritten schema, less the reference that it begins with.
ordered_json Answer(const std::string& schema) {
  const auto rewritten = RewriteSchema(schema, SchemaUse::kAnswer, "s");
  EXPECT_TRUE(rewritten.ok()) << schema << rewritten.status().ToString();
  if (!rewritten.ok()) return {};
  return ordered_json::parse(rewritten->schema)["$defs"]["sroot"];
}

std::string Why(const std::string& schema) {
  const auto rewritten = RewriteSchema(schema, SchemaUse::kAnswer, "s");
  EXPECT_FALSE(rewritten.ok()) << schema << (rewritten.ok() ? rewritten->schema : "");
  return rewritten.ok() ? "" : rewritten.status().message();
}

RewrittenSchema ForTool(const std::string& schema) {
  const auto rewritten = RewriteSchema(schema, SchemaUse::kTool, "s");
  EXPECT_TRUE(rewritten.ok()) << schema;
  return rewritten.ok() ? *rewritten : RewrittenSchema();
}

// Each of these once took minutes, or would have.
TEST(RewriteSchema, LongListsAndHeavyPatternsTakeABoundedTime) {
  ordered_json values, numbers;
  for (int i = 0; i < 30000; ++i) values["enum"].push_back("v" + std::to_string(i));
  EXPECT_EQ(Answer(values.dump())["enum"].size(), 30000U);
  // 1 and 1.0 are one value, and members have no order.
  numbers = {
      {"enum", {1, 1.0, 1.5, {{"a", 1}, {"b", 2}}, {{"b", 2.0}, {"a", 1}}, {1, 2}, {2, 1}, "1"}}};
  EXPECT_EQ(Answer(numbers.dump())["enum"],
            ordered_json::parse(R"([1, 1.5, {"a": 1, "b": 2}, [1, 2], [2, 1], "1"])"));
  const ordered_json heavy = {{"const", std::string(50000, 'a')},
                              {"pattern", "^((a{0,1000}){0,1000}){0,1000}b$"}};
  EXPECT_THAT(Why(heavy.dump()), HasSubstr("has values that cannot be checked"));
  EXPECT_THAT(ForTool(heavy.dump()).widened, ElementsAre(""));
  values["pattern"] = "^(?:(?:(?:v?){50}){50}){50}[0-9]{1,1000}$";
  EXPECT_THAT(Why(values.dump()), HasSubstr("too many parts"));
}

TEST(RewriteSchema, KeywordsSideBySideAllHold) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"allOf": [{"type": "string"}, {"maxLength": 2}]})",
       R"({"type": "string", "minLength": 0, "maxLength": 2})"},
      {R"({"$defs": {"s": {"type": "string"}}, "$ref": "#/$defs/s", "minLength": 1})",
       R"({"type": "string", "minLength": 1})"},
      {R"({"type": "integer", "anyOf": [{"minimum": 100, "maximum": 200}, {"const": -1}]})",
       R"({"anyOf": [{"type": "integer", "minimum": 100, "maximum": 200}, {"enum": [-1]}]})"},
      {R"({"type": "integer", "const": 7})", R"({"enum": [7]})"},
      {R"({"enum": [1, "a", null], "type": ["string", "null"]})", R"({"enum": ["a", null]})"},
      {R"({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["b"]})",
       R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {}},
           "required": ["b"]})"},
      {R"({"properties": {"a": true, "b": false}})",
       R"({"type": "object", "properties": {"a": {}}})"},
      {R"({"type": "object", "properties": {"a": {"type": "null"}},
           "anyOf": [{"required": ["a"]}]})",
       R"({"type": "object", "properties": {"a": {"type": "null"}}, "required": ["a"]})"},
      {R"({"oneOf": [{"type": "string"}, {"type": "null"}]})",
       R"({"anyOf": [{"type": "string"}, {"type": "null"}]})"},
      {R"({"not": {"type": ["object", "array", "number", "boolean"]}})",
       R"({"anyOf": [{"type": "string"}, {"type": "null"}]})"},
  };
  for (const auto& [schema, expected] : cases) {
    EXPECT_EQ(Answer(schema), ordered_json::parse(expected)) << schema;
  }
}

TEST(RewriteSchema, BoundsBecomeClosedOnes) {
  const auto range = [](const std::string& bounds) {
    const ordered_json schema = Answer(R"({"type": "integer", )" + bounds + "}");
    return std::pair(schema["minimum"].get<int64_t>(), schema["maximum"].get<int64_t>());
  };
  constexpr int64_t kLargest = 9'999'999'999'999'999;
  EXPECT_EQ(range(R"("minimum": 3)"), std::pair(int64_t{3}, kLargest));
  EXPECT_EQ(range(R"("exclusiveMinimum": 3, "exclusiveMaximum": 9)"),
            std::pair(int64_t{4}, int64_t{8}));
  EXPECT_EQ(range(R"("minimum": 2.5, "maximum": 4.5)"), std::pair(int64_t{3}, int64_t{4}));
  EXPECT_EQ(range(R"("exclusiveMaximum": 4.5)"), std::pair(-kLargest, int64_t{4}));
  EXPECT_EQ(range(R"("maximum": 1e30)"), std::pair(-kLargest, kLargest));
}

TEST(RewriteSchema, WhatAdmitsNothingIsRefused) {
  for (const char* schema :
       {"false", R"({"type": "integer", "minimum": 5, "maximum": 3})",
        R"({"type": "integer", "exclusiveMinimum": 3, "exclusiveMaximum": 4})", R"({"enum": []})",
        R"({"type": "string", "const": 7})", R"({"allOf": [{"type": "string"}, {"type": "null"}]})",
        R"({"type": "object", "properties": {"a": false}, "required": ["a"]})",
        R"({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]})"}) {
    EXPECT_THAT(Why(schema), HasSubstr("# admits no value")) << schema;
  }
}

TEST(RewriteSchema, WhatCannotBeHeldToIsRefusedByItsPointer) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"properties": {"a": {"type": "number", "minimum": "1"}}})", "#/properties/a/minimum"},
      {R"({"items": {"type": "number", "multipleOf": 0.1}})", "#/items/multipleOf"},
      {R"({"type": "array", "uniqueItems": true})", "#/uniqueItems"},
      {R"({"type": "array", "contains": {}})", "#/contains"},
      {R"({"type": "object", "minProperties": 1})", "#/minProperties"},
      {R"({"type": "string", "not": {"const": "a"}})", "#/not"},
      {R"({"type": "string", "format": "ipv6"})", "#/format"},
      {R"x({"type": "string", "pattern": "(?=a)"})x", "#/pattern has lookaround"},
      {R"({"if": {}, "then": {}})", "#/if"},
      {R"({"properties": {"a/b~c": {"$ref": "x.json"}}})", "#/properties/a~1b~0c/$ref"},
      {R"({"type": "any"})", "#/type"},
      {R"({"oneOf": [{"type": "integer"}, {"type": "number"}]})", "#/oneOf"},
      {R"({"oneOf": [{"type": "integer"}, {"const": 5}]})", "#/oneOf"},
      {"no JSON", "# is no JSON"},
  };
  for (const auto& [schema, why] : cases) EXPECT_THAT(Why(schema), HasSubstr(why)) << schema;
}

TEST(RewriteSchema, ToolsAreWidenedAndSayWhere) {
  const RewrittenSchema tool = ForTool(
      R"({"type": "object", "properties": {
            "n": {"type": "number", "multipleOf": 0.5},
            "list": {"type": "array", "items": {"type": "string", "format": "uri"}},
            "any": true, "odd": {"type": "file"}, "far": {"$ref": "https://example.org/a.json"},
            "well": {"type": "string", "maxLength": 3000000000}}, "required": ["n"]})");
  EXPECT_THAT(tool.widened, UnorderedElementsAre("properties.n", "properties.list.items",
                                                 "properties.odd", "properties.far"));
  const ordered_json schema = ordered_json::parse(tool.schema);
  EXPECT_EQ(schema["properties"]["n"], ordered_json({{"type", "number"}}));
  EXPECT_EQ(schema["properties"]["any"], ordered_json::object());
  EXPECT_EQ(schema["required"], ordered_json({"n"}));
}

TEST(RewriteSchema, EveryToolsSchemaBecomesAnObjects) {
  for (const char* schema : {"{}", "false", R"({"type": "string"})", "no JSON", R"({"enum": [1]})",
                             R"({"anyOf": [{"type": "object"}, {"type": "null"}]})",
                             R"({"allOf": [{"type": "object"}, {"not": {}}]})"}) {
    EXPECT_EQ(ordered_json::parse(ForTool(schema).schema)["type"], "object") << schema;
  }
  const RewrittenSchema merged = ForTool(
      R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
          "anyOf": [{"required": ["a"]}, {"required": ["b"]}]})");
  EXPECT_THAT(merged.widened, ElementsAre(""));
  EXPECT_EQ(ordered_json::parse(merged.schema)["properties"].size(), 2u);
}

TEST(RewriteSchema, RefusesWhatTakesTheStackOrForEver) {
  std::string nested = "{}", doubled = R"({"$ref": "#/a0", "a30": {})", products = R"({"allOf": [)";
  for (int i = 0; i < 200; ++i) nested = R"({"items": )" + nested + "}";
  for (int i = 0; i < 30; ++i) {
    doubled += fmt::format(
        R"(, "a{0}": {{"anyOf": [{{"$ref": "#/a{1}", "title": "l"}}, {{"$ref": "#/a{1}"}}]}})", i,
        i + 1);
  }
  for (int i = 0; i < 30; ++i) {
    products += fmt::format(R"({}{{"anyOf": [{{"properties": {{"a{}": {{"type": "null"}}}}}},)"
                            R"( {{"properties": {{"b{}": {{"type": "null"}}}}}}]}})",
                            i == 0 ? "" : ",", i, i);
  }
  const std::pair<std::string, const char*> cases[] = {
      {nested, "100 deep"},
      {doubled + "}", "too many"},
      {products + "]}", "too many"},
      {R"({"properties": {")" + std::string(2000, '_') + R"(": {}}})", "1024 bytes"},
      {"\"" + std::string(size_t{1} << 20, 'x') + "\"", "1048576"}};
  for (const auto& [schema, why] : cases) {
    EXPECT_THAT(Why(schema), HasSubstr(why)) << schema.substr(0, 80);
    EXPECT_THAT(ForTool(schema).widened, ElementsAre("")) << schema.substr(0, 80);
  }
}

TEST(Grammars, AreThoseOfTextsChoicesAndExpressions) {
  EXPECT_EQ(*GrammarOfRegex("a[bc]+"), "root ::= [a] [bc]+\n");
  EXPECT_EQ(*GrammarOfChoice(std::vector<std::string>{"a", "\"é"}), "root ::= \"a\" | \"\\\"é\"\n");
  EXPECT_THAT(GrammarOfRegex("(?=a)").status().message(), HasSubstr("lookaround"));
  EXPECT_FALSE(GrammarOfChoice({}).ok());
  EXPECT_THAT(GrammarOfSchema(R"({"type": "number", "multipleOf": 1.5})").status().message(),
              HasSubstr("#/multipleOf"));
}

}  // namespace
}  // namespace ebb

#include "src/server/api/openai/text_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace ebb::server {
namespace {

using testing::HasSubstr;
using Kind = TextFormat::Kind;

struct Told {
  TextFormat format;
  std::optional<ApiError> error;
  std::vector<std::string> unknown, ignored;
};

Told ReadFormatOf(const std::string& body) {
  Told told;
  const Json json = Json::parse(body);
  JsonFields fields(json, "", &told.error);
  told.format = ReadTextFormat(&fields, &told.error, {}, &told.ignored);
  if (!told.error.has_value()) told.unknown = fields.Unknown();
  return told;
}

TEST(ReadTextFormat, TakesEveryName) {
  const struct {
    const char* body;
    Kind kind;
    const char* text;
    const char* field;
  } cases[] = {
      {R"({})", Kind::kFree, "", ""},
      {R"({"response_format": {"type": "text"}, "structured_outputs": {}, "guided_regex": "",
           "guided_grammar": "", "guided_choice": []})",
       Kind::kFree, "", ""},
      {R"({"response_format": {"type": "json_object"}})", Kind::kJsonObject, "", "response_format"},
      {R"({"response_format": {"type": "json_schema", "json_schema": {"schema": {"const": 1}}}})",
       Kind::kJsonSchema, R"({"const":1})", "response_format.json_schema.schema"},
      {R"({"json_schema": {"const": 1}})", Kind::kJsonSchema, R"({"const":1})", "json_schema"},
      {R"({"guided_json": {"const": 1}})", Kind::kJsonSchema, R"({"const":1})", "guided_json"},
      {R"({"guided_json": "{\"const\": 1}"})", Kind::kJsonSchema, R"({"const":1})", "guided_json"},
      {R"({"structured_outputs": {"json": {"const": 1}}})", Kind::kJsonSchema, R"({"const":1})",
       "structured_outputs.json"},
      {R"({"structured_outputs": {"json_object": true}})", Kind::kJsonObject, "",
       "structured_outputs.json_object"},
      {R"({"grammar": "root ::= \"a\""})", Kind::kGrammar, "root ::= \"a\"", "grammar"},
      {R"({"ebnf": "root ::= \"a\""})", Kind::kGrammar, "root ::= \"a\"", "ebnf"},
      {R"({"grammar_string": "root ::= \"a\""})", Kind::kGrammar, "root ::= \"a\"",
       "grammar_string"},
      {R"({"regex": "a[bc]"})", Kind::kGrammar, "root ::= [a] [bc]\n", "regex"},
      {R"({"json_schema": "{\"const\": 1}"})", Kind::kJsonSchema, R"({"const":1})", "json_schema"},
      {R"({"guided_grammar": "root ::= \"a\""})", Kind::kGrammar, "root ::= \"a\"",
       "guided_grammar"},
      {R"({"structured_outputs": {"grammar": "root ::= \"a\""}})", Kind::kGrammar, "root ::= \"a\"",
       "structured_outputs.grammar"},
      {R"({"guided_regex": "a[bc]"})", Kind::kGrammar, "root ::= [a] [bc]\n", "guided_regex"},
      {R"({"structured_outputs": {"regex": "^a$"}})", Kind::kGrammar, "root ::= [a]\n",
       "structured_outputs.regex"},
      {R"({"guided_choice": ["a", "\"\n\\\u00e4", ""]})", Kind::kGrammar,
       "root ::= \"a\" | \"\\\"\\x0A\\\\\u00e4\" | \"\"\n", "guided_choice"},
      {R"({"structured_outputs": {"choice": ["a"]}})", Kind::kGrammar, "root ::= \"a\"\n",
       "structured_outputs.choice"},
  };
  for (const auto& one : cases) {
    const Told told = ReadFormatOf(one.body);
    ASSERT_FALSE(told.error.has_value()) << one.body << told.error->message;
    EXPECT_EQ(told.format.kind, one.kind) << one.body;
    EXPECT_EQ(told.format.text, one.text) << one.body;
    EXPECT_EQ(told.format.field, one.field) << one.body;
    EXPECT_TRUE(told.unknown.empty()) << one.body;
  }
}

TEST(ReadTextFormat, RefusesByTheFieldWhatNoGrammarHoldsTo) {
  const struct {
    const char* body;
    const char* param;
    const char* why;
  } cases[] = {
      {R"({"guided_json": {"type": "integer", "minimum": 3, "maximum": 2}})", "guided_json",
       "# admits no value"},
      {R"({"response_format": {"type": "json_schema", "json_schema": {"schema":
           {"type": "array", "uniqueItems": true}}}})",
       "response_format.json_schema.schema", "#/uniqueItems"},
      {R"({"guided_json": "no JSON"})", "guided_json", "expected a JSON schema"},
      {R"x({"guided_regex": "(?=a)"})x", "guided_regex", "lookaround"},
      {R"x({"structured_outputs": {"regex": "(a"}})x", "structured_outputs.regex",
       "without a closing one"},
      {R"({"guided_choice": [1]})", "guided_choice", "strings"},
      {R"({"guided_choice": "a"})", "guided_choice", ""},
      {R"({"structured_outputs": {"structural_tag": "x"}})", "structured_outputs.structural_tag",
       "not supported"},
      {R"({"structured_outputs": 5})", "structured_outputs", ""},
      {R"({"guided_choice": ["a"], "guided_regex": "a"})", "guided_choice", "found both"},
      {R"({"grammar": "root ::= \"a\"", "response_format": {"type": "json_object"}})",
       "response_format", "expected this or grammar"},
      {R"({"response_format": {"type": "json_object"}, "structured_outputs": {"choice": ["a"]}})",
       "structured_outputs.choice", "expected this or response_format"},
  };
  for (const auto& one : cases) {
    const Told told = ReadFormatOf(one.body);
    ASSERT_TRUE(told.error.has_value()) << one.body;
    EXPECT_EQ(told.error->status, 400) << one.body;
    EXPECT_EQ(told.error->param, one.param) << one.body;
    EXPECT_THAT(told.error->message, HasSubstr(one.why)) << one.body;
  }
}

}  // namespace
}  // namespace ebb::server

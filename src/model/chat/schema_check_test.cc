#include "src/model/chat/schema_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include <fmt/format.h>

namespace ebb {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

std::string Properties(int count, const std::string& required) {
  std::string all;
  for (int i = 0; i < count; ++i) all += fmt::format("{}\"p{}\": {{}}", i == 0 ? "" : ",", i);
  return R"({"type": "object", "properties": {)" + all + R"(}, "required": [)" + required + "]}";
}

TEST(CheckSchema, LetsSchemasOfPeoplePass) {
  for (const std::string& schema :
       {std::string("{}"), std::string("no JSON"), Properties(200, ""), Properties(201, "\"p0\""),
        std::string(R"({"type": ["string", "null"], "enum": ["a", "b", null]})"),
        // A tree, whose nodes hold nodes.
        std::string(R"({"$ref": "#/$defs/node", "$defs": {"node": {"type": "object", "properties":
            {"value": {"type": "integer"}, "next": {"type": "array", "items": {"$ref": "#/$defs/node"}}}}}})"),
        std::string(
            R"({"allOf": [{"$ref": "#/a"}, {"$ref": "#/missing"}], "a": {"type": "object"}})")}) {
    const Status status = CheckSchema("f", schema);
    EXPECT_TRUE(status.ok()) << schema << status.ToString();
  }
}

TEST(CheckSchema, RefusesWhatTakesTheStackOrForEver) {
  std::string types = R"({"type": "string"})", nested = "{}", refs = R"({"$ref": "#/a0")";
  for (int i = 0; i < 50; ++i) types = R"({"type": ["array", "array"], "items": )" + types + "}";
  for (int i = 0; i < 200; ++i) nested = R"({"items": )" + nested + "}";
  std::string doubled = refs, chain = refs;
  for (int i = 0; i < 30; ++i) {
    doubled += fmt::format(R"(, "a{0}": {{"anyOf": [{{"$ref": "#/a{1}"}}, {{"$ref": "#/a{1}"}}]}})",
                           i, i + 1);
  }
  for (int i = 0; i < 300; ++i)
    chain += fmt::format(R"(, "a{0}": {{"items": {{"$ref": "#/a{1}"}}}})", i, i + 1);
  const std::string name(2000, '_');
  const std::pair<std::string, const char*> cases[] = {
      {R"({"allOf": [{"$ref": "#/a"}], "a": {"$ref": "#/a"}})", "without an end"},
      {R"({"$ref": "#/a", "a": {"$ref": "#/b"}, "b": {"$ref": "#/a"}})", "without an end"},
      {types, "100000 parts"},
      {doubled + "}", "100000 parts"},
      {nested, "100 deep"},
      {chain + "}", "100 deep"},
      {R"({"properties": {")" + name + R"(": {}}})", "1024 bytes"},
      {R"({"type": "string", "pattern": ")" + std::string(2000, '(') + "\"}", "1024 bytes"},
      {Properties(201, ""), "200 properties"},
      {"\"" + std::string(size_t{1} << 20, 'x') + "\"", "1048576 bytes"}};
  for (const auto& [schema, why] : cases) {
    const Status status = CheckSchema("f", schema);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << schema.substr(0, 80);
    EXPECT_THAT(status.message(), StartsWith("f: expected a JSON schema that is supported: "));
    EXPECT_THAT(status.message(), HasSubstr(why)) << schema.substr(0, 80);
  }
}

}  // namespace
}  // namespace ebb

#include "src/server/api/json_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ebb::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string ErrorOf(std::string_view text) {
  const ApiResult<Json> result = ParseObject(text);
  const auto* error = std::get_if<ApiError>(&result);
  return error == nullptr ? "" : error->code + " " + error->message;
}

TEST(ParseObject, RefusesWhatIsNoObject) {
  EXPECT_EQ(ErrorOf("{\"a\": [1, {\"b\": null}]}"), "");
  for (const std::string_view text : {"", "{", "{\"a\": 1} x", "{\"a\": 1e999}", "{'a': 1}",
                                      "{\"a\": \"\xff\"}", "{\"a\": \"\xed\xa0\x80\"}", "nul"}) {
    EXPECT_THAT(ErrorOf(text), HasSubstr("invalid_json the body is not JSON")) << text;
  }
  EXPECT_THAT(ErrorOf("[1]"), HasSubstr("expected a JSON object, found array"));
}

TEST(ParseObject, RefusesWhatIsTooDeepOrTooWideBeforeItIsParsed) {
  const auto nested = [](size_t depth) {
    return "{\"a\": " + std::string(depth - 1, '[') + std::string(depth - 1, ']') + "}";
  };
  EXPECT_EQ(ErrorOf(nested(kMostJsonDepth)), "");
  EXPECT_THAT(ErrorOf(nested(kMostJsonDepth + 1)), HasSubstr("at most 64 levels, found 65"));
  EXPECT_THAT(ErrorOf(std::string(5'000'000, '[')), HasSubstr("at most 64 levels"));
  // Brackets in a string are text.
  EXPECT_EQ(ErrorOf("{\"a\": \"" + std::string(100, '[') + "\\\"[\"}"), "");
  std::string wide = "{";
  for (size_t i = 0; i <= kMostJsonMembers; ++i) wide += "\"" + std::to_string(i) + "\":1,";
  wide.back() = '}';
  EXPECT_THAT(ErrorOf(wide), HasSubstr("at most 10000 members, found 10001"));
}

class JsonFieldsTest : public testing::Test {
 protected:
  JsonFields Fields(const char* text, std::string path = "") {
    object_ = Json::parse(text);
    error_.reset();
    return {object_, std::move(path), &error_};
  }
  std::string Error() const {
    return error_.has_value() ? error_->code + " " + error_->param + " " + error_->message : "";
  }
  Json object_;
  std::optional<ApiError> error_;
};

TEST_F(JsonFieldsTest, GivesWhatIsThereAndNothingForNull) {
  JsonFields fields = Fields(R"({"n": 1.5, "i": 3, "b": true, "t": "x", "o": {}, "z": null})");
  EXPECT_EQ(fields.Number("n", {0, 2}), 1.5);
  EXPECT_EQ(fields.Integer("i", 0, 5), 3);
  EXPECT_EQ(fields.Bool("b"), true);
  EXPECT_EQ(fields.Text("t"), "x");
  EXPECT_NE(fields.Object("o"), nullptr);
  EXPECT_FALSE(fields.Number("z", {}).has_value());
  EXPECT_EQ(fields.Array("absent"), nullptr);
  EXPECT_TRUE(fields.ok());
}

TEST_F(JsonFieldsTest, NamesTheFieldThatHasAnotherType) {
  (void)Fields(R"({"n": "1"})", "a").Number("n", {});
  EXPECT_EQ(Error(), "invalid_type a.n a.n: expected a number, found string");
  (void)Fields(R"({"n": 1.5})").Integer("n", 0, 5);
  EXPECT_THAT(Error(), HasSubstr("expected an integer, found number"));
  (void)Fields(R"({"n": 1})").Bool("n");
  EXPECT_THAT(Error(), HasSubstr("expected true or false, found number"));
  (void)Fields(R"({"n": 1})").Text("n");
  EXPECT_THAT(Error(), HasSubstr("expected a string, found number"));
  (void)Fields(R"({"n": []})").Object("n");
  EXPECT_THAT(Error(), HasSubstr("expected an object, found array"));
  (void)Fields(R"({"n": {}})").Array("n");
  EXPECT_THAT(Error(), HasSubstr("expected an array, found object"));
}

TEST_F(JsonFieldsTest, RefusesValuesOutOfRangeAndClampsNone) {
  (void)Fields(R"({"n": 2.1})").Number("n", {0, 2});
  EXPECT_EQ(Error(), "out_of_range n n: expected 0 to 2, found 2.1");
  (void)Fields(R"({"n": 6})").Integer("n", 0, 5);
  EXPECT_EQ(Error(), "out_of_range n n: expected 0 to 5, found 6");
  (void)Fields(R"({"n": 18446744073709551615})").Integer("n", 0, INT64_MAX);
  EXPECT_THAT(Error(), HasSubstr("found 18446744073709551615"));
}

TEST_F(JsonFieldsTest, TheFirstErrorStandsAndAllElseIsAbsent) {
  JsonFields fields = Fields(R"({"a": 1, "b": 2, "c": 3})");
  (void)fields.Text("a");
  EXPECT_FALSE(fields.Integer("b", 0, 5).has_value());
  (void)fields.Text("c");
  EXPECT_THAT(Error(), HasSubstr("a: expected a string"));
}

TEST_F(JsonFieldsTest, TellsWhatNobodyAskedFor) {
  JsonFields fields = Fields(R"({"a": 1, "b": 2, "c": null})", "x");
  (void)fields.Integer("a", 0, 5);
  EXPECT_THAT(fields.Unknown(), ElementsAre("x.b"));
}

}  // namespace
}  // namespace ebb::server

#include "src/server/api/base/json_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ebb::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

std::string ErrorOf(std::string_view text) {
  const ApiResult<Json> result = ParseObject(text);
  return result.ok() ? "" : result.error().code + " " + result.error().message;
}

TEST(ParseObject, RefusesWhatIsNoObject) {
  EXPECT_EQ(ErrorOf("{\"a\": [1, {\"b\": null}]}"), "");
  for (const std::string_view text : {"", "{", "{\"a\": 1} x", "{\"a\": 1e999}", "{'a': 1}",
                                      "{\"a\": \"\xff\"}", "{\"a\": \"\xed\xa0\x80\"}", "nul"}) {
    EXPECT_THAT(ErrorOf(text), StartsWith("invalid_json the body: expected ")) << text;
  }
  EXPECT_THAT(ErrorOf("[1]"), HasSubstr("expected a JSON object, found array"));
}

TEST(ParseObject, AnErrorNamesTheByteAndShowsAFewOfThoseBeforeIt) {
  EXPECT_EQ(ErrorOf("{'a': 1}"),
            "invalid_json the body: expected JSON, found an error at byte 1, the last of \"{'\"");
  EXPECT_EQ(ErrorOf("{\"a\":"),
            "invalid_json the body: expected JSON, found its end at byte 5, behind \"{\"a\":\"");
  EXPECT_EQ(ErrorOf("{\"\xc3\xa4\x1b\": 1}"),
            "invalid_json the body: expected JSON, found an error at byte 4, the last of "
            "\"{\"\\xc3\\xa4\\x1b\"");
  for (const std::string tail : {"\x1b\"}", "", "\xff\"}"}) {
    const std::string error = ErrorOf("{\"a\": \"" + std::string(2'000'000, 'x') + tail);
    EXPECT_LT(error.size(), 150u) << error.substr(0, 300);
    EXPECT_THAT(error, HasSubstr("at byte 2000007"));
  }
}

TEST(ParseObject, HalfOfASurrogatePairBecomesAReplacementCharacter) {
  const auto read = [](const std::string& text) {
    const ApiResult<Json> result = ParseObject("{\"a\": \"" + text + "\"}");
    return (*result)["a"].get<std::string>();
  };
  EXPECT_EQ(read(R"(a \ud83d b)"), "a \xEF\xBF\xBD b");
  EXPECT_EQ(read(R"(a \ude00 b)"), "a \xEF\xBF\xBD b");
  EXPECT_EQ(read(R"(\ud83d)"), "\xEF\xBF\xBD");
  EXPECT_EQ(read(R"(\uD83D\ud83d\uDE00\ude00)"), "\xEF\xBF\xBD\xF0\x9F\x98\x80\xEF\xBF\xBD");
  // An escaped backslash does not escape the text after it.
  EXPECT_EQ(read(R"(\\ud83d)"), R"(\ud83d)");
  EXPECT_EQ(read(R"(\\\ud83d)"), "\\\xEF\xBF\xBD");
  const ApiResult<Json> name = ParseObject(R"({"\udc00": 1})");
  EXPECT_TRUE(name->contains("\xEF\xBF\xBD"));
  // Escapes that are cut off are still invalid JSON.
  EXPECT_THAT(ErrorOf(R"({"a": "\ud8"})"), StartsWith("invalid_json"));
  EXPECT_THAT(ErrorOf(R"({"a": "\)"), StartsWith("invalid_json"));
}

TEST(ParseObject, RefusesWhatIsTooDeepOrTooWideBeforeItIsParsed) {
  const auto nested = [](size_t depth) {
    return "{\"a\": " + std::string(depth - 1, '[') + std::string(depth - 1, ']') + "}";
  };
  EXPECT_EQ(ErrorOf(nested(kMostJsonDepth)), "");
  EXPECT_THAT(ErrorOf(nested(kMostJsonDepth + 1)), HasSubstr("at most 64 levels, found 65"));
  EXPECT_THAT(ErrorOf(std::string(5'000'000, '[')), HasSubstr("at most 64 levels"));
  EXPECT_THAT(ErrorOf(std::string(100, '}') + ":"), StartsWith("invalid_json"));
  // Brackets in a string are text.
  EXPECT_EQ(ErrorOf("{\"a\": \"" + std::string(100, '[') + "\\\"[\"}"), "");
  const auto wide = [](size_t members) {
    std::string text = "{";
    for (size_t i = 0; i < members; ++i) text += "\"" + std::to_string(i) + "\":1,";
    text.back() = '}';
    return text;
  };
  EXPECT_EQ(ErrorOf(wide(kMostObjectMembers)), "");
  EXPECT_THAT(
      ErrorOf(wide(kMostObjectMembers + 2)),
      StartsWith("request_too_large the body: expected JSON of at most 10000 members in "
                 "one object, or of fewer in several, found 10002 in one and 10002 in all"));
  std::string several = "{\"a\": [";
  for (int i = 0; i < 3; ++i) several += wide(kMostObjectMembers - 1000) + (i < 2 ? "," : "]}");
  EXPECT_THAT(ErrorOf(several), HasSubstr("found 9000 in one and 27001 in all"));
  std::string all = "{\"a\": [";
  for (size_t i = 0; i < kMostJsonMembers; ++i) all += "{\"b\":1},";
  all.back() = ']';
  EXPECT_THAT(ErrorOf(all + "}"),
              StartsWith("request_too_large the body: expected JSON of at most 200000 members, "
                         "found 200001"));
}

TEST(ParseObject, TakesTheRequestOfAnAgentAtTheEndOfItsDay) {
  Json parameters = {{"type", "object"}, {"properties", Json::object()}};
  for (int i = 0; i < 50; ++i) {
    parameters["properties"]["p" + std::to_string(i)] = {{"type", "string"}, {"description", "d"}};
  }
  Json body = {{"tools", Json::array()}, {"messages", Json::array()}};
  for (int i = 0; i < 30; ++i) {
    body["tools"].push_back(
        {{"type", "function"}, {"function", {{"name", "f"}, {"parameters", parameters}}}});
  }
  const Json call = {{"id", "c"},
                     {"type", "function"},
                     {"function", {{"name", "f"}, {"arguments", "{\"p1\": \"x\"}"}}}};
  for (int i = 0; i < 700; ++i) {
    body["messages"].push_back(
        {{"role", "user"}, {"content", {{{"type", "text"}, {"text", "go on"}}}}});
    body["messages"].push_back(
        {{"role", "assistant"}, {"content", nullptr}, {"tool_calls", {call, call}}});
    for (int j = 0; j < 2; ++j) {
      body["messages"].push_back({{"role", "tool"}, {"tool_call_id", "c"}, {"content", "done"}});
    }
  }
  EXPECT_EQ(ErrorOf(body.dump()), "");
}

TEST(ArgumentsText, IsTheTextOfAnObjectWhateverCame) {
  EXPECT_EQ(ArgumentsText("{\"z\": 1, \"a\": 2}"), "{\"z\": 1, \"a\": 2}");
  EXPECT_EQ(ArgumentsText(Json::parse("{\"z\": 1}")), "{\"z\":1}");
  EXPECT_EQ(ArgumentsText(nullptr), "{}");
  EXPECT_EQ(ArgumentsText(""), "{}");
  EXPECT_EQ(ArgumentsText(R"({"t": "\ud83d"})"), "{\"t\":\"\xEF\xBF\xBD\"}");
  // Text that is no object is kept as a string.
  EXPECT_EQ(ArgumentsText("{\"t\": \"ab"), R"({"INVALID_JSON":"{\"t\": \"ab"})");
  EXPECT_EQ(ArgumentsText("[1]"), R"({"INVALID_JSON":"[1]"})");
  EXPECT_EQ(ArgumentsText("null"), R"({"INVALID_JSON":"null"})");
  EXPECT_EQ(ArgumentsText(Json::parse("[1]")), R"({"INVALID_JSON":"[1]"})");
  const std::string deep = "{\"a\":" + std::string(100, '[') + std::string(100, ']') + "}";
  EXPECT_EQ(Json::parse(ArgumentsText(deep))["INVALID_JSON"], deep);
}

TEST(IsJson, IsWhatClientsSendJsonWith) {
  for (const char* type : {"application/json", "Application/JSON ; charset=utf-8", "",
                           "application/x-www-form-urlencoded"}) {
    EXPECT_TRUE(IsJson(type)) << type;
  }
  for (const char* type : {"text/plain", "multipart/form-data", "application/jsonl"}) {
    EXPECT_FALSE(IsJson(type)) << type;
  }
}

TEST(ErrorJson, RepeatsNoMoreThanTheBeginningOfWhatAClientSent) {
  const std::string text = "role: found \"" + std::string(3'000'000, 'x');
  const Json error = ErrorJson(Invalid(text, std::string(2'000'000, 'y')))["error"];
  EXPECT_LT(error.dump().size(), 1000u);
  EXPECT_THAT(error["message"].get<std::string>(), StartsWith("role: found \"xxx"));
  EXPECT_THAT(error["message"].get<std::string>(), HasSubstr("bytes more)"));
  std::string umlauts;
  for (int i = 0; i < 1000; ++i) umlauts += "\xc3\xa4";
  EXPECT_THAT(Dump(ErrorJson(Invalid("x" + umlauts, ""))), testing::Not(HasSubstr("\xEF\xBF\xBD")));
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

TEST_F(JsonFieldsTest, AnIntegerMayBeWrittenAsAnyNumber) {
  JsonFields fields = Fields(R"({"a": 100.0, "b": 1e3, "c": -2.0, "d": 0.5e1})");
  EXPECT_EQ(fields.Integer("a", 0, 100), 100);
  EXPECT_EQ(fields.Integer("b", 0, 1000), 1000);
  EXPECT_EQ(fields.Integer("c", -5, 0), -2);
  EXPECT_EQ(fields.Integer("d", 0, 10), 5);
  EXPECT_TRUE(fields.ok());
  (void)Fields(R"({"n": 1e300})").Integer("n", 0, INT64_MAX);
  EXPECT_EQ(Error(), "out_of_range n n: expected 0 to 9223372036854775807, found 1e+300");
  (void)Fields(R"({"n": 9223372036854775808.0})").Integer("n", 0, INT64_MAX);
  EXPECT_THAT(Error(), HasSubstr("out_of_range"));
  (void)Fields(R"({"n": 1e-3})").Integer("n", 0, 5);
  EXPECT_THAT(Error(), HasSubstr("invalid_type"));
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

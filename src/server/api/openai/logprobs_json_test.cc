#include "src/server/api/openai/logprobs_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace ebb::server {
namespace {

using testing::ElementsAre;

// TellerTest sends an answer piece by piece with the texts of its tokens.
class TellerTest : public testing::Test {
 protected:
  void Choose(const std::string& text) {
    texts_.push_back(text);
    const auto token = static_cast<Token>(texts_.size() - 1);
    teller_.Add({{.of = {.chosen = {token, -1.0}}, .begin = end_, .end = end_ + text.size()}});
    end_ += text.size();
  }
  std::vector<size_t> Offsets(bool is_all = false) {
    std::vector<ToldLogprobs> told;
    teller_.Take(is_all, &told);
    std::vector<size_t> offsets;
    for (const ToldLogprobs& one : told) offsets.push_back(one.offset);
    return offsets;
  }
  LogprobsTeller teller_;
  std::vector<std::string> texts_;
  size_t end_ = 0;
};

TEST_F(TellerTest, AnEntryComesWithTheFirstByteOfItsText) {
  Choose("one");
  EXPECT_THAT(Offsets(), ElementsAre());
  teller_.AddText("on");
  EXPECT_THAT(Offsets(), ElementsAre(0));
  Choose(" two");
  EXPECT_THAT(Offsets(), ElementsAre());
  teller_.AddText("e tw");
  EXPECT_THAT(Offsets(), ElementsAre(3));
}

TEST_F(TellerTest, WhatAStopStringBeginsWithIsNotTold) {
  for (const char* text : {"A", " B", " J", " K"}) Choose(text);
  teller_.AddText("A B");
  EXPECT_THAT(Offsets(), ElementsAre(0, 1));
  EXPECT_THAT(Offsets(/*is_all=*/false), ElementsAre());
  // An answer that no stop string ended reports all entries.
  EXPECT_THAT(Offsets(/*is_all=*/true), ElementsAre(3, 3));
}

TEST_F(TellerTest, OffsetsCountCharacters) {
  for (const char* text : {"ä", "\xF0\x9F", "\x98\x80", "b", "", "c"}) Choose(text);
  teller_.AddText("ä");
  EXPECT_THAT(Offsets(), ElementsAre(0));
  // Tokens that hold halves of a character have the character's offset.
  teller_.AddText("\xF0\x9F\x98\x80");
  EXPECT_THAT(Offsets(), ElementsAre(1, 1));
  teller_.AddText("bc");
  EXPECT_THAT(Offsets(), ElementsAre(2, 3, 3));
}

TEST_F(TellerTest, BytesThatAreNoTextCountAsReadersSeeThem) {
  const std::string text = "\xff\xE0\x80\xED\xA0\x80\xF0\x9Fx\xC3\xA4y";
  Choose(text);
  Choose("z");
  teller_.AddText(text + "z");
  const std::string shown = Json::parse(Dump(Json(text))).get<std::string>();
  const auto size = static_cast<size_t>(std::ranges::count_if(
      shown, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
  EXPECT_THAT(Offsets(), ElementsAre(0, size));
}

TEST_F(TellerTest, TextBeforeTheFirstEntryIsCountedToo) {
  teller_.AddText("täld again");
  end_ = 11;
  Choose(" and");
  teller_.AddText(" and");
  EXPECT_THAT(Offsets(), ElementsAre(10));
}

const TokenText kText = [](Token token) {
  static const std::map<Token, std::string> texts = {
      {0, "a"}, {1, "\xF0\x9F"}, {2, "\xF0\x9F\x98"}, {3, "a"}};
  return texts.at(token);
};

TEST(TextLogprobs, NoNameComesTwiceAndHalfCharactersAreBytes) {
  const std::vector<ToldLogprobs> told = {
      {.of = {.chosen = {1, -1.0}, .top = {{0, -0.5}, {1, -1.0}, {2, -2.0}, {3, -3.0}}},
       .offset = 4}};
  const std::string dumped = Dump(TextLogprobs(told, kText));
  EXPECT_EQ(dumped,
            R"({"tokens":["bytes:\\xf0\\x9f"],"token_logprobs":[-1.0],"top_logprobs":[{"a":-0.5,)"
            R"("bytes:\\xf0\\x9f":-1.0,"bytes:\\xf0\\x9f\\x98":-2.0}],"text_offset":[4]})");
}

TEST(ChatLogprobs, EachTokenHasItsBytes) {
  const std::vector<ToldLogprobs> told = {{.of = {.chosen = {1, -1.0}, .top = {{0, -0.5}}}}};
  const Json content = ChatLogprobs(told, kText)["content"];
  EXPECT_EQ(content[0]["bytes"], Json::parse("[240, 159]"));
  EXPECT_EQ(content[0]["top_logprobs"][0]["token"], "a");
}

}  // namespace
}  // namespace ebb::server


#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "ebb/generate.h"
#include "tests/engine/engine_fixture.h"

namespace ebb {
namespace {

std::vector<Token> Joined(std::vector<Token> tokens, const std::vector<Token>& more) {
  tokens.insert(tokens.end(), more.begin(), more.end());
  return tokens;
}

class PrefixTest : public testing::Test {
 protected:
  std::unique_ptr<Session> Reading(const std::vector<Token>& tokens,
                                   const SessionOptions& options = {}) {
    auto session = Open(*engine_, options);
    ExpectOk(session->Prefill(tokens));
    return session;
  }
  std::unique_ptr<Engine> engine_ = MakeEngine();
};

TEST_F(PrefixTest, KeepsWhatBothBeginWithAndLeavesATokenToRead) {
  EBB_CPU_ONLY("it needs steps of several tokens with the bits of steps of one");
  const std::vector<Token> read = SomeTokens(100, 1);
  const std::vector<Token> other = SomeTokens(40, 2);
  ASSERT_NE(read[60], other[0]);
  const std::vector<Token> first(read.begin(), read.begin() + 60);
  struct Case {
    std::vector<Token> prompt;
    size_t common;
  };
  for (const Case& c : {Case{Joined(read, other), 100},
                        {Joined(first, other), 60},
                        {read, 99},
                        {first, 59},
                        {{read[0]}, 0},
                        {Joined({other[0]}, read), read[0] == other[0] ? 1U : 0U}}) {
    auto session = Reading(read);
    EXPECT_EQ(CommonPrefix(*session, c.prompt), c.common);
    const auto unread = KeepPrefix(c.prompt, session.get());
    ASSERT_TRUE(unread.ok()) << unread.status().ToString();
    ASSERT_EQ(unread->size(), c.prompt.size() - c.common);
    EXPECT_EQ(unread->data(), c.prompt.data() + c.common);
    EXPECT_EQ(session->next_position(), static_cast<Position>(c.common));
    ExpectOk(session->Prefill(*unread));
    // A few tokens are read by other kernels than many.
    EXPECT_LT(LargestDifference(Logits(*session), Logits(*Reading(c.prompt))), 1e-3);
  }
}

TEST_F(PrefixTest, APromptThatWasBeingReadIsGivenUp) {
  EBB_CPU_ONLY("it needs steps of several tokens with the bits of steps of one");
  const std::vector<Token> read = SomeTokens(50, 1);
  const std::vector<Token> prompt = Joined(read, SomeTokens(30, 2));
  auto session = Reading(read);
  ExpectOk(session->BeginPrompt(SomeTokens(20, 3)));
  const auto unread = KeepPrefix(prompt, session.get());
  ASSERT_TRUE(unread.ok()) << unread.status().ToString();
  EXPECT_EQ(session->prompt_left(), 0U);
  ExpectOk(session->Prefill(*unread));
  EXPECT_EQ(Logits(*session), Logits(*Reading(prompt)));
}

TEST_F(PrefixTest, AnEmptyPromptIsRefusedAndChangesNothing) {
  auto session = Reading(SomeTokens(20, 1));
  EXPECT_EQ(CommonPrefix(*session, {}), 0U);
  const auto unread = KeepPrefix({}, session.get());
  ASSERT_FALSE(unread.ok());
  EXPECT_EQ(unread.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(unread.status().Text(), "prompt: expected at least one token, found none");
  EXPECT_EQ(session->next_position(), 20);
}

TEST_F(PrefixTest, TheSessionWithTheLongestPrefixIsFound) {
  const std::vector<Token> text = SomeTokens(60, 1);
  const auto part = [&](size_t size) { return std::vector(text.begin(), text.begin() + size); };
  const auto empty = Open(*engine_);
  const auto twenty = Reading(part(20));
  const auto forty_and_more = Reading(Joined(part(40), SomeTokens(30, 2)));
  const auto forty = Reading(part(40));
  const std::vector<Token> alien = {(text[0] + 1) % SmallModel()->shape().vocab_size};
  const auto other = Reading(alien);
  const std::vector<const Session*> all = {empty.get(), twenty.get(), forty_and_more.get(),
                                           forty.get(), other.get()};
  EXPECT_EQ(LongestPrefix(all, text), 3U);
  EXPECT_EQ(LongestPrefix(std::span(all).first(3), text), 2U);
  EXPECT_EQ(LongestPrefix(std::span(all).first(2), text), 1U);
  EXPECT_EQ(LongestPrefix(std::span(all).first(1), text), std::nullopt);
  EXPECT_EQ(LongestPrefix({}, text), std::nullopt);
  EXPECT_EQ(LongestPrefix(all, {}), std::nullopt);
}

}  // namespace
}  // namespace ebb

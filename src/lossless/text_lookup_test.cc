#include "src/lossless/text_lookup.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <span>

namespace ebb {
namespace {

void Append(std::span<const Token> text, TextLookup* lookup) {
  for (const Token token : text) lookup->Append(token);
}

std::vector<Token> Guesses(const TextLookup& lookup, size_t count) {
  std::vector<Token> guesses;
  for (size_t i = 0; i < count; ++i) guesses.push_back(lookup.Next(i));
  return guesses;
}

std::vector<Token> RandomText(size_t size, uint32_t seed, int num_tokens = 1000) {
  std::mt19937 random(seed);
  std::vector<Token> text(size);
  for (Token& token : text) token = static_cast<Token>(random() % num_tokens);
  return text;
}

double OneEach(int num_tokens, double) { return num_tokens; }

TEST(TextLookupTest, FindsWhatFollowed) {
  TextLookup lookup;
  Append(std::vector<Token>{1, 2, 3, 4, 5, 6, 7, 9, 9, 2, 3}, &lookup);
  EXPECT_EQ(lookup.match(), 0U);  // two tokens are too few
  lookup.Append(4);
  EXPECT_EQ(lookup.match(), 3U);
  EXPECT_EQ(Guesses(lookup, 4), (std::vector<Token>{5, 6, 7, 9}));
  lookup.Append(5);
  EXPECT_EQ(lookup.match(), 4U);
  lookup.Append(8);
  EXPECT_EQ(lookup.match(), 0U);
}

TEST(TextLookupTest, TakesTheLastPlaceAndTheWholeMatch) {
  TextLookup lookup;
  Append(std::vector<Token>{1, 2, 3, 10, 7, 1, 2, 3, 11, 7, 1, 2, 3}, &lookup);
  EXPECT_EQ(lookup.Next(0), 11);
  EXPECT_EQ(lookup.match(), 4U);  // with the 7
}

// If the last few tokens are themselves the earlier occurrence, the guess must repeat them for
// ever.
TEST(TextLookupTest, GoesOnBeyondTheText) {
  TextLookup lookup;
  Append(std::vector<Token>{5, 1, 2, 1, 2, 1}, &lookup);
  EXPECT_EQ(Guesses(lookup, 6), (std::vector<Token>{2, 1, 2, 1, 2, 1}));
  TextLookup same;
  Append(std::vector<Token>{4, 4, 4, 4}, &same);
  EXPECT_EQ(Guesses(same, 3), (std::vector<Token>{4, 4, 4}));
}

TEST(TextLookupTest, GuessesAreThoseOfASearchFromTheStart) {
  const std::vector<Token> text = RandomText(3000, 1, 6);
  TextLookup lookup;
  size_t followed = 0;
  for (size_t end = 0; end < text.size(); ++end) {
    if (lookup.match() > 0) {
      // The last match() tokens must occur earlier, with the guess behind them.
      const std::span<const Token> all = std::span(text).first(end);
      const std::span<const Token> last = all.last(lookup.match());
      bool stands_there = false;
      for (size_t at = 0; at + last.size() < end && !stands_there; ++at) {
        stands_there = std::ranges::equal(all.subspan(at, last.size()), last) &&
                       all[at + last.size()] == lookup.Next(0);
      }
      ASSERT_TRUE(stands_there) << end;
      ++followed;
    } else if (end >= 3) {
      const std::span<const Token> last = std::span(text).first(end).last(3);
      for (size_t at = 0; at + 3 < end; ++at) {
        ASSERT_FALSE(std::ranges::equal(std::span(text).subspan(at, 3), last)) << end;
      }
    }
    lookup.Append(text[end]);
  }
  EXPECT_GT(followed, text.size() / 2);
}

TEST(TextLookupTest, ARollBackIsForgotten) {
  const std::vector<Token> text = RandomText(400, 2, 8);
  for (const size_t size : {size_t{0}, size_t{2}, size_t{57}, size_t{399}, size_t{400}}) {
    TextLookup rolled_back, fresh;
    Append(text, &rolled_back);
    rolled_back.TruncateTo(size);
    Append(std::span(text).first(size), &fresh);
    ASSERT_EQ(rolled_back.size(), size);
    for (const Token token : RandomText(200, 3, 8)) {
      ASSERT_EQ(rolled_back.match(), fresh.match());
      const size_t guesses = fresh.match() > 0 ? 20 : 0;
      ASSERT_EQ(Guesses(rolled_back, guesses), Guesses(fresh, guesses));
      rolled_back.Append(token);
      fresh.Append(token);
    }
  }
}

TEST(TextLookupTest, LearnsHowOftenGuessesAreRight) {
  TextLookup repeats, deceives;
  const std::vector<Token> phrase = RandomText(50, 4);
  for (int i = 0; i < 8; ++i) Append(phrase, &repeats);
  EXPECT_GT(repeats.ProbabilityOfNext(0), 0.98);
  // Append the same three words many times, each time with another word behind them.
  for (Token i = 0; i < 200; ++i) Append(std::vector<Token>{1, 2, 3, 1000 + i}, &deceives);
  Append(std::vector<Token>{1, 2, 3}, &deceives);
  ASSERT_EQ(deceives.match(), 3U);
  EXPECT_LT(deceives.ProbabilityOfNext(0), 0.05);
  EXPECT_EQ(deceives.NumWorthIt(64, 0.9, OneEach), 0U);
}

TEST(TextLookupTest, TakesAsManyAsBringTheMostTokensASecond) {
  TextLookup lookup;
  const std::vector<Token> phrase = RandomText(50, 5);
  for (int i = 0; i < 8; ++i) Append(phrase, &lookup);
  const auto fixed = [](int, double) { return 1.0; };
  EXPECT_EQ(lookup.NumWorthIt(20, 2, fixed), 20U);
  // If each token costs as much as the first, no number of guesses is better than a step of one
  // token.
  EXPECT_EQ(lookup.NumWorthIt(20, 1, OneEach), 0U);
  // If steps of more than 8 tokens take far longer, 7 guesses are best.
  const auto stairs = [](int num_tokens, double) { return num_tokens <= 8 ? 1.0 : 10.0; };
  EXPECT_EQ(lookup.NumWorthIt(20, 1, stairs), 7U);
  EXPECT_EQ(lookup.NumWorthIt(20, 9, stairs), 0U);
  EXPECT_EQ(TextLookup().NumWorthIt(20, 0, fixed), 0U);
  // A cost that only depends on accepted tokens makes no run shorter.
  const auto taken = [](int, double num_taken) { return 1 + num_taken; };
  EXPECT_EQ(lookup.NumWorthIt(20, 0.5, taken), 20U);
}

}  // namespace
}  // namespace ebb

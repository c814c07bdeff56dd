// Generates texts of sessions that guess, for comparison with texts of plain decoding.
#ifndef EBB_TESTS_ENGINE_GUESSED_TEXT_H_
#define EBB_TESTS_ENGINE_GUESSED_TEXT_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "ebb/generate.h"
#include "ebb/sampler.h"
#include "tests/support/expect_ok.h"

namespace ebb {

struct GuessedText {
  std::vector<Token> tokens;
  uint64_t hash = 0;
  SpeculationReport report;
};

inline GuessedText GenerateText(const Model& model, Session* session, float temperature,
                                int num_tokens) {
  auto sampler = Sampler::Create(model, {.temperature = temperature, .seed = 5});
  ExpectOk(sampler.status());
  Generation generation(session, sampler->get(),
                        {.max_tokens = num_tokens, .on_end = GenerateOptions::OnEnd::kIgnore});
  while (const std::optional<Token> token = generation.Next()) {
    generation.Appended(session->Decode(*token, generation.Guesses(), generation.most_guesses()));
  }
  const GenerateResult result = generation.End();
  ExpectOk(result.error);
  EXPECT_TRUE(std::ranges::all_of(session->logits(), [](float x) { return std::isfinite(x); }));
  return {.tokens = result.answer.tokens,
          .hash = session->logits_hash(),
          .report = session->speculation_report()};
}

// Compares texts that both sessions, which have the same tokens, generate next.
inline void ExpectSameText(const Model& model, Session* plain, Session* guessing, int num_tokens) {
  const GuessedText expected = GenerateText(model, plain, 0.9F, num_tokens);
  const GuessedText found = GenerateText(model, guessing, 0.9F, num_tokens);
  ASSERT_EQ(found.tokens, expected.tokens);
  ASSERT_EQ(found.hash, expected.hash);
}

inline Token LikeliestOf(std::span<const float> logits) {
  return static_cast<Token>(std::ranges::max_element(logits) - logits.begin());
}

// The squared error of logits in relation to their square, without those that a head cannot guess.
inline double NormalizedError(std::span<const float> expected, std::span<const float> found) {
  double error = 0, power = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    if (std::isinf(expected[i]) && expected[i] == found[i]) continue;
    error += std::pow(double(expected[i]) - found[i], 2);
    power += std::pow(double(expected[i]), 2);
  }
  return error / power;
}

// Compares what a session, which guesses `num_guesses` tokens a step by a head, shows the head, and
// where: after tokens of `answer` behind `text`, and after guesses that are wrong, the head's
// logits are those that libllama (`reference`) computes anew, also in a fork.
template <typename Reference>
void ExpectGuessesOf(Reference& reference, std::unique_ptr<Session> session,
                     std::vector<Token> text, std::span<const Token> answer, int num_guesses) {
  ExpectOk(session->Prefill(text));
  int num_compared = 0;
  for (size_t i = 0; i < answer.size(); ++i) {
    if (i == answer.size() / 2) {
      auto fork = session->Fork();
      ExpectOk(fork.status());
      session = *std::move(fork);
    }
    text.push_back(answer[i]);
    std::vector<std::vector<float>> found;
    ExpectOk(session->Decode(answer[i], [&](std::span<const float> logits) {
      found.emplace_back(logits.begin(), logits.end());
      return std::optional<Guessed>(LikeliestOf(logits));
    }));
    if (i % 5 != 3) continue;
    const auto expected = reference.Guess(text, num_guesses);
    ExpectOk(expected.status());
    for (size_t g = 0; g < found.size(); ++g) {
      EXPECT_LT(NormalizedError((*expected)[g], found[g]), 1e-3) << "guess " << g << " at " << i;
      ++num_compared;
      if (LikeliestOf((*expected)[g]) != LikeliestOf(found[g])) break;  // nearly equal logits
    }
    // Rows of other tokens would be seen.
    for (const int shift : {0, 2}) {
      const auto wrong = reference.Guess(text, 0, shift);
      ExpectOk(wrong.status());
      if (found.empty()) continue;
      EXPECT_GT(NormalizedError(wrong->front(), found.front()), 1e-2) << shift;
    }
  }
  EXPECT_GT(num_compared, 6);
}

}  // namespace ebb

#endif  // EBB_TESTS_ENGINE_GUESSED_TEXT_H_

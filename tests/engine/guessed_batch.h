// Compares texts of sessions that decode together, and guess by a draft model or a head, with texts
// of plain decoding alone.
#ifndef EBB_TESTS_ENGINE_GUESSED_BATCH_H_
#define EBB_TESTS_ENGINE_GUESSED_BATCH_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "tests/engine/engine_fixture.h"
#include "tests/engine/speculation_matrix.h"

namespace ebb {

// Decodes six texts together, greedy and sampled ones. The second is parked now and then if the
// engine has a T1, the third is a fork, and the sixth is cancelled. Returns the counts of all
// guesses.
inline SpeculationReport ExpectBatchOfPlainTexts(Engine& plain_engine, Engine& engine,
                                                 const SessionOptions& guessing,
                                                 int num_tokens = 70) {
  constexpr uint64_t kTexts = 6;
  const Model& model = engine.model();
  SessionOptions plain = guessing;
  plain.speculation = Speculation::kOff;
  const auto prompt_of = [&](uint64_t i) {
    // The fork has the prompt of the text before it.
    const uint64_t number = i == 2 ? 1 : i;
    return TextTokens(model, 40 + 9 * number, number);
  };
  const auto begin = [&](uint64_t i, std::unique_ptr<Session> session) {
    return Talk(model, std::move(session), i % 2 == 0 ? 0.0F : 0.9F, i, num_tokens);
  };
  std::vector<Text> expected;
  for (uint64_t i = 0; i < kTexts; ++i) {
    auto session = Open(plain_engine, plain);
    ExpectOk(session->Prefill(prompt_of(i)));
    Talk talk = begin(i, std::move(session));
    talk.Decode(num_tokens);
    expected.push_back(TextOf(&talk));
  }
  std::vector<std::unique_ptr<Talk>> talks;
  for (uint64_t i = 0; i < kTexts; ++i) {
    std::unique_ptr<Session> session;
    if (i == 2) {
      auto fork = talks[1]->session->Fork();
      ExpectOk(fork.status());
      session = *std::move(fork);
    } else {
      session = Open(engine, guessing);
      ExpectOk(session->Prefill(prompt_of(i)));
    }
    EXPECT_TRUE(session->TakesGuesses());
    talks.push_back(std::make_unique<Talk>(begin(i, std::move(session))));
  }
  const bool has_t1 = engine.options().tiers.has_value() &&
                      engine.options().tiers->t1.value_or(T1Place::kFile) != T1Place::kNone;
  std::vector<bool> ended(kTexts);
  size_t num_guesses = 0;
  for (int round = 0; !std::ranges::all_of(ended, [](bool end) { return end; }); ++round) {
    if (round == 25) {
      talks[5].reset();
      ended[5] = true;
    }
    const bool is_parked = has_t1 && round % 12 >= 8;
    if (is_parked) ExpectOk(talks[1]->session->Park());
    std::vector<Talk*> stepped;
    std::vector<SessionStep> parts;
    for (uint64_t i = 0; i < kTexts; ++i) {
      if (ended[i] || (i == 1 && is_parked)) continue;
      Talk& talk = *talks[i];
      const std::optional<Token> token = talk.generation->Next();
      ended[i] = !token.has_value();
      if (ended[i]) continue;
      stepped.push_back(&talk);
      parts.push_back({.session = talk.session.get(),
                       .token = token,
                       .most_guesses = talk.generation->most_guesses(),
                       .guess = talk.generation->Guesses()});
    }
    if (parts.empty()) continue;
    ExpectOk(engine.Step(parts));
    for (size_t i = 0; i < parts.size(); ++i) {
      num_guesses += parts[i].num_guesses;
      stepped[i]->generation->Appended({.taken = true, .status = parts[i].status});
    }
  }
  EXPECT_GT(num_guesses, 0u);
  SpeculationReport sum;
  for (uint64_t i = 0; i + 1 < kTexts; ++i) {
    EXPECT_EQ(TextOf(talks[i].get()), expected[i]) << i;
    const SpeculationReport report = talks[i]->session->speculation_report();
    EXPECT_EQ(report.accepted, report.accepted_by_source);
    sum.drafted_by_source += report.drafted_by_source;
    sum.accepted_by_source += report.accepted_by_source;
  }
  return sum;
}

}  // namespace ebb

#endif  // EBB_TESTS_ENGINE_GUESSED_BATCH_H_

#include "src/lossless/draft_length.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace ebb {
namespace {

// Machine simulates a machine whose steps take these seconds and whose guesses are right with a
// given probability.
struct Machine {
  double draft = 0.006;
  double verify = 0.03;        // of the first token
  double verify_more = 0.003;  // of each other one
  double right = 0.95;
  double plain = 0.03;
  double logits = 0;  // of a token whose guess was right, beside the verifying step
  double risky = 0;   // share of guesses of a small margin, half of which are right
};

struct Outcome {
  double seconds = 0;
  int tokens = 0;
  int last_length = 0;
  [[nodiscard]] double Rate() const { return tokens / seconds; }
};

Outcome Generate(const Machine& machine, DraftLength* length, int num_tokens) {
  std::mt19937 random(3);
  const auto with = [&](double probability) {
    return std::bernoulli_distribution(probability)(random);
  };
  Outcome outcome;
  while (outcome.tokens < num_tokens) {
    const int most = length->Begin(64);
    outcome.last_length = 1;
    if (most == 1) {
      length->PlainStep(machine.plain);
      outcome.seconds += machine.plain;
      ++outcome.tokens;
      continue;
    }
    int k = 1, num_right = 0;
    for (bool all_right = true; k < most; ++k) {
      const bool risky = with(machine.risky);
      const double margin = machine.risky == 0 ? -1 : risky ? 0.2 : 5;
      if (!length->Takes(margin)) break;
      all_right = all_right && with(risky ? 0.5 : machine.right);
      if (all_right) ++num_right;
    }
    outcome.last_length = k;
    const double draft = k * machine.draft;
    const double verify = machine.verify + (k - 1) * machine.verify_more;
    length->DraftedStep(k, draft, verify);
    const double logits = (1 + num_right) * machine.logits;
    if (machine.logits > 0) length->LogitsStep(1 + num_right, logits);
    outcome.seconds += draft + verify + logits;
    length->Compared(num_right, num_right < k - 1);
    outcome.tokens += 1 + num_right;
  }
  return outcome;
}

double RateAtLength(Machine machine, int k) {
  DraftLength length(k, k);
  return Generate(machine, &length, 20000).Rate();
}

// Returns the best rate of fixed lengths, which do not look at margins.
double BestRate(const Machine& machine) {
  double best = 0;
  for (const int k : {2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64}) {
    best = std::max(best, RateAtLength(machine, k));
  }
  return best;
}

TEST(DraftLengthTest, ComesNearTheBestLength) {
  for (const double right : {0.7, 0.9, 0.98, 0.999}) {
    for (const double verify_more : {0.0005, 0.003, 0.009}) {
      Machine machine;
      machine.right = right;
      machine.verify_more = verify_more;
      DraftLength length(0, 64);
      (void)Generate(machine, &length, 500);
      const double rate = Generate(machine, &length, 20000).Rate();
      EXPECT_GT(rate, 0.93 * std::max(BestRate(machine), 1 / machine.plain))
          << right << ", " << verify_more;
    }
  }
}

TEST(DraftLengthTest, StopsBeforeGuessesThatAreOftenWrong) {
  Machine machine;
  machine.right = 0.998;
  machine.risky = 0.08;
  DraftLength length(0, 64);
  (void)Generate(machine, &length, 1000);
  EXPECT_GT(Generate(machine, &length, 20000).Rate(), 1.1 * BestRate(machine));
}

TEST(DraftLengthTest, WhereDraftingDoesNotPayItIsRarelyTried) {
  Machine machine;
  machine.plain = 0.007;  // reading all rows costs nothing
  for (const double right : {0.1, 0.5, 0.9}) {
    machine.right = right;
    DraftLength length(0, 64);
    EXPECT_GT(Generate(machine, &length, 2000).Rate(), 0.95 / machine.plain) << right;
  }
}

// Between trials, whoever makes the drafts may rest.
TEST(DraftLengthTest, TellsHowLongDraftsWait) {
  Machine machine;
  machine.plain = 0.007;
  machine.right = 0.1;
  DraftLength length(0, 64);
  EXPECT_EQ(length.PlainStepsToDraft(), 0) << "nothing is measured";
  (void)Generate(machine, &length, 2000);
  while (length.Begin(64) == 1) {
    const int wait = length.PlainStepsToDraft();
    length.PlainStep(machine.plain);
    EXPECT_EQ(length.PlainStepsToDraft(), std::max(wait - 1, 0));
  }
  length.DraftedStep(1, machine.draft, machine.verify);
  length.Compared(0, /*next_was_wrong=*/false);
  EXPECT_GT(length.PlainStepsToDraft(), 32) << "the trial did not pay";
  EXPECT_EQ(DraftLength(2, 4).PlainStepsToDraft(), 0) << "every step has a draft";
}

// With a minimum of one a step without a guess is never measured either.
TEST(DraftLengthTest, FromAMinimumOfOneEveryStepHasAGuess) {
  Machine machine;
  machine.plain = 0.007;
  machine.right = 0.1;
  DraftLength length(1, 64);
  for (int i = 0; i < 1000; ++i) {
    EXPECT_GE(length.Begin(2), 2) << i;
    EXPECT_GE(Generate(machine, &length, 2).last_length, 2) << i;
  }
  EXPECT_EQ(length.Begin(1), 1);
}

TEST(DraftLengthTest, LogitsThatComeLaterCountToo) {
  Machine machine;
  machine.plain = 0.007;
  machine.draft = machine.verify = machine.verify_more = 0.001;
  machine.logits = 0.006;
  DraftLength length(0, 64);
  (void)Generate(machine, &length, 500);
  EXPECT_GT(Generate(machine, &length, 2000).Rate(), 0.95 / machine.plain);
  EXPECT_NEAR(length.VerifySeconds(16, 10), 0.001 * 16 + 0.006 * 10, 0.002);
}

TEST(DraftLengthTest, FollowsAChange) {
  Machine machine;
  DraftLength length(0, 64);
  machine.right = 0.3;
  const int before = Generate(machine, &length, 1000).last_length;
  machine.right = 0.999;
  EXPECT_GT(Generate(machine, &length, 3000).last_length, 2 * before);
  machine.plain = 0.003;
  machine.right = 0.1;
  (void)Generate(machine, &length, 1000);
  EXPECT_GT(Generate(machine, &length, 2000).Rate(), 0.9 / machine.plain);
}

// Guesses that were always wrong must still be tried again later.
TEST(DraftLengthTest, ComesBackToDrafts) {
  Machine machine;
  machine.right = 0.05;
  DraftLength length(0, 64);
  (void)Generate(machine, &length, 1000);
  machine.right = 0.99;
  (void)Generate(machine, &length, 3000);
  EXPECT_GT(Generate(machine, &length, 3000).Rate(), 1.5 / machine.plain);
}

TEST(DraftLengthTest, AFirstStepThatIsSlowDeceivesNobody) {
  Machine machine;
  machine.right = 0.3;
  machine.plain = 0.007;
  DraftLength length(0, 64);
  ASSERT_EQ(length.Begin(64), 1);
  length.PlainStep(1);
  EXPECT_GT(Generate(machine, &length, 2000).Rate(), 0.9 / machine.plain);
}

TEST(DraftLengthTest, StaysWithinItsBounds) {
  DraftLength fixed(5, 5);
  EXPECT_EQ(fixed.Begin(64), 5);
  EXPECT_EQ(fixed.Begin(3), 3);
  EXPECT_EQ(fixed.Begin(1), 1);
  DraftLength bounded(3, 9);
  Machine machine;
  machine.right = 0.01;
  EXPECT_GE(Generate(machine, &bounded, 300).last_length, 3);
  machine.right = 1;
  EXPECT_LE(Generate(machine, &bounded, 3000).last_length, 9);
  DraftLength single(1, 1);
  EXPECT_EQ(single.Begin(64), 1);
}

}  // namespace
}  // namespace ebb

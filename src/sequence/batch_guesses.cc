#include "src/sequence/batch_guesses.h"

#include <algorithm>
#include <bit>

namespace ebb {
namespace {

// kExpectedCost is what a further token is expected to cost before any was measured.
constexpr double kExpectedCost = 0.4;
// kExpectedDraft is what a guess of a draft is expected to cost, in shares of a token of the plain
// step, before any was measured.
constexpr double kExpectedDraft = 0.2;
// kStepsToRetry is after how many plain steps guesses that were slow are tried again.
constexpr int kStepsToRetry = 256;
// kExpectedRight is the share of right guesses of a draft before any was compared, which counts as
// kExpectedWeight guesses.
constexpr double kExpectedRight = 0.8, kExpectedWeight = 3;
// kLeastGain is by how much guesses must be faster than a plain step to be tried.
constexpr double kLeastGain = 1.1;
// kLeastShare is the share of its plain speed that each sequence keeps.
constexpr double kLeastShare = 0.97;

}  // namespace

DraftRecord::DraftRecord() : right{.memory = 48} { right.Add(kExpectedRight, kExpectedWeight); }

BatchTimes::BatchTimes() : first_seconds_{.memory = 16}, more_seconds_{.memory = 16} {
  for (Plain& plain : plain_) plain.seconds.memory = 16;
  for (Cost& cost : costs_) cost.of_token.memory = 8;
  Age();
}

void BatchTimes::Age() {
  for (Cost& cost : costs_) {
    cost.of_token.WeighAtMost(0.5);
    cost.of_token.Add(kExpectedCost, 0.5);
  }
  for (RunningMean* const seconds : {&first_seconds_, &more_seconds_}) seconds->sum /= 2;
}

size_t BatchTimes::ClassOf(size_t num_tokens) {
  return std::min<size_t>(std::bit_width(num_tokens - 1), kClasses - 1);
}

void BatchTimes::AddPlain(size_t num_sequences, double seconds) {
  if (num_sequences > kMostSequences) return;
  Plain& plain = plain_[num_sequences];
  if (plain.num_steps++ > 0) plain.seconds.Add(seconds);
  if (++plain_steps_ % kStepsToRetry == 0) Age();
}

void BatchTimes::AddDraft(double first_seconds, size_t num_more, double more_seconds) {
  if (num_drafts_++ == 0) return;
  first_seconds_.Add(first_seconds);
  if (num_more == 0) return;
  more_seconds_.Add(more_seconds / static_cast<double>(num_more), static_cast<double>(num_more));
}

bool BatchTimes::KnowsPlain(size_t num_sequences) const {
  return num_sequences <= kMostSequences && !plain_[num_sequences].seconds.empty();
}

void BatchTimes::AddWithGuesses(size_t num_sequences, size_t num_tokens, double seconds) {
  plain_steps_ = 0;
  if (!KnowsPlain(num_sequences) || num_tokens <= num_sequences) return;
  Cost& cost = costs_[ClassOf(num_tokens)];
  if (cost.num_steps++ == 0) return;
  const double more = static_cast<double>(num_tokens - num_sequences);
  const double longer = seconds / plain_[num_sequences].seconds.value() - 1;
  cost.of_token.Add(std::max(0.0, longer * static_cast<double>(num_sequences) / more));
}

double BatchTimes::Ratio(size_t num_sequences, size_t num_tokens) const {
  const double more = static_cast<double>(num_tokens - num_sequences);
  return 1 +
         costs_[ClassOf(num_tokens)].of_token.value() * more / static_cast<double>(num_sequences);
}

double BatchTimes::DraftRatio(size_t num_sequences, size_t num_guesses) const {
  const double plain = plain_[num_sequences].seconds.value();
  const auto seconds = [&](const RunningMean& mean) {
    return mean.empty() ? kExpectedDraft * plain / static_cast<double>(num_sequences)
                        : mean.value();
  };
  const double more = static_cast<double>(num_guesses - 1) * seconds(more_seconds_);
  return (seconds(first_seconds_) + more) / plain;
}

// Adds the most probable guess of any sequence, one after the other, and keeps the number of
// guesses that yields the most tokens a second.
std::vector<size_t> DivideGuesses(
    std::span<const std::vector<double>> chances,
    const std::function<double(std::span<const size_t> given)>& ratio) {
  const size_t num_sequences = chances.size();
  std::vector<size_t> given(num_sequences), best(num_sequences);
  std::vector<double> tokens(num_sequences, 1);  // that a sequence gains in the step
  double all_tokens = static_cast<double>(num_sequences);
  double best_gain = kLeastGain;
  while (true) {
    size_t next = num_sequences;
    double chance = 0;
    for (size_t i = 0; i < num_sequences; ++i) {
      if (given[i] == chances[i].size() || chances[i][given[i]] <= chance) continue;
      chance = chances[i][given[i]];
      next = i;
    }
    if (next == num_sequences) return best;
    ++given[next];
    tokens[next] += chance;
    all_tokens += chance;
    const double time = ratio(given);
    const double gain = all_tokens / static_cast<double>(num_sequences) / time;
    if (gain <= best_gain || std::ranges::min(tokens) / time < kLeastShare) continue;
    best_gain = gain;
    best = given;
  }
}

}  // namespace ebb

#include "src/engine/draft_length.h"

#include <algorithm>
#include <cmath>

namespace ebb {
namespace {

// Few, since a graph is kept for each; about a third apart, which costs a few percent at most.
constexpr int kLengths[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64};

// What is tried first, and again where drafting did not pay.
constexpr int kTrial = 4;
// A trial costs a few steps: where it does not pay, this often bounds the loss to a few percent.
constexpr int kFirstWait = 32;
constexpr int kLongestWait = 512;

}  // namespace

void DraftLength::Mean::Add(double value, double times) {
  const double kept = std::exp(-times / memory);
  sum = sum * kept + value * times;
  weight = weight * kept + times;
}

DraftLength::DraftLength(int min, int max)
    : min_(min),
      max_(max),
      right_{.memory = 64},
      plain_seconds_{.memory = 16},
      draft_seconds_{.memory = 64},
      tokens_{.memory = 16},
      seconds_{.memory = 16},
      squares_{.memory = 16},
      products_{.memory = 16},
      wait_(kFirstWait) {}

// The line through the last steps; where they were all of one length, proportional to it by half.
double DraftLength::VerifySeconds(int num_tokens) const {
  const double k = tokens_.value(), t = seconds_.value();
  const double variance = squares_.value() - k * k;
  double slope = t / k / 2;
  if (variance > 0.05 * k * k) {
    slope = std::clamp((products_.value() - k * t) / variance, 0.0, t / k);
  }
  return std::max(t + slope * (num_tokens - k), t * 0.05);
}

double DraftLength::TokensPerSecond(int num_tokens) const {
  if (num_tokens == 1) return plain_seconds_.empty() ? 0 : 1 / plain_seconds_.value();
  const double right = std::clamp(right_.empty() ? 0.9 : right_.value(), 0.01, 0.999);
  const double tokens = (1 - std::pow(right, num_tokens)) / (1 - right);
  return tokens / (num_tokens * draft_seconds_.value() + VerifySeconds(num_tokens));
}

int DraftLength::Next(int limit) {
  const int most = std::min(max_, limit);
  const int least = std::min(min_, most);
  if (least == most) return most;
  const int trial = std::clamp(kTrial, least, most);
  // Both ways are measured before they are compared.
  if (least == 1 && plain_seconds_.empty()) return 1;
  if (draft_seconds_.empty()) return trial;
  int best = least;
  for (const int length : kLengths) {
    if (length < least || length > most) continue;
    if (TokensPerSecond(length) > TokensPerSecond(best)) best = length;
  }
  if (best > 1 || plain_steps_ < wait_) return best;
  wait_ = std::min(2 * wait_, kLongestWait);
  return trial;
}

void DraftLength::PlainStep(double seconds) {
  plain_seconds_.Add(seconds);
  ++plain_steps_;
}

void DraftLength::DraftedStep(int num_tokens, double draft_seconds, double verify_seconds) {
  if (plain_steps_ < kFirstWait) wait_ = kFirstWait;
  plain_steps_ = 0;
  draft_seconds_.Add(draft_seconds / num_tokens, num_tokens);
  tokens_.Add(num_tokens);
  seconds_.Add(verify_seconds);
  squares_.Add(double(num_tokens) * num_tokens);
  products_.Add(num_tokens * verify_seconds);
}

void DraftLength::Compared(int num_guesses, bool last_was_right) {
  if (num_guesses == 0) return;
  const double right = last_was_right ? num_guesses : num_guesses - 1;
  right_.Add(right / num_guesses, num_guesses);
}

}  // namespace ebb

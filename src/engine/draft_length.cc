#include "src/engine/draft_length.h"

#include <algorithm>
#include <cmath>

namespace ebb {
namespace {

// Few, since a graph is kept for each; about a third apart, which costs a few percent at most.
constexpr int kLengths[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64};

// What is tried first, and again where drafting did not pay.
constexpr int kTrial = 4;
// Tried second, and twice the best length every so often: two lengths tell what one more token
// costs.
constexpr int kSecondTrial = 16;
constexpr int kRunsBetweenTrials = 32;
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
      right_{.memory = 160},
      plain_seconds_{.memory = 16},
      draft_seconds_{.memory = 64},
      tokens_{.memory = 16},
      seconds_{.memory = 16},
      squares_{.memory = 16},
      products_{.memory = 16},
      wait_(kFirstWait) {}

double DraftLength::VerifySeconds(int num_tokens) const {
  const double seconds = seconds_.value();
  return std::max(seconds + slope_ * (num_tokens - tokens_.value()), seconds * 0.05);
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
  if (runs_ == 1) return std::clamp(kSecondTrial, least, most);
  int best = least;
  for (const int length : kLengths) {
    if (length < least || length > most) continue;
    if (TokensPerSecond(length) > TokensPerSecond(best)) best = length;
  }
  if (best > 1) {
    const bool tries = runs_ % kRunsBetweenTrials == 0;
    return tries ? std::clamp(best < most ? 2 * best : best / 2, least, most) : best;
  }
  if (plain_steps_ < wait_) return best;
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
  ++runs_;
  const double mean = tokens_.value();
  const double variance = squares_.value() - mean * mean;
  // Where all were of nearly one length the slope stays as it was.
  if (variance < 0.02 * mean * mean) return;
  const double most = seconds_.value() / mean;
  slope_ = std::clamp((products_.value() - mean * seconds_.value()) / variance, 0.0, most);
}

void DraftLength::Compared(int num_guesses, bool last_was_right) {
  if (num_guesses == 0) return;
  const double right = last_was_right ? num_guesses : num_guesses - 1;
  right_.Add(right / num_guesses, num_guesses);
}

}  // namespace ebb

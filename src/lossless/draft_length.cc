#include "src/lossless/draft_length.h"

#include <algorithm>
#include <iterator>

namespace ebb {
namespace {

// kTrials are the lengths of the first two runs, since two lengths show what one more token costs.
constexpr int kTrials[] = {4, 8};
// kFirstWait and kLongestWait count the plain steps between trials. A trial costs as much as a few
// plain steps, so that where drafts do not pay the loss is a few percent.
constexpr int kFirstWait = 32;
constexpr int kLongestWait = 512;
// kWeightAfterWait is how many runs the mean over earlier runs counts as after a wait, so that a
// few new runs decide.
constexpr double kWeightAfterWait = 2;

constexpr int kRunsBetweenTooMany = 16;
constexpr int kTokensBetweenPlain = 512;

// Margins are divided into classes; the upper end of each is twice that of the one before, and
// unknown margins are the last class. kExpected holds the initial rate of each class, which weighs
// as much as kExpectedWeight guesses.
constexpr double kSmallestMargin = 0.05;
constexpr double kExpected[] = {0.6, 0.65, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.9};
constexpr double kExpectedWeight = 3;

}  // namespace

DraftLength::DraftLength(int min, int max)
    : drafts_always_(min > 0),
      min_(drafts_always_ ? std::max(min, 2) : 1),
      max_(max),
      plain_seconds_{.memory = 16},
      draft_seconds_{.memory = 64},
      logits_seconds_{.memory = 64},
      run_tokens_{.memory = 48},
      run_seconds_{.memory = 48},
      tokens_{.memory = 16},
      seconds_{.memory = 16},
      squares_{.memory = 16},
      products_{.memory = 16},
      wait_(kFirstWait) {
  static_assert(std::size(kExpected) == kMargins);
  for (int i = 0; i < kMargins; ++i) {
    right_[i].memory = 160;
    right_[i].Add(kExpected[i], kExpectedWeight);
  }
}

int DraftLength::MarginClass(double margin) {
  if (!(margin >= 0)) return kMargins - 1;
  int i = 0;
  for (double end = kSmallestMargin; i < kMargins - 2 && margin >= end; end *= 2) ++i;
  return i;
}

// Returns whether drafts yield more tokens a second than plain steps, which read all rows for each
// token.
bool DraftLength::Pays() const {
  return plain_seconds_.empty() || TokensPerSecond() * plain_seconds_.value() > 1;
}

int DraftLength::Begin(int limit) {
  BeginUntimed();
  one_too_many_ = runs_ % kRunsBetweenTooMany == 0;
  const int most = std::min(max_, limit);
  least_ = std::min(min_, most);
  if (least_ == most) return most;
  // Measure both ways before they are compared.
  if (!drafts_always_ && plain_seconds_.empty()) return 1;
  if (runs_ < static_cast<int>(std::size(kTrials))) {
    least_ = std::clamp(kTrials[runs_], least_, most);
    return least_;
  }
  if (drafts_always_ || run_tokens_.empty()) return most;
  if (Pays()) return tokens_since_plain_ < kTokensBetweenPlain ? most : 1;
  if (plain_steps_ < wait_) return 1;
  wait_ = std::min(2 * wait_, kLongestWait);
  run_tokens_.WeighAtMost(kWeightAfterWait);
  run_seconds_.WeighAtMost(kWeightAfterWait);
  one_too_many_ = true;
  return most;
}

int DraftLength::PlainStepsToDraft() const {
  if (drafts_always_ || !KnowsSteps() || Pays()) return 0;
  return std::max(wait_ - plain_steps_, 0);
}

void DraftLength::BeginUntimed() {
  margins_.clear();
  all_right_ = 1;
}

double DraftLength::AddUntimed(double margin) {
  margins_.push_back(MarginClass(margin));
  return all_right_ *= right_[margins_.back()].value();
}

bool DraftLength::Takes(double margin) {
  const int margin_class = MarginClass(margin);
  all_right_ *= right_[margin_class].value();
  const int num_tokens = static_cast<int>(margins_.size()) + 2;  // with the first and this one
  if (num_tokens > least_ && !run_tokens_.empty()) {
    const double seconds = draft_seconds_.value() + slope_ + all_right_ * LogitsSeconds();
    const bool is_worth_it = all_right_ >= TokensPerSecond() * seconds;
    if (!is_worth_it && !one_too_many_) return false;
    one_too_many_ = is_worth_it && one_too_many_;
  }
  margins_.push_back(margin_class);
  return true;
}

// Leaves out the first plain step, which also allocates buffers.
void DraftLength::PlainStep(double seconds) {
  if (warm_) plain_seconds_.Add(seconds);
  warm_ = true;
  tokens_since_plain_ = 0;
  ++plain_steps_;
}

void DraftLength::DraftedStep(int num_tokens, double draft_seconds, double verify_seconds) {
  if (plain_steps_ < kFirstWait) wait_ = kFirstWait;
  plain_steps_ = 0;
  draft_seconds_.Add(draft_seconds / num_tokens, num_tokens);
  last_seconds_ = draft_seconds + verify_seconds;
  ++runs_;
  LearnSlope(num_tokens, verify_seconds);
}

void DraftLength::LookedUpStep(int num_tokens, double verify_seconds) {
  LearnSlope(num_tokens, verify_seconds);
}

void DraftLength::LogitsStep(int num_tokens, double seconds) {
  logits_seconds_.Add(seconds / num_tokens, num_tokens);
  last_seconds_ += seconds;
}

bool DraftLength::KnowsSteps() const {
  return runs_ >= static_cast<int>(std::size(kTrials)) && !run_tokens_.empty();
}

double DraftLength::Rate() const {
  const double drafted = TokensPerSecond();
  if (drafts_always_ || plain_seconds_.empty()) return drafted;
  return std::max(drafted, 1 / plain_seconds_.value());
}

double DraftLength::VerifySeconds(int num_tokens, double num_taken) const {
  const double slope = std::min(slope_, seconds_.value() / tokens_.value());
  return seconds_.value() + slope * (num_tokens - tokens_.value()) + num_taken * LogitsSeconds();
}

void DraftLength::LearnSlope(int num_tokens, double verify_seconds) {
  tokens_.Add(num_tokens);
  seconds_.Add(verify_seconds);
  squares_.Add(double(num_tokens) * num_tokens);
  products_.Add(num_tokens * verify_seconds);
  const double mean = tokens_.value();
  const double variance = squares_.value() - mean * mean;
  // Keep the slope if all steps had nearly one length, since it would be noise.
  if (variance < 0.02 * mean * mean) return;
  const double most = seconds_.value() / mean;
  slope_ = std::clamp((products_.value() - mean * seconds_.value()) / variance, 0.0, most);
}

void DraftLength::ComparedUntimed(int num_right, bool next_was_wrong) {
  const auto seen = std::min(margins_.size(), size_t(num_right) + (next_was_wrong ? 1 : 0));
  for (size_t i = 0; i < seen; ++i) right_[margins_[i]].Add(i < size_t(num_right) ? 1 : 0);
}

void DraftLength::Compared(int num_right, bool next_was_wrong) {
  ComparedUntimed(num_right, next_was_wrong);
  tokens_since_plain_ += 1 + num_right;
  run_tokens_.Add(1 + num_right);
  run_seconds_.Add(last_seconds_);
}

}  // namespace ebb

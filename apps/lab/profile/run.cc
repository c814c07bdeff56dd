#include "apps/lab/profile/run.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

namespace ebb::cli {
namespace {

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

void RunRecorder::Ask(SessionOptions* options) {
  options->ledger = SessionOptions::Record::kYes;
  options->step_costs = SessionOptions::Record::kYes;
  options->extra_signals.mass = MassNeed::kSummed;
  options->on_signals = [this](int group, std::span<const Position> positions,
                               const GroupSignals& signals, const StepSignals& step) {
    const Clock::time_point start = Clock::now();
    OnSignals(group, positions, signals, step);
    observer_seconds_ += SecondsSince(start);
  };
}

void RunRecorder::OnSignals(int group, std::span<const Position> positions,
                            const GroupSignals& signals, const StepSignals& step) {
  num_groups_ = std::max(num_groups_, group + 1);
  if (step.kind != StepKind::kDecode || positions.empty()) return;
  const size_t num_positions = static_cast<size_t>(step.first_position) + step.num_tokens;
  if (group == 0) {
    mass_.assign(num_positions, 0);
  }
  if (signals.num_mass_heads > 0) {
    // Adds up the heads' masses for each row, because the policy may ask for mass by query head.
    for (size_t i = 0; i < signals.mass.size(); ++i) {
      mass_[positions[i % positions.size()]] += signals.mass[i];
    }
  }
  if (group + 1 == session_->ledger()->num_groups()) EndSignals();
}

// Completes a step when all groups have reported. The mass is divided by its sum over all layers
// and heads, so that the shares of a step's rows add up to 1 ("Not All Thoughts Need HBM", 2.1).
void RunRecorder::EndSignals() {
  const double sum = std::accumulate(mass_.begin(), mass_.end(), 0.0);
  overlap_ = -1;
  if (!(sum > 0) || !std::isfinite(sum)) return;
  recurrence_.Observe(mass_, sum);
  top_half_.Observe(mass_);
  run_.importance.resize(mass_.size());
  for (size_t p = 0; p < mass_.size(); ++p) run_.importance[p] += mass_[p] / sum;
  important_now_.assign(mass_.size(), 0);
  const std::vector<int32_t> most = MostImportant(mass_, kImportantShare);
  size_t common = 0;
  for (const auto row : most) {
    const auto p = static_cast<size_t>(row);
    important_now_[p] = 1;
    common += p < important_.size() && important_[p] != 0;
  }
  if (num_important_ > 0) {
    overlap_ =
        static_cast<double>(common) / static_cast<double>(std::min(most.size(), num_important_));
  }
  important_.swap(important_now_);
  num_important_ = most.size();
}

void RunRecorder::OnToken() {
  // The first token is sampled from the prompt's logits, and ends no decode step.
  if (!run_.steps.empty() || session_->last_step().kind == StepKind::kDecode) {
    EndStep(SecondsSince(begin_));
  }
  observer_seconds_ = 0;
  begin_ = Clock::now();
}

void RunRecorder::Finish() {
  if (session_->last_step().kind == StepKind::kDecode &&
      static_cast<size_t>(run_.result.decode_steps) > run_.steps.size()) {
    EndStep(0);
  }
  run_.cache = session_->accounting();
  run_.tokens.assign(session_->tokens().begin(), session_->tokens().end());
  run_.importance.resize(run_.tokens.size());
  run_.intervals = recurrence_.intervals();
  run_.top_half = top_half_.kept();
  for (int group = 0; group < num_groups_; ++group) {
    const auto alive = static_cast<double>(session_->visible_positions(group).size());
    run_.retained.push_back(alive / std::max(1.0, static_cast<double>(run_.tokens.size())));
  }
}

void RunRecorder::EndStep(double seconds_since_begin) {
  const StepReport& report = session_->last_step();
  const StepCosts costs = report.costs.value_or(StepCosts());
  ProfiledStep step = {.moves = report.moves, .overlap = overlap_};
  StepTimes& t = step.times;
  t.embedding = costs.embedding_seconds;
  t.matmul = costs.matmul_seconds;
  t.attention = costs.attention_seconds;
  t.io_wait = report.io_wait_seconds;
  t.other =
      std::max(0.0, report.compute_seconds - t.embedding - t.matmul - t.attention - t.io_wait);
  t.attention = std::max(0.0, t.attention - report.select_seconds);
  t.moves = report.moves.seconds;
  t.policy =
      std::max(0.0, report.policy_seconds + report.select_seconds - t.moves - observer_seconds_);
  t.sampling = std::max(0.0, seconds_since_begin - report.compute_seconds - report.policy_seconds);
  for (const Tier tier : {Tier::kT0, Tier::kT1, Tier::kT2, Tier::kT3}) {
    step.rows[static_cast<size_t>(tier)] = session_->ledger()->rows(tier);
  }
  run_.steps.push_back(step);
}

}  // namespace ebb::cli

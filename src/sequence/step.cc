#include "src/sequence/step.h"

#include <fmt/format.h>

#include <chrono>
#include <new>

namespace ebb {
namespace {

using Clock = std::chrono::steady_clock;

Status NoMemory() { return ResourceExhausted("no memory for this step"); }

bool TakesStep(const Follower& follower) { return follower.takes == Follower::Takes::kStep; }

}  // namespace

Status OfFollower(std::string_view name, const Status& status) {
  return status.ok() ? status
                     : Status(status.code(), fmt::format("{}: {}", name, status.message()));
}

// A step on its way.
class StepRun {
 public:
  StepRun(EngineCore* core, const StepPlan& plan) : core_(*core), plan_(plan) {}

  StepResult Take();

 private:
  [[nodiscard]] Status Check() const;
  Status Compute();
  // Rows for the new tokens, and what the step's nodes need to know of them.
  Status Append();
  void Begin(const StepEntry& entry);
  void AddTokens(const StepEntry& entry);
  void Follow(const StepEntry& entry, SequenceStep* step);
  // Takes back what Append() did, as far as it came.
  void Undo();
  // A step of the device began then; nothing has moved since it ended.
  void ReportDevice(double begin);
  Status Settle(double compute_seconds);

  EngineCore& core_;
  const StepPlan& plan_;
  StepWork work_;
  StepCosts costs_;
  bool wants_costs_ = false;
  std::vector<double> waited_;  // [entries], for T1 before the step
  StepResult result_;
};

StepResult StepRun::Take() {
  result_.runner_ = core_.runner.get();
  result_.status_ = Check();
  if (!result_.status_.ok()) return std::move(result_);
  const double device_begin = core_.stores.device()->Seconds();
  const auto start = Clock::now();
  try {
    result_.status_ = Compute();
  } catch (const std::bad_alloc&) {
    result_.status_ = NoMemory();
  }
  if (!result_.status_.ok()) {
    Undo();
    return std::move(result_);
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  ReportDevice(device_begin);
  result_.taken_ = true;
  result_.status_ = Settle(seconds);
  return std::move(result_);
}

Status StepRun::Check() const try {
  for (const StepEntry& entry : plan_.entries) {
    EBB_RETURN_IF_ERROR(entry.sequence->CheckStep(entry.tokens));
    for (const Follower& follower : entry.followers) {
      EBB_RETURN_IF_ERROR(follower.sequence->health().CheckUnbroken());
    }
  }
  // In a batch the others go on.
  if (plan_.entries.size() != 1) return OkStatus();
  const StepEntry& entry = plan_.entries.front();
  EBB_RETURN_IF_ERROR(entry.sequence->CheckRefused());
  for (const Follower& follower : entry.followers) {
    if (!TakesStep(follower)) continue;
    EBB_RETURN_IF_ERROR(OfFollower(follower.name, follower.sequence->CheckRefused()));
  }
  return OkStatus();
} catch (const std::bad_alloc&) {
  return NoMemory();
}

Status StepRun::Compute() {
  for (const StepEntry& entry : plan_.entries) {
    waited_.push_back(entry.sequence->cache().stage_wait_seconds());
    wants_costs_ = wants_costs_ || entry.sequence->options().reports_costs;
  }
  EBB_RETURN_IF_ERROR(Append());
  return core_.runner->Run(work_, wants_costs_ ? &costs_ : nullptr);
}

Status StepRun::Append() {
  work_.logits_later = plan_.logits_later;
  work_.tokens_apart = plan_.tokens_apart;
  size_t num_followers = 0;
  for (const StepEntry& entry : plan_.entries) {
    EBB_RETURN_IF_ERROR(entry.sequence->AppendRows(entry.tokens.size()));
    for (const Follower& follower : entry.followers) {
      if (!TakesStep(follower)) continue;
      EBB_RETURN_IF_ERROR(
          OfFollower(follower.name, follower.sequence->AppendRows(entry.tokens.size())));
    }
    num_followers += entry.followers.size();
  }
  for (const StepEntry& entry : plan_.entries) {
    EBB_RETURN_IF_ERROR(entry.sequence->MakePlaces(entry.tokens.size()));
  }
  work_.followers.reserve(num_followers);  // spans of it stay where they are
  result_.first_output_.reserve(plan_.entries.size());
  for (const StepEntry& entry : plan_.entries) {
    Begin(entry);
    AddTokens(entry);
  }
  return OkStatus();
}

void StepRun::Begin(const StepEntry& entry) {
  const int num_tokens = static_cast<int>(entry.tokens.size());
  const Position first = entry.sequence->next();
  // First: Undo() takes back what began for the sequences that stand here.
  work_.sequences.push_back({.first = first,
                             .num_tokens = num_tokens,
                             .chunk_first = first,
                             .chunk_tokens = num_tokens,
                             .first_token = static_cast<int>(work_.tokens.size())});
  SequenceStep& step = work_.sequences.back();
  if (entry.chunk_tokens > 0) {
    step.chunk_first = entry.chunk_first;
    step.chunk_tokens = static_cast<int>(entry.chunk_tokens);
  }
  step.signals = entry.signals != nullptr ? entry.signals : &entry.sequence->signals();
  entry.sequence->BeginStep(entry.kind, num_tokens, step.signals);
  entry.sequence->Describe(entry.kind, &step);
  Follow(entry, &step);
}

void StepRun::Follow(const StepEntry& entry, SequenceStep* step) {
  const size_t begin = work_.followers.size();
  for (const Follower& follower : entry.followers) {
    Sequence& sequence = *follower.sequence;
    if (TakesStep(follower)) {
      sequence.BeginStep(entry.kind, step->num_tokens, &sequence.signals());
    }
    work_.followers.push_back({.cache = &sequence.cache(),
                               .signals = TakesStep(follower) ? &sequence.signals() : nullptr});
  }
  step->followers = std::span(work_.followers).subspan(begin);
}

void StepRun::AddTokens(const StepEntry& entry) {
  result_.first_output_.push_back(work_.output_rows.size());
  const size_t num_tokens = entry.tokens.size();
  for (size_t t = 0; t < num_tokens; ++t) {
    if (entry.logits == StepEntry::Logits::kAll || t + 1 == num_tokens) {
      work_.output_rows.push_back(static_cast<int32_t>(work_.tokens.size()));
    }
    work_.tokens.push_back(entry.tokens[t]);
    const Position position = entry.sequence->next() + static_cast<Position>(t);
    work_.rope_positions.push_back(entry.sequence->rope().Next(position));
  }
}

void StepRun::Undo() {
  for (size_t i = 0; i < plan_.entries.size(); ++i) {
    const StepEntry& entry = plan_.entries[i];
    const bool has_begun = i < work_.sequences.size();
    entry.sequence->UndoStep(has_begun);
    for (const Follower& follower : entry.followers) {
      if (TakesStep(follower)) follower.sequence->UndoStep(has_begun);
    }
  }
}

void StepRun::ReportDevice(double begin) {
  const Device& device = *core_.stores.device();
  if (device.one_memory()) return;
  for (const StepEntry& entry : plan_.entries) {
    if (entry.kind != StepKind::kDecode) return;
  }
  DeviceReport& report = core_.device_report;
  report.t1_mode = core_.runner->t1_mode();
  ++report.decode_steps;
  report.decode_seconds += device.Seconds() - begin;
  report.critical_path_seconds +=
      core_.runner->CriticalPathSeconds(RatesOf(core_.options.device), work_);
}

// What a policy could not move ends its own request; the others go on.
Status StepRun::Settle(double compute_seconds) {
  Status first_error;
  const auto note = [&](const Status& status) {
    if (first_error.ok()) first_error = status;
  };
  for (size_t i = 0; i < plan_.entries.size(); ++i) {
    const StepEntry& entry = plan_.entries[i];
    StepReport report = {.compute_seconds = compute_seconds};
    report.select_seconds = core_.runner->select_seconds();
    report.io_wait_seconds = entry.sequence->cache().stage_wait_seconds() - waited_[i];
    if (entry.sequence->options().reports_costs) report.costs = costs_;
    note(entry.sequence->EndStep(entry.kind, entry.tokens, report));
    for (const Follower& follower : entry.followers) {
      if (!TakesStep(follower)) continue;
      Sequence& sequence = *follower.sequence;
      sequence.signals().TakeMass(*entry.signals, sequence.cache());
      note(OfFollower(follower.name, sequence.EndStep(entry.kind, entry.tokens, report)));
    }
  }
  return first_error;
}

StepResult RunStep(EngineCore* core, const StepPlan& plan) { return StepRun(core, plan).Take(); }

}  // namespace ebb

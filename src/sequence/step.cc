#include "src/sequence/step.h"

#include <fmt/format.h>

#include <new>

#include "src/base/clock.h"
#include "src/sequence/computed_tokens.h"
#include "src/sequence/shown_logits.h"
#include "src/step/cpu/attention_nodes.h"

namespace ebb {
namespace {

bool ReportsCosts(const Sequence& sequence) {
  return sequence.options().step_costs == SessionOptions::Record::kYes;
}

Status NoMemory() { return OutOfMemory("no memory for this step"); }

}  // namespace

Status OfFollower(std::string_view name, const Status& status) {
  return status.ok() ? status : status.WithPrefix(name);
}

// StepRun holds the state of a step while it runs.
class StepRun {
 public:
  StepRun(EngineCore* core, const StepPlan& plan) : core_(*core), plan_(plan) {}

  StepResult Take();

 private:
  Status Check();
  [[nodiscard]] static Status CheckEntry(const SequenceStep& entry);
  Status AppendRows(const SequenceStep& entry);
  // Runs `work` on each entry, up to the first error.
  template <typename Work>
  Status ForEachEntry(const Work& work);
  Status PrepareAndRun();
  // Prepares the step: appends rows for the new tokens, finds RoPE positions for their keys, and
  // describes the step to the nodes of the graph.
  Status Prepare();
  void Begin(const SequenceStep& entry);
  void AddTokens(size_t entry);
  // Undoes the changes that Prepare() has made so far.
  void Undo();
  // Counts a decode step on a device.
  void ReportDevice(double seconds);
  static Status EndStep(const SequenceStep& entry, Sequence* sequence, const StepReport& report);
  // Returns Corrupt if any logit that the step computed for the entry is not finite.
  [[nodiscard]] Status CheckLogits(size_t entry) const;
  Status Settle(double compute_seconds);

  EngineCore& core_;
  const StepPlan& plan_;
  // A step with guesses that finds no room is repeated without them, and so frees nothing.
  const bool has_guesses_ = std::ranges::any_of(
      plan_.entries, [](const SequenceStep& entry) { return entry.ahead != nullptr; });
  StepWork work_;
  StepCosts costs_;
  bool wants_costs_ = false;
  std::vector<double> waited_;  // [entries], for T1 before the step
  StepResult result_;
};

StepResult StepRun::Take() {
  result_.runner_ = core_.runner.get();
  result_.status_ = Check();
  if (result_.status_.ok() && core_.before_first_step != nullptr) {
    result_.status_ = core_.before_first_step();
    if (result_.status_.ok()) core_.before_first_step = nullptr;
  }
  if (!result_.status_.ok()) return std::move(result_);
  const double start = SecondsNow();
  try {
    result_.status_ = PrepareAndRun();
  } catch (const std::bad_alloc&) {
    result_.status_ = NoMemory();
  }
  if (!result_.status_.ok()) {
    Undo();
    return std::move(result_);
  }
  const double seconds = SecondsNow() - start;
  ReportDevice(seconds);
  result_.taken_ = true;
  result_.status_ = Settle(seconds);
  return std::move(result_);
}

template <typename Work>
Status StepRun::ForEachEntry(const Work& work) {
  for (size_t i = 0; i < plan_.entries.size(); ++i) {
    const Status status = work(plan_.entries[i]);
    if (!status.ok()) return result_.entry_status_[i] = status;
  }
  return OkStatus();
}

Status StepRun::CheckEntry(const SequenceStep& entry) {
  EBB_RETURN_IF_ERROR(entry.sequence->CheckStep(entry.tokens));
  for (const Follower& follower : entry.followers) {
    EBB_RETURN_IF_ERROR(follower.sequence->health().CheckUnbroken());
  }
  return OkStatus();
}

Status StepRun::Check() try {
  result_.entry_status_.resize(plan_.entries.size());
  result_.first_output_.resize(plan_.entries.size());
  EBB_RETURN_IF_ERROR(ForEachEntry(CheckEntry));
  // In a batch, a refused sequence takes its step all the same, so that it does not hold up the
  // others.
  if (plan_.entries.size() != 1) return OkStatus();
  const SequenceStep& entry = plan_.entries.front();
  EBB_RETURN_IF_ERROR(entry.sequence->EndRefusalIfCapsHold());
  for (const Follower& follower : entry.followers) {
    if (!follower.TakesStep()) continue;
    EBB_RETURN_IF_ERROR(OfFollower(follower.name, follower.sequence->EndRefusalIfCapsHold()));
  }
  return OkStatus();
} catch (const std::bad_alloc&) {
  return NoMemory();
}

Status StepRun::PrepareAndRun() {
  for (const SequenceStep& entry : plan_.entries) {
    waited_.push_back(entry.sequence->cache().t1_reader().wait_seconds());
    wants_costs_ = wants_costs_ || ReportsCosts(*entry.sequence);
  }
  EBB_RETURN_IF_ERROR(Prepare());
  return core_.runner->Run(work_, wants_costs_ ? &costs_ : nullptr);
}

Status StepRun::AppendRows(const SequenceStep& entry) {
  EBB_RETURN_IF_ERROR(entry.sequence->AppendRows(entry.tokens.size(), !has_guesses_));
  for (const Follower& follower : entry.followers) {
    if (!follower.TakesStep()) continue;
    EBB_RETURN_IF_ERROR(OfFollower(
        follower.name, follower.sequence->AppendRows(entry.tokens.size(), !has_guesses_)));
  }
  return OkStatus();
}

Status StepRun::Prepare() {
  work_.deferred_logits = plan_.deferred_logits;
  work_.one_token_at_a_time = plan_.one_token_at_a_time;
  EBB_RETURN_IF_ERROR(
      ForEachEntry([this](const SequenceStep& entry) { return AppendRows(entry); }));
  EBB_RETURN_IF_ERROR(ForEachEntry(
      [](const SequenceStep& entry) { return entry.sequence->MakePlaces(entry.tokens.size()); }));
  for (const SequenceStep& entry : plan_.entries) Begin(entry);
  // The runner expects the tokens of sequences in tiles after all others.
  for (const bool in_tiles : {false, true}) {
    for (size_t i = 0; i < plan_.entries.size(); ++i) {
      if (work_.sequences[i].in_tiles == in_tiles) AddTokens(i);
    }
    if (!in_tiles) work_.num_fold_tokens = static_cast<int>(work_.tokens.size());
  }
  return OkStatus();
}

void StepRun::Begin(const SequenceStep& entry) {
  // The entry must be in the list before its BeginStep(), because Undo() undoes BeginStep() for
  // every sequence in this list.
  work_.sequences.push_back(entry);
  SequenceStep& step = work_.sequences.back();
  step.first = entry.sequence->next();
  if (entry.chunk_tokens == 0) {
    step.chunk_first = step.first;
    step.chunk_tokens = step.num_tokens();
  }
  if (step.signals == nullptr) step.signals = &entry.sequence->signals();
  entry.sequence->BeginStep(step.kind, step.num_tokens(), step.num_taken(), step.signals);
  entry.sequence->Describe(&step);
  step.in_tiles = GoesInTiles(step, plan_.one_token_at_a_time);
  for (const Follower& follower : step.followers) {
    if (!follower.TakesStep()) continue;
    follower.sequence->BeginStep(step.kind, step.num_tokens(), step.num_taken(), follower.signals);
  }
}

void StepRun::AddTokens(size_t index) {
  const SequenceStep& entry = plan_.entries[index];
  work_.sequences[index].first_token = static_cast<int>(work_.tokens.size());
  result_.first_output_[index] = work_.output_rows.size();
  const size_t num_tokens = entry.tokens.size();
  for (size_t t = 0; t < num_tokens; ++t) {
    if (entry.logits == SequenceStep::Logits::kAll || t + 1 == num_tokens) {
      work_.output_rows.push_back(static_cast<int32_t>(work_.tokens.size()));
    }
    work_.tokens.push_back(entry.tokens[t]);
    const Position position = entry.sequence->next() + static_cast<Position>(t);
    work_.rope_positions.push_back(entry.sequence->rope().Next(position));
  }
}

void StepRun::Undo() {
  for (size_t i = 0; i < plan_.entries.size(); ++i) {
    const SequenceStep& entry = plan_.entries[i];
    const bool has_begun = i < work_.sequences.size();
    entry.sequence->UndoStep(has_begun);
    for (const Follower& follower : entry.followers) {
      if (follower.TakesStep()) follower.sequence->UndoStep(has_begun);
    }
  }
}

void StepRun::ReportDevice(double seconds) {
  if (!core_.stores.device()->IsClosed()) return;
  for (const SequenceStep& entry : plan_.entries) {
    if (entry.kind != StepKind::kDecode) return;
  }
  DeviceReport& report = core_.device_report;
  report.t1_mode = core_.runner->steps().t1_mode();
  ++report.decode_steps;
  report.decode_seconds += seconds;
}

// Ends the step of one sequence. If memory runs out here, the step has already been computed, so
// only this sequence is broken.
Status StepRun::EndStep(const SequenceStep& entry, Sequence* sequence, const StepReport& report) {
  const bool ends_chunk =
      entry.first + entry.num_tokens() == entry.chunk_first + entry.chunk_tokens;
  return sequence->EndStep(entry.kind, entry.tokens.first(entry.num_taken()), report,
                           ends_chunk ? Decides::kYes : Decides::kNo);
}

Status StepRun::CheckLogits(size_t entry) const {
  if (plan_.deferred_logits) return OkStatus();
  const SequenceStep& step = plan_.entries[entry];
  const bool are_all_shown = step.logits == SequenceStep::Logits::kAll && step.ahead == nullptr;
  const size_t num_outputs = are_all_shown ? step.tokens.size() : 1;
  for (size_t i = 0; i < num_outputs; ++i) {
    EBB_RETURN_IF_ERROR(CheckFinite(result_.logits(entry, i), core_.options.kv_type));
  }
  return OkStatus();
}

// Ends the step of every entry. An error in one entry's decision ends its own request; the other
// entries continue.
Status StepRun::Settle(double compute_seconds) {
  Status first_error;
  for (size_t i = 0; i < work_.sequences.size(); ++i) {
    const SequenceStep& entry = work_.sequences[i];
    Status& of_entry = result_.entry_status_[i];
    StepReport report = {.compute_seconds = compute_seconds};
    report.select_seconds = core_.runner->steps().select_seconds();
    report.t1_bytes_read = entry.sequence->cache().t1_reader().bytes_read();
    report.io_wait_seconds = entry.sequence->cache().t1_reader().wait_seconds() - waited_[i];
    if (ReportsCosts(*entry.sequence)) report.costs = costs_;
    if (entry.ahead != nullptr) entry.ahead->TakeFrom(entry, result_, i);
    of_entry = EndStep(entry, entry.sequence, report);
    for (const Follower& follower : entry.followers) {
      if (!follower.TakesStep()) continue;
      follower.signals->TakeMass(*entry.signals, *follower.cache);
      const Status of_follower =
          OfFollower(follower.name, EndStep(entry, follower.sequence, report));
      if (of_entry.ok()) of_entry = of_follower;
    }
    if (of_entry.ok()) of_entry = CheckLogits(i);
    const bool rows_changed = !of_entry.ok() || entry.sequence->settler().has_placed_rows();
    if (entry.ahead != nullptr && rows_changed) entry.ahead->Clear();
    if (first_error.ok()) first_error = of_entry;
  }
  return first_error;
}

StepResult RunStep(EngineCore* core, const StepPlan& plan) { return StepRun(core, plan).Take(); }

}  // namespace ebb

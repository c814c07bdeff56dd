#include "src/sequence/computed_tokens.h"

#include <algorithm>
#include <new>
#include <utility>

#include "src/model/loaded/loaded_model.h"
#include "src/rows/row_address.h"
#include "src/sequence/shown_logits.h"
#include "src/sequence/step.h"

namespace ebb {
namespace {

// kMostMassBytes bounds the mass that a step keeps for its tokens.
constexpr size_t kMostMassBytes = size_t{32} << 20;

// Calls visit(address) for the row at index num_full_rows - `from_end` of every stream.
template <typename Visitor>
void ForEachRow(const SequenceCache& cache, size_t from_end, const Visitor& visit) {
  const CacheLayout& layout = cache.layout();
  for (int group = 0; group < layout.num_groups(); ++group) {
    const auto index = static_cast<uint32_t>(cache.views().num_full_rows(group) - from_end);
    for (const CacheLayout::StreamId& stream : layout.StreamsOf(group)) {
      visit(cache.views().Row(stream.layer, stream.kv_head, index));
    }
  }
}

// Returns the address of a row whose value follows its key.
RowAddress PackedRow(std::byte* row, const PageFormat& format) {
  return {.key = row, .value = row + format.PackedValueOffset()};
}

}  // namespace

std::string ComputedTokens::Obstacle(const EngineCore& core, const Policy& policy,
                                     const SessionOptions& options) {
  if (core.stores.device()->IsClosed()) {
    return "a device rounds several tokens of a step differently than one";
  }
  const Hyperparameters& hparams = core.model->loaded().hparams;
  if (hparams.state_bytes > 0 && !hparams.keeps_states) {
    return "the model's graph keeps no recurrent states but the last";
  }
  if (!options.guesses_inexactly && MultipliesComputedMatrices(core.model->loaded())) {
    return core.model->batch_dependence() + "; --speculate-inexact allows it";
  }
  if (RotatesKeys(options.past_context, policy)) return "keys are re-rotated";
  if (policy.selector != nullptr) return "each token reads rows of its own choice";
  // A step moves the history of queries on for all its tokens at once.
  if (StepSettler::Needs(policy).num_recent_queries + options.extra_signals.num_recent_queries >
      0) {
    return "the policy ranks rows by the last queries";
  }
  const bool expires = policy.placement != nullptr && policy.placement->LongestStep() < kAnyStep;
  return expires ? "rows expire within a step of several tokens" : "";
}

int ComputedTokens::MostTokens(const Sequence& sequence, int most) {
  while (most > 1 && !sequence.HasRoom(static_cast<size_t>(most))) --most;
  if (sequence.settler().CapsMayBind()) {
    most = static_cast<int>(std::clamp<size_t>(sequence.cache().RoomForTokens(), 1, most));
  }
  const size_t mass_bytes = sequence.signals().MassBytesPerToken(sequence.cache());
  if (mass_bytes > 0) {
    most = static_cast<int>(std::clamp<size_t>(kMostMassBytes / mass_bytes, 1, most));
  }
  const LoadedModel& model = sequence.core()->model->loaded();
  if (const size_t state_bytes = model.hparams.state_bytes; state_bytes > 0) {
    most = MostStateSlots(state_bytes, model.weight_bytes, most);
  }
  return sequence.TokensToDecision(most);
}

void ComputedTokens::Clear() {
  tokens_.clear();
  first_ = 0;
}

void ComputedTokens::TakeFrom(const SequenceStep& entry, const StepResult& result, size_t index) {
  Clear();
  try {
    Record(entry, result, index);
  } catch (const std::bad_alloc&) {
    Clear();
  }
  entry.sequence->KeepFirst(entry.signals);
}

void ComputedTokens::Record(const SequenceStep& entry, const StepResult& result, size_t index) {
  const Sequence& sequence = *entry.sequence;
  const PageFormat& format = sequence.core()->format;
  const size_t num_tokens = entry.tokens.size();
  // Pages may have moved when sequences before this one in the step moved rows.
  entry.sequence->cache().FindAddresses();
  tokens_.reserve(num_tokens - 1);
  for (size_t t = 1; t < num_tokens; ++t) {
    const std::span<const float> logits = result.logits(index, t);
    if (!CheckFinite(logits, format.type).ok()) return;
    Computed computed = {.token = entry.tokens[t],
                         .rows = {},
                         .signals = entry.signals->SignalsOf(static_cast<int>(t)),
                         .logits = {logits.begin(), logits.end()}};
    ForEachRow(sequence.cache(), num_tokens - t, [&](const RowAddress& row) {
      computed.rows.resize(computed.rows.size() + format.RowBytes());
      CopyRow(row,
              PackedRow(computed.rows.data() + computed.rows.size() - format.RowBytes(), format),
              format);
    });
    tokens_.push_back(std::move(computed));
  }
}

StepOutcome ComputedTokens::Take(Sequence* sequence) {
  taken_ = std::move(tokens_[first_++]);
  const Token token = taken_.token;
  Status status = sequence->CheckStep({&token, 1});
  if (status.ok()) status = Append(sequence);
  if (!status.ok()) {
    Clear();
    return {.taken = false, .status = std::move(status)};
  }
  status = sequence->EndStep(StepKind::kDecode, {&token, 1}, StepReport{}, Decides::kYes);
  if (!status.ok() || sequence->settler().has_placed_rows()) Clear();
  return {.taken = true, .status = std::move(status)};
}

Status ComputedTokens::Append(Sequence* sequence) {
  bool has_begun = false;
  try {
    EBB_RETURN_IF_ERROR(sequence->AppendRows(1, /*frees_windows=*/true));
    SequenceCache& cache = sequence->cache();
    cache.FindAddresses();
    const PageFormat& format = sequence->core()->format;
    std::byte* from = taken_.rows.data();
    ForEachRow(cache, 1, [&](const RowAddress& row) {
      CopyRow(PackedRow(std::exchange(from, from + format.RowBytes()), format), row, format);
    });
    has_begun = true;
    sequence->BeginStep(StepKind::kDecode, 1, 1, &sequence->signals());
    sequence->signals().Set(taken_.signals);
    sequence->roll_back().state().TakeNext();
    return OkStatus();
  } catch (const std::bad_alloc&) {
    sequence->UndoStep(has_begun);
    return OutOfMemory("no memory for this step");
  }
}

size_t ComputedTokens::memory_bytes() const {
  size_t bytes = 0;
  for (const Computed& computed : tokens_) {
    bytes += computed.rows.capacity() + computed.logits.capacity() * sizeof(float);
  }
  return bytes;
}

}  // namespace ebb

#include "src/sequence/prompt_chunks.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "src/attention/prefill.h"
#include "src/policy/tier_plan.h"
#include "src/sequence/checkpoint_plan.h"
#include "src/sequence/sequence.h"
#include "src/sequence/stored_rows.h"
#include "src/step/cpu/attention_nodes.h"

namespace ebb {
namespace {

// Returns how many of the first positions have a row in T0 or T1 in every group; without
// `with_windows`, in every group whose layers have no sliding window.
size_t NumFirstRows(const SequenceCache& cache, bool with_windows) {
  size_t num_rows = std::numeric_limits<size_t>::max();
  const auto has_window = [&](int group) { return cache.layout().WindowOf(group) > 0; };
  for (const auto& table : cache.tables().all()) {
    if (!with_windows && std::ranges::all_of(table->groups, has_window)) continue;
    num_rows = std::min(num_rows, table->NumFirstRows());
  }
  return num_rows;
}

// Returns how many of the first positions have a row in every group, the first `num_full` in T0 or
// T1 and the others in T2; 0 if a group lacks some of the first `num_full`.
size_t NumFirstRowsInT2(const GroupTables& tables, size_t num_full) {
  size_t num_rows = std::numeric_limits<size_t>::max();
  for (const auto& table : tables.all()) {
    if (table->NumFirstRows() < num_full) return 0;
    const std::span<const Position> positions = table->rows.positions();
    const std::span<const uint32_t> in_t2 = table->CompressedIndices();
    size_t count = 0;
    while (count < in_t2.size() &&
           positions[in_t2[count]] == static_cast<Position>(num_full + count)) {
      ++count;
    }
    num_rows = std::min(num_rows, num_full + count);
  }
  return num_rows;
}

// Returns whether reading a prompt changes scores that the policy uses. A sequence that takes over
// a prompt's rows instead of reading the prompt would lack such scores, so it must not share rows.
bool LearnsFromPrompts(const Policy& policy) {
  return StepSettler::UsesScores(policy) && !policy.scorer->IgnoresPrompts();
}

}  // namespace

size_t PromptChunks::WholeChunk() const {
  const auto chunk = static_cast<size_t>(sequence_.core()->options.prefill_chunk);
  const Placement* const placement = sequence_.policy().placement.get();
  return placement == nullptr ? chunk : std::min<size_t>(chunk, placement->LongestStep());
}

bool PromptChunks::ReadsWholeChunks() const {
  const Placement* const placement = sequence_.policy().placement.get();
  const bool delays = placement != nullptr && placement->LongestStep() < kAnyStep;
  return sequence_.RotatesKeys() || delays || sequence_.signals().needs().mass_in_prefill;
}

bool PromptChunks::ReadsTokenByToken() const {
  if (!sequence_.cache().views().HasCompressedRows()) return false;
  return sequence_.core()->runner->steps().ReadsT2TokenByToken() || sequence_.LongestStep() == 1;
}

size_t PromptChunks::ChunkOfRest(size_t num_tokens) const {
  const size_t whole = WholeChunk();
  if (!CompressesOldRows(sequence_.options().policy.tiers)) return std::min(num_tokens, whole);
  // The rows of chunks before the last one are compressed; the last chunk must be long enough to
  // contain the newest rows, which stay in T0.
  const OldPositions old = OldBesideT2(*sequence_.options().policy.tiers, /*decided_after=*/0);
  const auto least = static_cast<size_t>(old.newest - 1 + old.block);
  if (num_tokens <= whole || num_tokens >= whole + least || whole <= least) {
    return std::min(num_tokens, whole);
  }
  const auto block = static_cast<size_t>(old.block);
  return (num_tokens - least) / block * block;
}

size_t PromptChunks::MaxChunk(size_t num_tokens) const {
  size_t chunk = ChunkOfRest(num_tokens);
  if (ReadsTokenByToken()) chunk = 1;
  if (!sequence_.RotatesKeys()) return chunk;
  const auto used = static_cast<size_t>(sequence_.rope().Next(sequence_.next()));
  const size_t rows = sequence_.cache().tables().max_rows();
  const size_t total = sequence_.options().context;
  const size_t room = std::max(total - std::min(total, used), total - std::min(total, rows));
  return room == 0 ? chunk : std::min(chunk, room);
}

Result<size_t> PromptChunks::NextPiece(size_t chunk) {
  if (!sequence_.settler().CapsMayBind()) return chunk;
  const SequenceCache& cache = sequence_.cache();
  if (cache.RoomForTokens() < chunk && !sequence_.tokens().empty()) {
    tokens_to_come_ = chunk;
    EBB_RETURN_IF_ERROR(sequence_.MakeRoom(StepKind::kPrefill));
  }
  // Tokens that exceed T0's cap wait for the next step. No piece has a single token, since other
  // kernels multiply a single token than several.
  const size_t piece = std::min(chunk, std::max<size_t>(cache.RoomForTokens(), 2));
  return piece + 1 == chunk && piece > 2 ? piece - 1 : piece;
}

void PromptChunks::Begin(std::span<const Token> prompt, size_t num_read) {
  const Position next = sequence_.next();
  const bool is_first = static_cast<size_t>(next) == num_read;
  if (is_first) first_ = {.num_tokens = prompt.size(), .end = next};
  first_.is_read = is_first;
  // Keeps a checkpoint at the end of the previous answer, to which the user may roll back to ask
  // another question.
  KeepCheckpoints(/*num_tokens=*/0, /*lasts=*/true);
  planned_.clear();
  RollBack& roll_back = sequence_.roll_back();
  if (!roll_back.NeedsCheckpoints()) return;
  const Position begin = next - static_cast<Position>(num_read);
  const Model& model = *sequence_.core()->model;
  const CheckpointPlan plan = PlanCheckpoints(prompt, num_read, WholeChunk(),
                                              [&](Token token) { return model.IsControl(token); });
  for (const size_t end : plan.positions) planned_.push_back(begin + static_cast<Position>(end));
  if (begin > 0 || plan.first_message_end == 0) return;
  roll_back.KeepAlways(static_cast<Position>(plan.first_message_end));
}

size_t PromptChunks::TokensToCheckpoint() const {
  const auto to_come = std::ranges::upper_bound(planned_, sequence_.next());
  if (!sequence_.roll_back().state().exists() || to_come == planned_.end()) {
    return std::numeric_limits<size_t>::max();
  }
  return static_cast<size_t>(*to_come - sequence_.next());
}

void PromptChunks::KeepCheckpoints(size_t num_tokens, bool lasts) {
  const Position next = sequence_.next();
  const auto begin = std::ranges::upper_bound(planned_, next - static_cast<Position>(num_tokens));
  const auto end = std::ranges::lower_bound(planned_, next);
  const bool is_planned = end != planned_.end() && *end == next;
  sequence_.roll_back().Keep(next, {begin, std::max(begin, end)},
                             sequence_.settler().MayKeepRowsBehindWindows(), lasts || is_planned);
}

void PromptChunks::EndStep(size_t num_tokens, bool ends_chunk) {
  if (first_.is_read) first_.end = sequence_.next();
  KeepCheckpoints(num_tokens, ends_chunk);
}

void PromptChunks::End() {
  first_.is_read = false;
  if (first_is_over_) return;
  first_is_over_ = true;
  sequence_.settler().EndFirstPrefill();
}

void PromptChunks::TruncateTo(Position end) {
  first_.is_read = false;
  first_.end = std::min(first_.end, end);
}

bool PromptChunks::AreReadAlike(size_t begin, size_t a, size_t b) const {
  if (a == b) return true;
  // Short chunks use other attention kernels (fold) than long ones (tiles), and a single token is
  // multiplied by other kernels, so bits may differ.
  if (std::min(a, b) <= static_cast<size_t>(kMaxFoldTokens)) return false;
  const EngineCore& core = *sequence_.core();
  const ModelShape& shape = core.model->shape();
  for (int layer = 0; layer < shape.num_layers; ++layer) {
    const AttentionShape of_layer = {.num_q_heads = shape.num_q_heads,
                                     .num_kv_heads = shape.NumKvHeads(layer),
                                     .format = core.format};
    if (!AreCutAlike(*core.kernel, of_layer, begin, static_cast<int>(a), static_cast<int>(b))) {
      return false;
    }
  }
  return true;
}

size_t PromptChunks::ShareablePrefixLength(std::span<const Token> prompt) const {
  const bool compresses = CompressesOldRows(sequence_.options().policy.tiers);
  const size_t rows =
      compresses ? NumFirstCompressedRows(prompt) : NumFirstRowsWithoutState(prompt);
  const Position nearest =
      sequence_.roll_back().NearestUpTo(static_cast<Position>(rows), sequence_.next());
  return !compresses || static_cast<size_t>(nearest) == rows ? static_cast<size_t>(nearest) : 0;
}

size_t PromptChunks::NumFirstCompressedRows(std::span<const Token> prompt) const {
  if (prompt.empty() || sequence_.RotatesKeys() || LearnsFromPrompts(sequence_.policy())) return 0;
  const OldPositions old = OldBesideT2(*sequence_.options().policy.tiers, /*decided_after=*/0);
  size_t most = std::min(prompt.size() - 1, static_cast<size_t>(first_.end));
  most =
      std::min(most, NumFirstRowsInT2(sequence_.cache().tables(), static_cast<size_t>(old.first)));
  const auto differ =
      std::mismatch(prompt.begin(), prompt.begin() + most, sequence_.tokens().begin());
  most = differ.first - prompt.begin();
  // Whole chunks near the end of a prompt are cut in another way, so only chunks that both prompts
  // read whole are shared.
  const size_t chunk = WholeChunk();
  size_t end = 0;
  while (end + chunk <= most && ChunkOfRest(first_.num_tokens - end) == chunk &&
         ChunkOfRest(prompt.size() - end) == chunk) {
    end += chunk;
  }
  return end % static_cast<size_t>(old.block) == 0 ? end : 0;
}

size_t PromptChunks::NumFirstRowsWithoutState(std::span<const Token> prompt) const {
  const Policy& policy = sequence_.policy();
  if (prompt.empty() || sequence_.RotatesKeys() || LearnsFromPrompts(policy)) return 0;
  // Shares nothing with bf16 rows: the selector would read their keys, which have lost precision
  // against those that it saw when the prompt was computed.
  if (policy.selector != nullptr && sequence_.core()->format.type == RowType::kBf16) return 0;
  // Without a policy, which might remove rows, rows within sliding windows are available at
  // checkpoints, and NearestUpTo() checks them.
  const bool with_windows = policy.placement != nullptr;
  size_t most = std::min({prompt.size() - 1, static_cast<size_t>(first_.end),
                          NumFirstRows(sequence_.cache(), with_windows)});
  const auto differ =
      std::mismatch(prompt.begin(), prompt.begin() + most, sequence_.tokens().begin());
  most = differ.first - prompt.begin();
  const size_t chunk = WholeChunk();
  for (size_t begin = 0; begin < most; begin += chunk) {
    const size_t here = std::min(first_.num_tokens - begin, chunk);
    const size_t there = std::min(prompt.size() - begin, chunk);
    if (!AreReadAlike(begin, here, there)) {
      most = begin;
      break;
    }
    // A chunk never leaves a single token to be read by itself, since other kernels would compute
    // it.
    if (most + 1 == begin + there) {
      --most;
      break;
    }
  }
  if (policy.selector != nullptr && !policy.selector->NumRowsToShare(most).has_value()) return 0;
  return most;
}

Status PromptChunks::AdoptPrefix(Sequence* other, Position end) {
  EBB_RETURN_IF_ERROR(other->health().CheckUnbroken());
  EBB_RETURN_IF_ERROR(sequence_.cache().ForkFrom(&other->cache(), end));
  sequence_.roll_back().TakeFrom(other->roll_back(), end);
  sequence_.TakeTokensOf(*other, end);
  sequence_.settler().AppendReadRows(end);
  const Selector* const selector = other->policy().selector.get();
  return selector == nullptr ? OkStatus() : TakeSelection(*selector, end);
}

Status PromptChunks::TakeSelection(const Selector& from, Position end) {
  const size_t first = from.NumRowsToShare(end).value();
  sequence_.policy().selector->TakeFirstRows(from, first);
  const size_t num_rows = end - first;
  const EngineCore& core = *sequence_.core();
  const ModelShape& shape = core.model->shape();
  const size_t head_dim = core.format.head_dim;
  std::vector<std::vector<float>> keys(shape.num_layers);
  StoredRows stored(core, &sequence_.cache());
  EBB_RETURN_IF_ERROR(stored.ForEachLayer(shape.num_layers - 1, [&](int layer) -> Status {
    const size_t num_heads = shape.NumKvHeads(layer);
    keys[layer].resize(num_rows * num_heads * head_dim);
    for (size_t h = 0; h < num_heads; ++h) {
      EBB_RETURN_IF_ERROR(stored.Load(
          layer, static_cast<int>(h), {first, first + num_rows}, StoredRows::Part::kKeys,
          [&](size_t i) { return &keys[layer][((i - first) * num_heads + h) * head_dim]; }));
    }
    return OkStatus();
  }));
  sequence_.settler().ShowKeysToSelector(static_cast<Position>(first), {keys.begin(), keys.end()},
                                         num_rows);
  return OkStatus();
}

void PromptChunks::Save(StateWriter* to) const {
  to->Number<uint8_t>(first_is_over_ ? 1 : 0);
  to->Number<uint64_t>(first_.num_tokens);
  to->Number<Position>(first_.end);
}

void PromptChunks::Load(StateReader* from) {
  first_is_over_ = from->Number<uint8_t>() != 0;
  first_ = {.num_tokens = from->Number<uint64_t>(), .end = from->Number<Position>()};
}

void PromptChunks::CheckLoaded(const TokenHistory& tokens, StateReader* from) {
  const auto given = static_cast<size_t>(tokens.first_generated());
  if (first_.end < 0 || static_cast<size_t>(first_.end) > given ||
      first_.num_tokens < static_cast<size_t>(first_.end)) {
    from->Fail(fmt::format("{} of {} tokens of the first prompt, {} given tokens", first_.end,
                           first_.num_tokens, given));
  }
  // Corrects older files, which record that the first prompt has not ended for a sequence that
  // began by decoding.
  if (tokens.num_generated() > 0) first_is_over_ = true;
}

}  // namespace ebb

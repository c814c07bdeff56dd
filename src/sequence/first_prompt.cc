// The prompt that a sequence began with, whose rows other sequences may take.
#include <algorithm>
#include <limits>

#include "src/attention/prefill.h"
#include "src/policy/tier_plan.h"
#include "src/sequence/sequence.h"
#include "src/step/attention_nodes.h"

namespace ebb {
namespace {

// Returns how many of the first positions have a row in T0 or T1 in every group, or in every group
// without a window.
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
// T1 and the others in T2; 0 if fewer than `num_full` have one.
size_t NumFirstRowsInT2(const GroupTables& tables, size_t num_full) {
  size_t num_rows = std::numeric_limits<size_t>::max();
  for (const auto& table : tables.all()) {
    if (table->NumFirstRows() < num_full) return 0;
    const std::span<const Position> in_t2 = table->compressed.positions();
    size_t count = 0;
    while (count < in_t2.size() && in_t2[count] == static_cast<Position>(num_full + count)) ++count;
    num_rows = std::min(num_rows, num_full + count);
  }
  return num_rows;
}

}  // namespace

bool Sequence::AreReadAlike(size_t begin, size_t a, size_t b) const {
  if (a == b) return true;
  // Few tokens are folded, others go in tiles; and one alone is multiplied by other kernels.
  if (std::min(a, b) <= static_cast<size_t>(kMaxFoldTokens)) return false;
  const ModelShape& shape = core_->model->shape();
  for (int layer = 0; layer < shape.num_layers; ++layer) {
    const AttentionShape of_layer = {.num_q_heads = shape.num_q_heads,
                                     .num_kv_heads = shape.NumKvHeads(layer),
                                     .format = core_->format};
    if (!AreCutAlike(*core_->kernel, of_layer, begin, static_cast<int>(a), static_cast<int>(b))) {
      return false;
    }
  }
  return true;
}

size_t Sequence::ShareablePrefixLength(std::span<const Token> prompt) const {
  const bool compresses = CompressesOldRows(options_.policy.tiers);
  const size_t rows =
      compresses ? NumFirstCompressedRows(prompt) : NumFirstRowsWithoutState(prompt);
  const Position nearest = NearestCheckpoint(static_cast<Position>(rows));
  return !compresses || static_cast<size_t>(nearest) == rows ? static_cast<size_t>(nearest) : 0;
}

size_t Sequence::NumFirstCompressedRows(std::span<const Token> prompt) const {
  if (prompt.empty() || RotatesKeys()) return 0;
  size_t most = std::min(prompt.size() - 1, static_cast<size_t>(first_prompt_.end));
  most = std::min(most, NumFirstRowsInT2(cache_.tables(), static_cast<size_t>(kFirstInT0)));
  const auto differ = std::mismatch(prompt.begin(), prompt.begin() + most, tokens_.begin());
  most = differ.first - prompt.begin();
  // A prompt that ends soon has its last chunks cut elsewhere.
  const size_t chunk = WholeChunk();
  size_t end = 0;
  while (end + chunk <= most && ChunkOfRest(first_prompt_.num_tokens - end) == chunk &&
         ChunkOfRest(prompt.size() - end) == chunk) {
    end += chunk;
  }
  return end % kRowsPerPage == 0 ? end : 0;
}

size_t Sequence::NumFirstRowsWithoutState(std::span<const Token> prompt) const {
  const bool learns = StepSettler::UsesScores(policy_) && !policy_.scorer->IgnoresPrompts();
  if (prompt.empty() || RotatesKeys() || learns) return 0;
  // A selector that takes over a prefix reads keys from rows, which must have them in its
  // precision.
  if (policy_.selector != nullptr && core_->format.type == RowType::kBf16) return 0;
  // Rows in windows are those of checkpoints where no policy removes others.
  const bool with_windows = policy_.placement != nullptr;
  size_t most = std::min({prompt.size() - 1, static_cast<size_t>(first_prompt_.end),
                          NumFirstRows(cache_, with_windows)});
  const auto differ = std::mismatch(prompt.begin(), prompt.begin() + most, tokens_.begin());
  most = differ.first - prompt.begin();
  const size_t chunk = WholeChunk();
  for (size_t begin = 0; begin < most; begin += chunk) {
    const size_t here = std::min(first_prompt_.num_tokens - begin, chunk);
    const size_t there = std::min(prompt.size() - begin, chunk);
    if (!AreReadAlike(begin, here, there)) {
      most = begin;
      break;
    }
    // A single token of several is never read by itself.
    if (most + 1 == begin + there) {
      --most;
      break;
    }
  }
  if (policy_.selector != nullptr && !policy_.selector->NumRowsToShare(most).has_value()) return 0;
  return most;
}

Status Sequence::AdoptPrefix(Sequence* other, Position end) {
  EBB_RETURN_IF_ERROR(other->health_.CheckUnbroken());
  EBB_RETURN_IF_ERROR(cache_.ForkFrom(&other->cache_, end));
  state_.TakeFrom(other->state_, end);
  window_checkpoints_ = other->window_checkpoints_;
  window_checkpoints_.GoBackTo(end);
  tokens_.assign(other->tokens_.begin(), other->tokens_.begin() + end);
  kinds_.assign(end, TokenKind::kGiven);
  settler_.AppendReadRows(end);
  return policy_.selector == nullptr ? OkStatus() : TakeSelection(*other->policy_.selector, end);
}

Status Sequence::TakeSelection(const Selector& from, Position end) {
  const size_t first = from.NumRowsToShare(end).value();
  policy_.selector->TakeFirstRows(from, first);
  const size_t num_rows = end - first;
  const ModelShape& shape = core_->model->shape();
  const size_t head_dim = core_->format.head_dim, row_bytes = core_->format.RowStride();
  Device* const device = core_->stores.device();
  std::vector<std::vector<float>> keys(shape.num_layers);
  std::vector<const std::byte*> stored(num_rows);  // of a kv head
  std::vector<std::byte> copies(device->IsClosed() ? num_rows * row_bytes : 0);
  EBB_ASSIGN_OR_RETURN(StagedStep staged, cache_.StageStep());
  for (int attention = 0; attention < shape.NumAttentions(); ++attention) {
    staged.StageLayer(attention, /*part=*/0);
    const int layer = shape.LayerRead(attention);
    const size_t num_heads = shape.NumKvHeads(layer);
    keys[layer].resize(num_rows * num_heads * head_dim);
    for (size_t h = 0; h < num_heads; ++h) {
      const RowsView rows = cache_.views().View(layer, static_cast<int>(h));
      for (size_t i = 0; i < num_rows; ++i) {
        const Slot slot = rows.slots[first + i];
        stored[i] = rows.pages[slot.page()] + slot.row() * row_bytes;
      }
      if (device->IsClosed() && num_rows > 0) {
        EBB_RETURN_IF_ERROR(device->ReadRows(stored, row_bytes, copies.data()));
        for (size_t i = 0; i < num_rows; ++i) stored[i] = copies.data() + i * row_bytes;
      }
      for (size_t i = 0; i < num_rows; ++i) {
        core_->kernel->load_row(core_->format.type, stored[i],
                                keys[layer].data() + (i * num_heads + h) * head_dim,
                                core_->format.head_dim);
      }
    }
    staged.ReleaseLayer(attention);
    staged.EndLayer(attention);
  }
  EBB_RETURN_IF_ERROR(staged.End());
  settler_.ShowKeysToSelector(static_cast<Position>(first), {keys.begin(), keys.end()}, num_rows);
  return OkStatus();
}

}  // namespace ebb

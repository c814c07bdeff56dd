// Runs the attention nodes of the processor's graph. ggml calls each node's function once for each
// part (`part` of `num_parts`), and any thread may run any part. Invariants: (1) a row is stored
// before it is read: by the same part in the same node, or by an earlier node; (2) only part 0
// plans a fold, and the plan's node ends before the plan is used; (3) part 0 of a merge plans the
// next fold while other parts still read the plan that is being merged, so that consecutive folds
// have separate scratch memory.
#include "src/step/cpu/attention_nodes.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cassert>
#include <cstring>
#include <numeric>

#include "ggml.h"

namespace ebb {
namespace {

// kTokensPerFold is the most tokens that one fold node attends for, unless AttentionPath::Of()
// limits the number of folds. A fold keeps a partial result for each of its tokens and chunks of
// rows until the merge, so that fewer tokens need less memory.
constexpr int kTokensPerFold = 8;

static_assert(3 + 2 * AttentionOp::kMostFolds <= kMaxAttentionNodesPerLayer);

// Returns the vector of head `head` of token `token` of a [head_dim, heads, tokens] tensor.
float* HeadOf(const ggml_tensor* t, int token, int head) {
  return reinterpret_cast<float*>(static_cast<char*>(t->data) + token * t->nb[2] + head * t->nb[1]);
}

}  // namespace

bool GoesInTiles(const SequenceStep& sequence, bool one_token_at_a_time) {
  if (sequence.ahead != nullptr) return false;  // guesses have the bits of decode steps
  if (sequence.injects || sequence.sees_whole_step) return false;
  return (sequence.chunk_tokens > kMaxFoldTokens || sequence.has_expiring_rows) &&
         !one_token_at_a_time;
}

AttentionPath AttentionPath::Of(const StepWork& work) {
  if (work.sequences.front().injects) return {};
  AttentionPath path = {.stores_in_fold = true};
  for (const SequenceStep& sequence : work.sequences) {
    if (sequence.in_tiles) {
      path.has_tiles = true;
      path.tiles_have_mass = path.tiles_have_mass || sequence.signals->wants_mass();
      continue;
    }
    path.selects = path.selects || sequence.selector != nullptr;
    if (sequence.num_tokens() > 1) path.stores_in_fold = false;
  }
  path.stores_in_fold = path.stores_in_fold && !path.has_tiles && !path.selects;
  path.num_folds = (work.num_fold_tokens + kTokensPerFold - 1) / kTokensPerFold;
  path.num_folds = std::min(path.num_folds, path.stores_in_fold ? 1 : AttentionOp::kMostFolds);
  return path;
}

AttentionOp::AttentionOp(AttentionScratch* scratch, const AttentionPath& path)
    : scratch_(scratch), path_(path) {}
AttentionOp::~AttentionOp() = default;

ggml_tensor* AttentionOp::Attend(ggml_context* ctx, ggml_cgraph* graph, const AttentionCall& call) {
  ggml_tensor *const q = call.q, *const k = call.k, *const v = call.v;
  ggml_tensor* const k_before_rope = call.k_before_rope;
  Layer& layer = layers_.emplace_back(Layer{.op = this,
                                            .attention = static_cast<int>(layers_.size()),
                                            .index = call.layer,
                                            .kv_heads = call.num_kv_heads,
                                            .q = q,
                                            .k = k,
                                            .v = v,
                                            .k_before_rope = k_before_rope,
                                            .sinks = call.sinks});
  const auto node = [&](std::array<int64_t, 2> size, std::initializer_list<ggml_tensor*> sources,
                        ggml_custom_op_t run, void* userdata) {
    std::vector<ggml_tensor*> args(sources);
    std::erase(args, nullptr);
    return ggml_custom_4d(ctx, GGML_TYPE_F32, size[0], size[1], 1, 1, args.data(),
                          static_cast<int>(args.size()), run, GGML_N_TASKS_MAX, userdata);
  };
  const std::array<int64_t, 2> marker = {1, 1};
  const std::array<int64_t, 2> result = {q->ne[0] * q->ne[1], q->ne[2]};
  for (int i = 0; i < path_.num_folds; ++i) layer.folds.push_back({.layer = &layer, .index = i});
  Layer::Fold* const first = layer.folds.data();
  if (path_.stores_in_fold) {
    layer.out = node(result, {node(marker, {q, k, v, k_before_rope}, FoldNode, first), q},
                     MergeNode, first);
    return layer.out;
  }
  ggml_tensor* selected = path_.selects ? node(marker, {q}, SelectNode, &layer) : nullptr;
  ggml_tensor* stored = node(marker, {q, k, v, k_before_rope, selected}, StoreNode, &layer);
  // The first node that writes attention results creates their tensor, layer.out; the later nodes
  // write into the same tensor. Each node depends on the one before, so that expanding the graph to
  // the last node runs all of them before any reader of layer.out.
  ggml_tensor* last = stored;
  for (Layer::Fold& fold : layer.folds) {
    ggml_tensor* folded = node(marker, {last, q}, FoldNode, &fold);
    last = layer.out == nullptr ? node(result, {folded}, MergeNode, &fold)
                                : node(marker, {folded, layer.out}, MergeNode, &fold);
    if (layer.out == nullptr) layer.out = last;
  }
  if (path_.has_tiles) {
    last = layer.out == nullptr ? node(result, {last, q}, PrefillNode, &layer)
                                : node(marker, {last, q, layer.out}, PrefillNode, &layer);
    if (layer.out == nullptr) layer.out = last;
    // The mass node reads the queries again, in a second pass over the rows.
    if (path_.tiles_have_mass) last = node(marker, {last, q}, MassNode, &layer);
  }
  ggml_build_forward_expand(graph, last);
  return layer.out;
}

void AttentionOp::Store(ggml_context* ctx, ggml_cgraph* graph, const AttentionCall& call) {
  Layer& layer = layers_.emplace_back(Layer{.op = this,
                                            .attention = static_cast<int>(layers_.size()),
                                            .index = call.layer,
                                            .kv_heads = call.num_kv_heads,
                                            .k = call.k,
                                            .v = call.v});
  std::array<ggml_tensor*, 2> rows = {call.k, call.v};
  ggml_build_forward_expand(
      graph, ggml_custom_4d(ctx, GGML_TYPE_F32, 1, 1, 1, 1, rows.data(),
                            static_cast<int>(rows.size()), StoreNode, GGML_N_TASKS_MAX, &layer));
}

const float* AttentionOp::Layer::Sinks() const {
  return sinks == nullptr ? nullptr : static_cast<const float*>(sinks->data);
}

void AttentionOp::SetWork(const StepWork* work, const StagedSequences* staged) {
  work_ = work;
  staged_ = staged;
  if (path_.stores_in_fold) PlanFold(layers_.front().folds.front());
}

void AttentionOp::ClearFillers(const Layer& layer) const {
  const size_t used = work_->tokens.size() * layer.out->ne[0];
  float* const out = static_cast<float*>(layer.out->data);
  std::fill(out + used, out + ggml_nelements(layer.out), 0.0f);
}

void AttentionOp::BeginLayer(const Layer& layer, int part) const {
  staged_->StageLayer(layer.attention, part);
}

void AttentionOp::StoreRow(const Layer& layer, const RowAddress& row, int token,
                           int kv_head) const {
  const PageFormat& format = scratch_->shape.format;
  scratch_->kernel.store_row(format.type, HeadOf(layer.k, token, kv_head), row.key,
                             format.head_dim);
  if (!format.has_values) return;
  scratch_->kernel.store_row(format.type, HeadOf(layer.v, token, kv_head), row.value,
                             format.head_dim);
}

void AttentionOp::StoreToken(const Layer& layer, const SequenceStep& sequence, int token,
                             int kv_head) const {
  SequenceCache& cache = *sequence.cache;
  const size_t rows = cache.views().num_full_rows(cache.layout().GroupOf(layer.index, kv_head));
  const int at = sequence.first_token + token;
  StoreRow(layer,
           cache.views().Row(layer.index, kv_head,
                             static_cast<uint32_t>(rows - sequence.num_tokens() + token)),
           at, kv_head);
  for (const Follower& follower : sequence.followers) {
    const auto positions = follower.cache->views().View(layer.index, kv_head).positions;
    const auto found = std::ranges::lower_bound(positions, sequence.first + token);
    if (found != positions.end() && *found == sequence.first + token) {
      const auto index = static_cast<uint32_t>(found - positions.begin());
      StoreRow(layer, follower.cache->views().Row(layer.index, kv_head, index), at, kv_head);
    }
  }
  sequence.ForEachSignals(
      [&](SignalBuffers* signals) { CopyRowSignals(layer, sequence, token, kv_head, signals); });
}

void AttentionOp::CopyRowSignals(const Layer& layer, const SequenceStep& sequence, int token,
                                 int kv_head, SignalBuffers* signals) const {
  const int at = sequence.first_token + token;
  const auto copy = [&](const ggml_tensor* from, float* to) {
    if (to == nullptr) return;
    std::memcpy(to, HeadOf(from, at, kv_head), sizeof(float) * scratch_->shape.format.head_dim);
  };
  copy(layer.k, signals->Keys(layer.index, token, kv_head));
  copy(layer.v, signals->Values(layer.index, token, kv_head));
  if (layer.k_before_rope != nullptr) {
    copy(layer.k_before_rope, signals->KeysBeforeRope(layer.index, token, kv_head));
  }
}

void AttentionOp::CopySignals(const Layer& layer, const SequenceStep& sequence, int token) const {
  const size_t floats = size_t(layer.q->ne[0]) * layer.q->ne[1];
  sequence.ForEachSignals([&](SignalBuffers* signals) {
    float* const to = signals->Query(layer.index, token);
    if (to == nullptr) return;
    std::memcpy(to, HeadOf(layer.q, sequence.first_token + token, 0), floats * sizeof(float));
  });
}

// Computes this part's share of the selector's ranking for every kv head. The part that completes a
// head's ranking selects the head's rows. Parts begin with different heads, so that the selections
// are spread over the parts.
void AttentionOp::SelectNode(ggml_tensor*, int part, int num_parts, void* userdata) {
  const Layer& layer = *static_cast<const Layer*>(userdata);
  AttentionOp& op = *layer.op;
  op.BeginLayer(layer, part);
  if (part == 0) op.select_begin_ = std::chrono::steady_clock::now();
  const int kv_heads = layer.kv_heads;
  for (const SequenceStep& sequence : op.work_->sequences) {
    if (sequence.selector == nullptr) continue;
    assert(sequence.num_tokens() == 1);
    for (int i = 0; i < kv_heads; ++i) {
      const int h = (i + part * kv_heads / num_parts) % kv_heads;
      const auto q = op.QueriesOf(layer, sequence.first_token, h);
      sequence.selector->Rank(layer.index, h, q, part, num_parts);
      AttentionScratch::Selected& selected = op.SelectedOf(sequence, h);
      const std::atomic_ref<int> ranked(selected.parts_ranked);
      if (ranked.fetch_add(1, std::memory_order_acq_rel) + 1 < num_parts) continue;
      ranked.store(0, std::memory_order_relaxed);
      op.SelectRows(layer, sequence, h);
    }
  }
}

void AttentionOp::StoreNode(ggml_tensor*, int part, int num_parts, void* userdata) {
  const Layer& layer = *static_cast<const Layer*>(userdata);
  AttentionOp& op = *layer.op;
  if (op.path_.selects) {
    for (const SequenceStep& sequence : op.work_->sequences) {
      if (sequence.selector == nullptr || !sequence.signals->wants_mass()) continue;
      op.ListSelected(layer, sequence, part, num_parts);
    }
    if (part == 0) {
      op.ReadSelected(layer);
      const std::chrono::duration<double> took =
          std::chrono::steady_clock::now() - op.select_begin_;
      op.scratch_->select_seconds += took.count();
    }
  } else {
    op.BeginLayer(layer, part);
  }
  int unit = 0;
  for (const SequenceStep& sequence : op.work_->sequences) {
    if (layer.k == nullptr) break;
    for (int token = 0; token < sequence.num_tokens(); ++token) {
      for (int h = 0; h < layer.kv_heads; ++h) {
        if (unit++ % num_parts == part) op.StoreToken(layer, sequence, token, h);
      }
      if (part == 0 && layer.q != nullptr) op.CopySignals(layer, sequence, token);
    }
  }
  if (op.path_.has_tiles) op.DecompressRows(layer, part, num_parts);
  if (part != 0) return;
  if (op.path_.num_folds > 0) op.PlanFold(layer.folds.front());
  if (op.path_.has_tiles) op.PlanTiles(layer);
}

// Plans one query for each token of the fold. If a sequence has several tokens in the step, each
// sees the rows up to its own.
void AttentionOp::PlanFold(const Layer::Fold& fold) {
  AttentionScratch::FoldScratch& s = ScratchOf(fold);
  s.queries.clear();
  const int fold_begin = fold.begin(), fold_end = fold.end();
  for (const SequenceStep& sequence : work_->sequences) {
    if (sequence.in_tiles) continue;
    const int begin = std::max(fold_begin, sequence.first_token);
    const int end = std::min(fold_end, sequence.first_token + sequence.num_tokens());
    for (int at = begin; at < end; ++at) PlanToken(fold, sequence, at);
  }
  s.attention.Plan(s.queries);
}

// Adds the query of `token`, an index in StepWork::tokens, to the queries of the fold.
void AttentionOp::PlanToken(const Layer::Fold& fold, const SequenceStep& sequence, int token) {
  AttentionScratch::FoldScratch& s = ScratchOf(fold);
  const Layer& layer = *fold.layer;
  const int kv_heads = layer.kv_heads;
  const size_t hidden =
      sequence.sees_whole_step ? 0 : sequence.first_token + sequence.num_tokens() - 1 - token;
  RowsView* rows = s.rows.data() + fold.FirstRow(token, kv_heads);
  for (int h = 0; h < kv_heads; ++h) {
    rows[h] = sequence.cache->views().View(layer.index, h);
    rows[h].slots = rows[h].slots.first(rows[h].slots.size() - hidden);
    rows[h].positions = rows[h].positions.first(rows[h].slots.size());
  }
  s.queries.push_back(
      {.rows = {rows, size_t(kv_heads)},
       .mass_elements = {},
       .q = HeadOf(layer.q, token, 0),
       .out = static_cast<float*>(layer.out->data) + size_t(token) * layer.out->ne[0],
       .sinks = layer.Sinks(),
       .mass = sequence.signals->Mass(layer.index, token - sequence.first_token)});
  if (sequence.selector != nullptr) PlanSelected(fold, sequence, token);
  if (rows[0].window > 0) PlanWindow(fold, sequence, token);
  if (sequence.cache->views().HasCompressedRows()) PlanCompressed(fold, sequence, token);
}

// Plans the query of one token over the rows in its sliding window. The layer also holds older rows
// if checkpoints need them (WindowCheckpoints), or if the step has several tokens, since rows that
// leave the window are removed only between steps. The query's mass_elements name the elements of
// the rows that are read, so that each row's mass is added to its own element.
void AttentionOp::PlanWindow(const Layer::Fold& fold, const SequenceStep& sequence,
                             int token) const {
  AttentionScratch::FoldScratch& s = ScratchOf(fold);
  const Position query = sequence.first + (token - sequence.first_token);
  const size_t kv_heads = fold.layer->kv_heads;
  const size_t first = fold.FirstRow(token, kv_heads);
  bool any = false;
  for (size_t h = 0; h < kv_heads; ++h) {
    RowsView& rows = s.rows[first + h];
    const size_t before =
        std::ranges::upper_bound(rows.positions, query - rows.window) - rows.positions.begin();
    any = any || before > 0;
    rows.slots = rows.slots.subspan(before);
    rows.positions = rows.positions.subspan(before);
    s.full_indices[first + h] =
        std::span<const uint32_t>(scratch_->numbers).subspan(before, rows.slots.size());
  }
  if (any) s.queries.back().mass_elements = std::span(s.full_indices).subspan(first, kv_heads);
}

namespace {

// Returns the index in `rows` of the first row that a query at position `query` sees through a
// window of `window` tokens (0: no window, it sees all). `rows` are ascending row indices of a
// stream, and `positions` the positions of all its rows.
size_t FirstInWindow(std::span<const uint32_t> rows, std::span<const Position> positions,
                     Position query, int window) {
  if (window == 0) return 0;
  const auto position = [&](uint32_t row) { return positions[row]; };
  return std::ranges::upper_bound(rows, query - window, {}, position) - rows.begin();
}

}  // namespace

void AttentionOp::PlanCompressed(const Layer::Fold& fold, const SequenceStep& sequence,
                                 int token) const {
  AttentionScratch::FoldScratch& s = ScratchOf(fold);
  const SequenceCache& cache = *sequence.cache;
  const int layer = fold.layer->index;
  const size_t kv_heads = fold.layer->kv_heads;
  const size_t first = fold.FirstRow(token, kv_heads);
  const Position query_at = sequence.first + (token - sequence.first_token);
  for (size_t h = 0; h < kv_heads; ++h) {
    const int head = static_cast<int>(h);
    const int group = cache.layout().GroupOf(layer, head);
    const int window = cache.layout().WindowOf(group);
    const auto first_seen = [&](std::span<const uint32_t> rows) {
      return FirstInWindow(rows, cache.positions(group), query_at, window);
    };
    const auto all = cache.views().IndicesOf(layer, head).compressed;
    const size_t begin = first_seen(all);
    s.compressed[first + h] = cache.views().Compressed(layer, head);
    s.compressed[first + h].slots = s.compressed[first + h].slots.subspan(begin);
    s.compressed_indices[first + h] = all.subspan(begin);
    // The step has appended rows of later tokens, which this token must not see.
    const auto full = cache.views().IndicesOf(layer, head).full;
    if (!full.empty()) {
      s.full_indices[first + h] = full.subspan(first_seen(full), s.rows[first + h].size());
    } else if (window == 0) {
      s.full_indices[first + h] = {};
    }
  }
  DecodeQuery& query = s.queries.back();
  query.compressed = std::span(s.compressed).subspan(first, kv_heads);
  query.mass_elements = std::span(s.full_indices).subspan(first, kv_heads);
  query.compressed_mass_elements = std::span(s.compressed_indices).subspan(first, kv_heads);
}

std::span<const float> AttentionOp::QueriesOf(const Layer& layer, int token, int kv_head) const {
  const size_t per_kv = scratch_->shape.num_q_heads / layer.kv_heads;
  return {HeadOf(layer.q, token, static_cast<int>(kv_head * per_kv)),
          per_kv * scratch_->shape.format.head_dim};
}

AttentionScratch::Selected& AttentionOp::SelectedOf(const SequenceStep& sequence,
                                                    int kv_head) const {
  return scratch_->selected[FirstSelected(sequence.first_token) + kv_head];
}

void AttentionOp::SelectRows(const Layer& layer, const SequenceStep& sequence, int kv_head) const {
  AttentionScratch::Selected& selected = SelectedOf(sequence, kv_head);
  selected.ranges.clear();
  sequence.selector->Select(layer.index, kv_head, QueriesOf(layer, sequence.first_token, kv_head),
                            &selected.ranges);
  selected.foreseen.clear();
  sequence.selector->Foresee(layer.index, kv_head, &selected.foreseen);
  selected.num_rows = CutIntoChunks(selected.ranges, &selected.chunks);
  selected.rows.resize(sequence.signals->wants_mass() ? selected.num_rows : 0);
}

// Lists the numbers of the selected rows of every kv head, which only mass needs. Each part writes
// a share of each list. Part 0 writes the last share, because it then plans the next fold, and the
// plan reads the end of each list.
void AttentionOp::ListSelected(const Layer& layer, const SequenceStep& sequence, int part,
                               int num_parts) const {
  for (int h = 0; h < layer.kv_heads; ++h) {
    AttentionScratch::Selected& selected = SelectedOf(sequence, h);
    const int share = num_parts - 1 - part;
    const size_t begin = selected.rows.size() * share / num_parts;
    const size_t end = selected.rows.size() * (share + 1) / num_parts;
    size_t at = 0;  // index of the next range's numbers
    for (const RowRange& range : selected.ranges) {
      const size_t from = std::max(begin, at), to = std::min(end, at + range.end - range.begin);
      if (from < to) {
        std::iota(selected.rows.data() + from, selected.rows.data() + to,
                  static_cast<uint32_t>(range.begin + (from - at)));
      }
      at += range.end - range.begin;
    }
  }
}

void AttentionOp::ReadSelected(const Layer& layer) const {
  for (size_t i = 0; i < work_->sequences.size(); ++i) {
    const SequenceStep& sequence = work_->sequences[i];
    if (sequence.selector == nullptr) continue;
    const StagedStep& staged = staged_->of(i);
    staged.BeginSelection();
    for (int h = 0; h < layer.kv_heads; ++h) {
      staged.WantRows(layer.index, h, SelectedOf(sequence, h).ranges);
      staged.ForeseeRows(layer.index, h, SelectedOf(sequence, h).foreseen);
    }
    const auto sample = SampleOf(layer, sequence);
    if (sample.has_value()) staged.WantRows(layer.index, sample->kv_head, /*ranges=*/{});
    staged.ReadWantedRows();
    if (sample.has_value()) Audit(layer, sequence, *sample);
  }
}

// Returns the audit's sample if it is of this layer, and if the selector left out rows of its kv
// head; in short sequences the selector leaves none out.
std::optional<MassAudit::Sample> AttentionOp::SampleOf(const Layer& layer,
                                                       const SequenceStep& sequence) const {
  const auto sample = sequence.audit->At(sequence.first);
  if (!sample.has_value() || sample->layer != layer.index || layer.k == nullptr ||
      SelectedOf(sequence, sample->kv_head).ranges.empty()) {
    return std::nullopt;
  }
  return sample;
}

void AttentionOp::Audit(const Layer& layer, const SequenceStep& sequence,
                        const MassAudit::Sample& sample) const {
  const int h = sample.kv_head;
  const int head_dim = scratch_->shape.format.head_dim;
  const int per_kv_head = scratch_->shape.num_q_heads / layer.kv_heads;
  const float* const sinks = layer.Sinks();
  sequence.audit->Add(
      {.kernel = &scratch_->kernel,
       .shape = scratch_->shape,
       .rows = sequence.cache->views().View(layer.index, h),
       .chosen = SelectedOf(sequence, h).ranges,
       .q = QueriesOf(layer, sequence.first_token, h).data() + sample.query_head * head_dim,
       .newest_key = HeadOf(layer.k, sequence.first_token, h),
       .sink = sinks == nullptr ? kNoSink : sinks[h * per_kv_head + sample.query_head]});
}

void AttentionOp::PlanSelected(const Layer::Fold& fold, const SequenceStep& sequence,
                               int token) const {
  AttentionScratch& s = *scratch_;
  const size_t kv_heads = fold.layer->kv_heads;
  AttentionScratch::FoldScratch& to = ScratchOf(fold);
  const size_t first = FirstSelected(token);
  for (size_t h = 0; h < kv_heads; ++h) {
    const size_t at = first + h;
    const AttentionScratch::Selected& selected = s.selected[at];
    s.selected_spans[at] = {};
    if (selected.ranges.empty()) continue;
    s.selected_spans[at] = selected.rows;
    RowsView& view = to.rows[fold.FirstRow(token, kv_heads) + h];
    *sequence.rows_unread += static_cast<int64_t>(view.slots.size() - selected.num_rows);
    view.chosen = {
        .ranges = selected.ranges, .chunks = selected.chunks, .num_rows = selected.num_rows};
  }
  to.queries.back().mass_elements = std::span(s.selected_spans).subspan(first, kv_heads);
}

void AttentionOp::DecompressRows(const Layer& layer, int part, int num_parts) const {
  size_t tile = 0;
  for (const SequenceStep& sequence : work_->sequences) {
    if (!sequence.in_tiles) continue;
    MergedRows& merged = scratch_->tiles[tile++].merged;
    if (!sequence.cache->views().HasCompressedRows()) continue;
    merged.Decompress(scratch_->kernel, scratch_->shape, *sequence.cache, layer.index,
                      layer.kv_heads, part, num_parts);
  }
}

void AttentionOp::PlanTiles(const Layer& layer) {
  AttentionScratch& s = *scratch_;
  const int kv_heads = layer.kv_heads;
  s.num_tiles = 0;
  for (const SequenceStep& sequence : work_->sequences) {
    if (!sequence.in_tiles) continue;
    AttentionScratch::TileScratch& tile = s.tiles[s.num_tiles++];
    tile.has_mass = sequence.signals->wants_mass();
    const bool has_compressed = sequence.cache->views().HasCompressedRows();
    for (int h = 0; h < kv_heads; ++h) {
      tile.rows[h] = has_compressed ? tile.merged.View(*sequence.cache, layer.index, h)
                                    : sequence.cache->views().View(layer.index, h);
    }
    // The last rows are those of the step's tokens, so that a query's position is the position of
    // its own row.
    const auto positions = tile.rows[0].positions;
    float* const out = static_cast<float*>(layer.out->data);
    tile.attention.Plan({.rows = {tile.rows.data(), size_t(kv_heads)},
                         .positions = positions.last(sequence.num_tokens()),
                         .chunk_first = sequence.chunk_first,
                         .chunk_tokens = sequence.chunk_tokens,
                         .q = HeadOf(layer.q, sequence.first_token, 0),
                         .q_token_stride = layer.q->nb[2] / sizeof(float),
                         .out = out + size_t(sequence.first_token) * layer.out->ne[0],
                         .sinks = layer.Sinks(),
                         .mass = sequence.signals->Mass(layer.index, 0)});
  }
}

// Stores the step's new rows: each part stores the rows of the (sequence, kv head) pairs whose last
// chunk the part folds afterwards, so that no part reads a row before it is stored. Part 0 also
// copies the sequences' signals. REQUIRES: each sequence has one token in the step, so that query i
// of the fold is the token of sequence i.
void AttentionOp::StoreNewRows(const Layer& layer, int part, int num_parts) const {
  const DecodeAttention& attention = ScratchOf(layer.folds.front()).attention;
  for (size_t i = 0; i < work_->sequences.size(); ++i) {
    for (int h = 0; h < layer.kv_heads; ++h) {
      if (attention.FoldsLastChunk(static_cast<int>(i), h, part, num_parts)) {
        StoreToken(layer, work_->sequences[i], 0, h);
      }
    }
    if (part == 0) CopySignals(layer, work_->sequences[i], 0);
  }
}

void AttentionOp::FoldNode(ggml_tensor*, int part, int num_parts, void* userdata) {
  const Layer::Fold& fold = *static_cast<const Layer::Fold*>(userdata);
  const Layer& layer = *fold.layer;
  const AttentionOp& op = *layer.op;
  DecodeAttention& attention = op.ScratchOf(fold).attention;
  if (op.path_.stores_in_fold) {
    op.BeginLayer(layer, part);
    if (layer.k != nullptr) op.StoreNewRows(layer, part, num_parts);
  }
  attention.Fold(part, num_parts);
}

void AttentionOp::MergeNode(ggml_tensor*, int part, int num_parts, void* userdata) {
  const Layer::Fold& fold = *static_cast<const Layer::Fold*>(userdata);
  const Layer& layer = *fold.layer;
  AttentionOp& op = *layer.op;
  op.ScratchOf(fold).attention.Merge(part, num_parts);
  if (part != 0) return;
  if (fold.index == 0) op.ClearFillers(layer);
  const size_t next = layer.attention + 1;
  if (&fold != &layer.folds.back()) {
    op.PlanFold(layer.folds[fold.index + 1]);
    return;
  }
  for (size_t i = 0; i < op.work_->sequences.size(); ++i) {
    if (!op.work_->sequences[i].in_tiles) op.staged_->EndLayerOf(i, layer.attention);
  }
  if (op.path_.stores_in_fold && next < op.layers_.size()) {
    op.PlanFold(op.layers_[next].folds.front());
  }
}

void AttentionOp::PrefillNode(ggml_tensor*, int part, int, void* userdata) {
  const Layer& layer = *static_cast<const Layer*>(userdata);
  AttentionScratch& scratch = *layer.op->scratch_;
  if (part == 0 && layer.folds.empty()) layer.op->ClearFillers(layer);
  for (size_t i = 0; i < scratch.num_tiles; ++i) scratch.tiles[i].attention.Run(part);
}

void AttentionOp::MassNode(ggml_tensor*, int part, int, void* layer) {
  AttentionScratch& scratch = *static_cast<Layer*>(layer)->op->scratch_;
  for (size_t i = 0; i < scratch.num_tiles; ++i) {
    if (scratch.tiles[i].has_mass) scratch.tiles[i].attention.Mass(part);
  }
}

}  // namespace ebb

#include "src/step/device/backend_attention.h"

#include <algorithm>
#include <numbers>

#include "src/base/page_units.h"
#include "src/device/row_transfers.h"

namespace ebb {
namespace {

// Copies the sinks' logits of a kv head's query heads to a tensor of their own, because backends
// such as Vulkan bind buffers only at aligned offsets, and a view may begin at an unaligned one.
ggml_tensor* SinksOf(ggml_context* ctx, ggml_tensor* sinks, int64_t kv_head, int64_t group) {
  return ggml_cont(ctx, ggml_view_1d(ctx, sinks, group, kv_head * group * sizeof(float)));
}

}  // namespace

BackendAttention::BackendAttention(const LoadedModel& model, ggml_tensor* rows,
                                   const OwnNodes& own_nodes, const CompressedFormat& compressed,
                                   const std::vector<BackendSequence>& sequences,
                                   const Wanted& wanted, BackendTensors* tensors)
    : model_(model),
      rows_(rows),
      own_nodes_(own_nodes),
      compressed_(compressed),
      sequences_(sequences),
      wanted_(wanted),
      tensors_(tensors),
      first_head_(1, 0),
      stored_(model.hparams.num_layers) {
  for (const int heads : model.hparams.kv_heads) first_head_.push_back(first_head_.back() + heads);
}

int64_t BackendAttention::FirstMassArray(BackendSequence::Mass mass, int layer) const {
  switch (mass) {
    case BackendSequence::Mass::kNone:
      return 0;
    case BackendSequence::Mass::kPerLayer:
      return layer;
    case BackendSequence::Mass::kPerKvHead:
      return FirstHead(layer);
    case BackendSequence::Mass::kPerQueryHead:
      break;
  }
  return int64_t{layer} * model_.hparams.num_q_heads;
}

int BackendAttention::NodesPerLayer(const LoadedModel& model,
                                    std::span<const BackendSequence> sequences, int num_followers) {
  const std::vector<int>& kv_heads = model.hparams.kv_heads;
  const int most_group = model.hparams.num_q_heads / std::ranges::min(kv_heads);
  const bool has_sinks = std::ranges::any_of(
      model.layers, [](const LayerWeights& layer) { return layer.sinks != nullptr; });
  constexpr int kOfLayer = 24, kOfFollower = 6;
  // Bound the nodes of one sequence in a layer, by what attention uses: ebb's own nodes, flash or
  // eager attention, the host's part, mass, rows of T2, and products for a selector. Gathering,
  // masks and views are counted.
  constexpr int kOwn = 20, kFlash = 28, kEager = 36, kHost = 16, kMass = 16, kCompressed = 32,
                kRanks = 20;
  // With sinks, each kv head may need its own softmax or flash attention.
  constexpr int kSinksOfHead = 16;
  int nodes = kOfLayer + kOfFollower * num_followers;
  for (const BackendSequence& sequence : sequences) {
    nodes += sequence.by_row_attention ? kOwn : sequence.is_eager ? kEager : kFlash;
    if (sequence.adds_host && sequence.is_eager) nodes += kHost;
    if (sequence.num_compressed > 0) nodes += kCompressed;
    if (sequence.ranks.num_pages > 0) nodes += kRanks;
    if (has_sinks) nodes += kSinksOfHead * std::ranges::max(kv_heads);
    // Mass takes a view and a sum for each query head.
    if (sequence.mass != BackendSequence::Mass::kNone) nodes += kMass + 2 * most_group;
  }
  return nodes;
}

ggml_tensor* BackendAttention::Attend(ggml_context* ctx, ggml_cgraph* graph,
                                      const AttentionCall& call) {
  const int layer = call.layer;
  ggml_tensor *const q = call.q, *const k = call.k, *const v = call.v;
  ggml_tensor* const k_before_rope = call.k_before_rope;
  const int64_t num_tokens = q->ne[2];
  const int64_t head_dim = q->ne[0], heads = model_.hparams.kv_heads[layer];
  const auto keep = [&](bool is_wanted, ggml_tensor* heads_of_tokens,
                        std::vector<ggml_tensor*>* kept) {
    if (!is_wanted) return;
    ggml_tensor* copy = ggml_cont(ctx, heads_of_tokens);
    ggml_set_output(copy);
    ggml_build_forward_expand(graph, copy);
    kept->push_back(copy);
  };
  keep(wanted_.queries, q, &tensors_->q);
  keep(wanted_.keys && k != nullptr, k, &tensors_->k);
  keep(wanted_.values && v != nullptr, v, &tensors_->v);
  keep(k_before_rope != nullptr, k_before_rope, &tensors_->k_before_rope);

  const auto new_rows_of = [&](int follower) {
    return ggml_view_1d(
        ctx, tensors_->new_rows, heads * num_tokens,
        FirstHead(layer) * num_tokens * sizeof(int32_t) + follower * tensors_->new_rows->nb[1]);
  };
  // A row's value is a fixed number of rows after its key, so that the same list finds it, or is
  // part of the key.
  const bool has_values = model_.hparams.has_values;
  ggml_tensor* value_rows =
      ggml_view_2d(ctx, rows_, rows_->ne[0], rows_->ne[1] - int64_t{kRowsPerPage}, rows_->nb[1],
                   kRowsPerPage * rows_->nb[1]);
  const auto store = [&](ggml_tensor* to, ggml_tensor* from) {
    ggml_tensor* stored = nullptr;
    ggml_tensor* flat = ggml_is_contiguous(from)
                            ? ggml_reshape_2d(ctx, from, head_dim, heads * num_tokens)
                            : ggml_cont_2d(ctx, from, head_dim, heads * num_tokens);
    for (int i = wanted_.num_followers; i >= 0; --i) {
      stored = ggml_set_rows(ctx, to, flat, new_rows_of(i));
      ggml_build_forward_expand(graph, stored);
    }
    return stored;
  };
  reads_again_ = k == nullptr;
  if (k != nullptr) {
    stored_[layer].keys = store(rows_, k);
    stored_[layer].values = has_values ? store(value_rows, v) : stored_[layer].keys;
  }
  ggml_tensor *const keys = stored_[layer].keys, *const values = stored_[layer].values;
  // Computes queries before any node that waits for rows.
  ggml_build_forward_expand(graph, q);
  for (size_t i = 0; i < sequences_.size(); ++i) AddProductsOfRanks(ctx, graph, layer, i, q);
  tensors_->cuts.push_back(ggml_graph_n_nodes(graph));
  std::vector<RowAttentionNodes> own(sequences_.size());
  std::vector<EagerNodes> eager(sequences_.size());
  if (std::ranges::any_of(sequences_, &BackendSequence::adds_host)) {
    // First adds the nodes that do not wait for the host's result.
    for (size_t i = 0; i < sequences_.size(); ++i) {
      if (sequences_[i].by_row_attention) {
        own[i] = AddFoldAndMerge(ctx, i, call, keys, values);
        ggml_build_forward_expand(graph, own[i].fold);
      } else if (sequences_[i].adds_host) {
        eager[i] = AddLogits(ctx, graph, layer, i, q, keys, values);
      }
    }
    tensors_->cuts.push_back(ggml_graph_n_nodes(graph));
  }
  ggml_tensor* all = nullptr;
  for (size_t i = 0; i < sequences_.size(); ++i) {
    ggml_tensor* out = nullptr;
    if (sequences_[i].by_row_attention) {
      if (own[i].merge == nullptr) own[i] = AddFoldAndMerge(ctx, i, call, keys, values);
      out = TakeMerged(ctx, graph, layer, i, own[i]);
    } else if (sequences_[i].is_eager) {
      if (eager[i].logits == nullptr) {
        eager[i] = AddLogits(ctx, graph, layer, i, q, keys, values);
      }
      out = AttendEagerly(ctx, graph, layer, i, eager[i], call.sinks);
    } else {
      out = AttendByFlash(ctx, graph, layer, i, call, keys, values);
    }
    all = all == nullptr ? out : ggml_concat(ctx, all, out, 1);
    // Expands the graph here, so that the memory is free before the next sequence takes as much.
    ggml_build_forward_expand(graph, all);
  }
  ++attention_;
  return all;
}

void BackendAttention::AddProductsOfRanks(ggml_context* ctx, ggml_cgraph* graph, int layer,
                                          size_t index, ggml_tensor* q) const {
  const BackendSequence& sequence = sequences_[index];
  if (sequence.ranks.num_pages == 0) return;
  const BackendTensors::OfSequence& tensors = tensors_->sequences[index];
  ggml_tensor* all = tensors.rank_vectors;
  ggml_tensor* vectors =
      ggml_view_3d(ctx, all, all->ne[0], all->ne[1], model_.hparams.kv_heads[layer], all->nb[1],
                   all->nb[2], static_cast<size_t>(FirstHead(layer)) * all->nb[2]);
  ggml_tensor* queries =
      ggml_view_2d(ctx, q, q->ne[0], q->ne[1], q->nb[1], sequence.first_token * q->nb[2]);
  AddRankProducts(ctx, graph, sequence.ranks, sequence.rank_scale, vectors, queries,
                  tensors.rank_products);
}

ggml_tensor* BackendAttention::ListOf(ggml_context* ctx, int layer, size_t index) const {
  const BackendSequence& sequence = sequences_[index];
  const int64_t of_head = sequence.num_pages > 0 ? sequence.num_pages : sequence.num_rows;
  return ggml_view_1d(ctx, tensors_->sequences[index].lists,
                      model_.hparams.kv_heads[layer] * of_head,
                      FirstHead(layer) * of_head * static_cast<int64_t>(sizeof(int32_t)));
}

ggml_tensor* BackendAttention::Gather(ggml_context* ctx, int layer, size_t index,
                                      ggml_tensor* rows) const {
  if (sequences_[index].num_pages > 0) return GatherPages(ctx, layer, index, rows);
  const int64_t heads = model_.hparams.kv_heads[layer];
  const int64_t num_rows = sequences_[index].num_rows;
  ggml_tensor* found =
      AsHalves(ctx, ggml_get_rows(ctx, AsIntegers(ctx, rows), ListOf(ctx, layer, index)));
  return HeadsOf(ctx, index, found, num_rows, heads, heads * found->nb[1], found->nb[1]);
}

// Gathers whole pages. In a page, all keys are contiguous, and so are all values.
ggml_tensor* BackendAttention::GatherPages(ggml_context* ctx, int layer, size_t index,
                                           ggml_tensor* rows) const {
  const int64_t heads = model_.hparams.kv_heads[layer];
  const int64_t num_rows = sequences_[index].num_rows;
  ggml_tensor* integers = AsIntegers(ctx, rows);
  const int64_t of_row = integers->ne[0];
  ggml_tensor* pages =
      ggml_view_2d(ctx, integers, of_row * kRowsPerPage, integers->ne[1] / kRowsPerPage,
                   integers->nb[1] * kRowsPerPage, 0);
  ggml_tensor* found = ggml_get_rows(ctx, pages, ListOf(ctx, layer, index));
  ggml_tensor* halves = AsHalves(ctx, ggml_reshape_2d(ctx, found, of_row, num_rows * heads));
  return HeadsOf(ctx, index, halves, num_rows, heads, halves->nb[1], num_rows * halves->nb[1]);
}

CompressedInputs BackendAttention::CompressedInputsOf(ggml_context* ctx, int layer,
                                                      size_t index) const {
  const BackendSequence& sequence = sequences_[index];
  const BackendTensors::OfSequence& tensors = tensors_->sequences[index];
  const int64_t heads = model_.hparams.kv_heads[layer], before = FirstHead(layer);
  const auto part = [&](ggml_tensor* of, int64_t of_head) {
    return ggml_view_1d(ctx, of, heads * of_head,
                        static_cast<size_t>(before * of_head) * of->nb[0]);
  };
  const auto [first, step] = sequence.groups[layer];
  const int64_t lists = step == 0 ? 1 : heads, num_rows = sequence.num_compressed;
  return {
      .rows = rows_,
      .pages = part(tensors.compressed_pages, sequence.num_compressed_pages),
      .slots = ggml_view_1d(ctx, tensors.compressed_slots, lists * num_rows,
                            static_cast<size_t>(first * num_rows) * sizeof(int32_t)),
      .counts = tensors.compressed_counts == nullptr ? nullptr : part(tensors.compressed_counts, 1),
      .centres = part(tensors.centres, model_.hparams.head_dim)};
}

int BackendAttention::CompressedSlotStride(int layer, size_t index) const {
  return sequences_[index].groups[layer].second * sequences_[index].num_compressed;
}

GatheredRows BackendAttention::GatherAll(ggml_context* ctx, int layer, size_t index,
                                         ggml_tensor* keys, ggml_tensor* values) {
  const BackendSequence& sequence = sequences_[index];
  if (sequence.num_compressed == 0) {
    return {.keys = Gather(ctx, layer, index, keys), .values = Gather(ctx, layer, index, values)};
  }
  if (compressed_.in_ggml_blocks) return GatherAllByGgml(ctx, layer, index, keys, values);
  const int64_t heads = model_.hparams.kv_heads[layer];
  UnpackRows& unpack = unpack_rows_.emplace_back();
  static_cast<DeviceOp&>(unpack) = own_nodes_.unpack_rows;
  unpack.kv_heads = static_cast<int>(heads);
  unpack.num_rows = sequence.num_rows;
  unpack.num_pages = sequence.num_pages;
  unpack.num_compressed = sequence.num_compressed;
  unpack.num_compressed_pages = sequence.num_compressed_pages;
  unpack.slot_stride = CompressedSlotStride(layer, index);
  unpack.format = own_nodes_.records;
  ggml_tensor* all = AddUnpackRows(ctx, &unpack, ListOf(ctx, layer, index),
                                   CompressedInputsOf(ctx, layer, index), keys, values);
  const int64_t num_rows = sequence.NumKeys();
  const auto side = [&](size_t number) {
    ggml_tensor* rows =
        ggml_view_2d(ctx, all, all->ne[0], num_rows * heads, all->nb[1], number * all->nb[3]);
    return HeadsOf(ctx, index, rows, num_rows, heads, all->nb[1], all->nb[2]);
  };
  return {.keys = side(0), .values = side(1)};
}

GatheredRows BackendAttention::GatherAllByGgml(ggml_context* ctx, int layer, size_t index,
                                               ggml_tensor* keys, ggml_tensor* values) const {
  const BackendSequence& sequence = sequences_[index];
  const CompressedInputs inputs = CompressedInputsOf(ctx, layer, index);
  return AppendGgmlRows(
      ctx, {.keys = Gather(ctx, layer, index, keys), .values = Gather(ctx, layer, index, values)},
      {.format = compressed_,
       .kv_heads = model_.hparams.kv_heads[layer],
       .num_pages = sequence.num_compressed_pages,
       .num_rows = sequence.num_compressed,
       .slot_stride = CompressedSlotStride(layer, index),
       .rows = rows_,
       .pages = inputs.pages,
       .slots = inputs.slots,
       .centres = inputs.centres,
       .rotation = tensors_->rotation});
}

// Returns `rows` with the kv heads in the dimension where flash attention wants them: in dimension
// 2 if all heads share a mask, in dimension 3 if each has its own.
ggml_tensor* BackendAttention::HeadsOf(ggml_context* ctx, size_t index, ggml_tensor* rows,
                                       int64_t num_rows, int64_t heads, size_t row_stride,
                                       size_t head_stride) const {
  if (sequences_[index].is_uniform) {
    return ggml_view_4d(ctx, rows, rows->ne[0], num_rows, heads, 1, row_stride, head_stride,
                        heads * head_stride, 0);
  }
  return ggml_view_4d(ctx, rows, rows->ne[0], num_rows, 1, heads, row_stride, num_rows * row_stride,
                      head_stride, 0);
}

ggml_tensor* BackendAttention::Mask(ggml_context* ctx, int layer, size_t index) const {
  const BackendSequence& sequence = sequences_[index];
  ggml_tensor* mask = tensors_->sequences[index].mask;
  if (mask == nullptr) return nullptr;
  const size_t row = sequence.NumKeys() * sizeof(ggml_fp16_t), plane = sequence.num_tokens * row;
  if (sequence.is_uniform) {
    return ggml_view_2d(ctx, mask, sequence.NumKeys(), sequence.num_tokens, row, 0);
  }
  return ggml_view_4d(ctx, mask, sequence.NumKeys(), sequence.num_tokens, 1,
                      model_.hparams.kv_heads[layer], row, plane, plane, FirstHead(layer) * plane);
}

ggml_tensor* BackendAttention::QueriesOf(ggml_context* ctx, int layer, size_t index,
                                         ggml_tensor* q) const {
  const BackendSequence& sequence = sequences_[index];
  const int64_t head_dim = q->ne[0], num_q = q->ne[1], tokens = sequence.num_tokens;
  const int64_t heads = model_.hparams.kv_heads[layer], group = num_q / heads;
  const size_t first = sequence.first_token * q->nb[2];
  if (sequence.is_uniform) {
    return ggml_view_3d(ctx, q, head_dim, tokens, num_q, q->nb[2], q->nb[1], first);
  }
  return ggml_view_4d(ctx, q, head_dim, tokens, group, heads, q->nb[2], q->nb[1], group * q->nb[1],
                      first);
}

// Adds flash attention. ggml's operation takes one sink for each head in dimension 2, but none for
// heads in dimension 3: with sinks, each kv head of dimension 3 gets an operation of its own.
ggml_tensor* BackendAttention::FlashAttention(ggml_context* ctx, ggml_tensor* queries,
                                              ggml_tensor* keys, ggml_tensor* values,
                                              ggml_tensor* mask, ggml_tensor* sinks) const {
  const auto attend = [&](ggml_tensor* q, ggml_tensor* k, ggml_tensor* v, ggml_tensor* m) {
    ggml_tensor* out = ggml_flash_attn_ext(ctx, q, k, v, m, Scale(), 0.0f, SoftCap());
    ggml_prec_set_acc(out, GGML_PREC_F32);
    return out;
  };
  const int64_t heads = queries->ne[3];
  if (sinks == nullptr || heads == 1) {
    ggml_tensor* out = attend(queries, keys, values, mask);
    if (sinks != nullptr) ggml_flash_attn_ext_add_sinks(out, sinks);
    return out;
  }
  ggml_tensor* all = nullptr;
  for (int64_t head = 0; head < heads; ++head) {
    const auto part = [&](ggml_tensor* of) {
      return ggml_view_3d(ctx, of, of->ne[0], of->ne[1], of->ne[2], of->nb[1], of->nb[2],
                          head * of->nb[3]);
    };
    ggml_tensor* out = attend(part(queries), part(keys), part(values), part(mask));
    ggml_flash_attn_ext_add_sinks(out, SinksOf(ctx, sinks, head, queries->ne[2]));
    all = all == nullptr ? out : ggml_concat(ctx, all, out, 3);
  }
  return all;
}

ggml_tensor* BackendAttention::LogitsOf(ggml_context* ctx, ggml_tensor* keys,
                                        ggml_tensor* queries) const {
  ggml_tensor* logits = ggml_mul_mat(ctx, keys, queries);
  ggml_prec_set_acc(logits, GGML_PREC_F32);
  if (SoftCap() == 0) return logits;
  return ggml_tanh(ctx, ggml_scale(ctx, logits, Scale() / SoftCap()));
}

ggml_tensor* BackendAttention::SoftMax(ggml_context* ctx, ggml_tensor* logits, ggml_tensor* mask,
                                       ggml_tensor* sinks) const {
  const int64_t heads = logits->ne[3];
  if (sinks == nullptr || heads == 1) {
    ggml_tensor* weights = ggml_soft_max_ext(ctx, logits, mask, LogitScale(), 0.0f);
    if (sinks != nullptr) ggml_soft_max_add_sinks(weights, sinks);
    return weights;
  }
  ggml_tensor* all = nullptr;
  for (int64_t head = 0; head < heads; ++head) {
    const auto part = [&](ggml_tensor* of) {
      return ggml_view_3d(ctx, of, of->ne[0], of->ne[1], of->ne[2], of->nb[1], of->nb[2],
                          head * of->nb[3]);
    };
    ggml_tensor* weights = ggml_soft_max_ext(ctx, part(logits), part(mask), LogitScale(), 0.0f);
    ggml_soft_max_add_sinks(weights, SinksOf(ctx, sinks, head, logits->ne[2]));
    all = all == nullptr ? weights : ggml_concat(ctx, all, weights, 3);
  }
  return all;
}

ggml_tensor* BackendAttention::AttendByFlash(ggml_context* ctx, ggml_cgraph* graph, int layer,
                                             size_t index, const AttentionCall& call,
                                             ggml_tensor* keys, ggml_tensor* values) {
  const BackendSequence& sequence = sequences_[index];
  const int64_t head_dim = call.q->ne[0], num_q = call.q->ne[1], tokens = sequence.num_tokens;
  ggml_tensor* queries = QueriesOf(ctx, layer, index, call.q);
  const auto [k, v] = GatherAll(ctx, layer, index, keys, values);
  ggml_tensor* mask = Mask(ctx, layer, index);
  ggml_tensor* out = FlashAttention(ctx, queries, k, v, mask, call.sinks);
  ggml_build_forward_expand(graph, out);
  if (sequence.mass != BackendSequence::Mass::kNone) {
    ggml_tensor* weights = SoftMax(ctx, LogitsOf(ctx, k, queries), mask, call.sinks);
    KeepMassOfWeights(ctx, graph, layer, index, weights);
  }
  // `out` is [head_dim, group, tokens, heads] here.
  if (tokens > 1 && !sequence.is_uniform) {
    out = ggml_cont(ctx, ggml_permute(ctx, out, 0, 1, 3, 2));
  }
  return ggml_reshape_2d(ctx, out, head_dim * num_q, tokens);
}

BackendAttention::EagerNodes BackendAttention::AddLogits(ggml_context* ctx, ggml_cgraph* graph,
                                                         int layer, size_t index, ggml_tensor* q,
                                                         ggml_tensor* keys, ggml_tensor* values) {
  EagerNodes nodes;
  const auto [k, v] = GatherAll(ctx, layer, index, keys, values);
  nodes.logits = LogitsOf(ctx, k, QueriesOf(ctx, layer, index, q));
  nodes.values = ggml_cont(ctx, ggml_transpose(ctx, v));
  ggml_build_forward_expand(graph, nodes.logits);
  ggml_build_forward_expand(graph, nodes.values);
  return nodes;
}

// Computes a softmax over the device's rows and, in the last column, the host's log-sum. The row
// that the lists name for the last column gets weight zero. (All rows of the device are finite, so
// that zero times the row is zero.) If the host has no rows, its log-sum is so small that its
// weight is zero.
BackendAttention::SharedWeights BackendAttention::ShareSoftmax(ggml_context* ctx, int layer,
                                                               size_t index, ggml_tensor* logits,
                                                               ggml_tensor* sinks) {
  const BackendSequence& sequence = sequences_[index];
  ggml_tensor* host = tensors_->sequences[index].host;
  const int64_t num_q = model_.hparams.num_q_heads;
  const int64_t out_size = num_q * model_.hparams.head_dim, num_rows = sequence.NumKeys();
  const auto but_last = [&](ggml_tensor* of) {
    return ggml_view_4d(ctx, of, num_rows - 1, of->ne[1], of->ne[2], of->ne[3], of->nb[1],
                        of->nb[2], of->nb[3], 0);
  };
  // Converts the host's log-sum from base 2 to base e, and divides by the scale, as `logits` are
  // unscaled.
  ggml_tensor* log_sum = ggml_scale(ctx, ggml_view_1d(ctx, host, num_q, out_size * sizeof(float)),
                                    std::numbers::ln2_v<float> / LogitScale());
  log_sum = ggml_reshape_4d(ctx, log_sum, 1, 1, logits->ne[2], logits->ne[3]);
  ggml_tensor* all =
      SoftMax(ctx, ggml_concat(ctx, but_last(logits), log_sum, 0), Mask(ctx, layer, index), sinks);
  ggml_tensor* last =
      ggml_cont(ctx, ggml_view_4d(ctx, all, 1, 1, all->ne[2], all->ne[3], all->nb[1], all->nb[2],
                                  all->nb[3], (num_rows - 1) * sizeof(float)));
  ggml_tensor* zero = ggml_scale(ctx, last, 0.0f);
  return {.rows = ggml_concat(ctx, but_last(all), zero, 0), .host_part = last};
}

ggml_tensor* BackendAttention::AttendEagerly(ggml_context* ctx, ggml_cgraph* graph, int layer,
                                             size_t index, const EagerNodes& nodes,
                                             ggml_tensor* sinks) {
  const BackendSequence& sequence = sequences_[index];
  const int64_t head_dim = model_.hparams.head_dim, num_q = model_.hparams.num_q_heads;
  SharedWeights weights;
  if (sequence.adds_host) {
    weights = ShareSoftmax(ctx, layer, index, nodes.logits, sinks);
  } else {
    weights.rows = SoftMax(ctx, nodes.logits, Mask(ctx, layer, index), sinks);
  }
  KeepMassOfWeights(ctx, graph, layer, index, weights.rows);
  // `out` is [head_dim, tokens, ...] by head.
  ggml_tensor* out = ggml_mul_mat(ctx, nodes.values, weights.rows);
  ggml_prec_set_acc(out, GGML_PREC_F32);
  if (sequence.adds_host) {
    ggml_tensor* host = ggml_view_2d(ctx, tensors_->sequences[index].host, head_dim, num_q,
                                     head_dim * sizeof(float), 0);
    ggml_tensor* weight = ggml_reshape_2d(ctx, weights.host_part, 1, num_q);
    out = ggml_add(ctx, ggml_reshape_2d(ctx, out, head_dim, num_q), ggml_mul(ctx, host, weight));
    if (sequence.mass != BackendSequence::Mass::kNone) {
      KeepHostWeights(ctx, graph, index, weights.host_part);
    }
  } else if (sequence.num_tokens > 1) {
    out = ggml_cont(ctx, sequence.is_uniform ? ggml_permute(ctx, out, 0, 2, 1, 3)
                                             : ggml_permute(ctx, out, 0, 3, 1, 2));
  }
  return ggml_reshape_2d(ctx, out, head_dim * num_q, sequence.num_tokens);
}

RowAttentionNodes BackendAttention::AddFoldAndMerge(ggml_context* ctx, size_t index,
                                                    const AttentionCall& call, ggml_tensor* keys,
                                                    ggml_tensor* values) {
  const BackendSequence& sequence = sequences_[index];
  const int layer = call.layer;
  ggml_tensor* const q = call.q;
  const int64_t num_q = q->ne[1], heads = model_.hparams.kv_heads[layer];
  RowAttention& attention = row_attention_.emplace_back();
  static_cast<DeviceOp&>(attention) = own_nodes_.row_attention;
  attention.head_dim = static_cast<int>(q->ne[0]);
  attention.kv_heads = static_cast<int>(heads);
  attention.group = static_cast<int>(num_q / heads);
  attention.num_rows = sequence.num_rows;
  attention.num_pages = sequence.num_pages;
  attention.has_slots = sequence.num_groups > 0;
  attention.adds_host = sequence.adds_host;
  attention.mass = sequence.mass;
  attention.scale = Scale();
  attention.soft_cap = SoftCap();
  attention.has_sinks = call.sinks != nullptr;
  const BackendTensors::OfSequence& tensors = tensors_->sequences[index];
  ggml_tensor* slots = nullptr;
  if (attention.has_slots) {
    const auto [first, step] = sequence.groups[layer];
    attention.slot_stride = step * sequence.num_rows;
    const int64_t lists = step == 0 ? 1 : heads;
    slots = ggml_view_1d(ctx, tensors.slots, lists * sequence.num_rows,
                         size_t(first) * sequence.num_rows * sizeof(int32_t));
  }
  RowAttentionInputs inputs = {
      .q = ggml_view_2d(ctx, q, q->ne[0], num_q, q->nb[1], sequence.first_token * q->nb[2]),
      .rows = rows_,
      .list = ListOf(ctx, layer, index),
      .slots = slots,
      .counts = ggml_view_1d(ctx, tensors.counts, heads,
                             FirstHead(layer) * static_cast<int64_t>(sizeof(int32_t))),
      .host = tensors.host,
      .sinks = call.sinks,
      .mask = Mask(ctx, layer, index)};
  if (sequence.num_compressed > 0) {
    CompressedFold& fold = compressed_folds_.emplace_back();
    static_cast<RowFold&>(fold) = attention;
    static_cast<DeviceOp&>(fold) = own_nodes_.compressed_fold;
    fold.num_rows = sequence.num_compressed;
    fold.num_pages = sequence.num_compressed_pages;
    fold.slot_stride = CompressedSlotStride(layer, index);
    fold.format = own_nodes_.records;
    attention.compressed = &fold;
    const CompressedInputs compressed = CompressedInputsOf(ctx, layer, index);
    inputs.compressed_fold = AddCompressedFold(ctx, &fold, inputs.q, compressed);
    inputs.compressed_counts = compressed.counts;
  }
  return AddRowAttention(ctx, &attention, inputs, keys, values);
}

ggml_tensor* BackendAttention::TakeMerged(ggml_context* ctx, ggml_cgraph* graph, int layer,
                                          size_t index, const RowAttentionNodes& nodes) {
  const RowAttention& attention = *nodes.attention;
  ggml_build_forward_expand(graph, nodes.merge);
  const auto part = [&](int64_t size, size_t first) {
    return ggml_view_1d(ctx, nodes.merge, size, first * sizeof(float));
  };
  if (attention.MassArrays() > 0) {
    KeepMass(ctx, graph, layer, index,
             part(int64_t{attention.RowsOfMass()} * attention.MassArrays(),
                  attention.OutSize() + attention.q_heads()));
    if (attention.adds_host) {
      KeepHostWeights(ctx, graph, index, part(attention.q_heads(), attention.OutSize()));
    }
  }
  return ggml_view_2d(ctx, nodes.merge, static_cast<int64_t>(attention.OutSize()), 1,
                      attention.OutSize() * sizeof(float), 0);
}

void BackendAttention::KeepMassOfWeights(ggml_context* ctx, ggml_cgraph* graph, int layer,
                                         size_t index, ggml_tensor* weights) {
  const BackendSequence& sequence = sequences_[index];
  if (sequence.mass == BackendSequence::Mass::kNone) return;
  const int64_t heads = model_.hparams.kv_heads[layer], group = model_.hparams.num_q_heads / heads;
  const int64_t num_rows = weights->ne[0];
  ggml_tensor* mass = ggml_reshape_4d(ctx, weights, num_rows, weights->ne[1], group, heads);
  if (mass->ne[1] > 1) {
    // Sums the mass over the tokens.
    ggml_tensor* by_token = ggml_cont(ctx, ggml_permute(ctx, mass, 1, 0, 2, 3));
    mass = ggml_reshape_4d(ctx, ggml_sum_rows(ctx, by_token), num_rows, 1, group, heads);
  }
  if (sequence.mass == BackendSequence::Mass::kPerKvHead) {
    ggml_tensor* sum = nullptr;
    for (int64_t i = 0; i < group; ++i) {
      ggml_tensor* one = ggml_view_4d(ctx, mass, num_rows, 1, 1, heads, mass->nb[1], mass->nb[2],
                                      mass->nb[3], i * mass->nb[2]);
      sum = sum == nullptr ? one : ggml_add(ctx, sum, one);
    }
    mass = sum;
  }
  KeepMass(ctx, graph, layer, index, mass);
}

void BackendAttention::KeepMass(ggml_context* ctx, ggml_cgraph* graph, int layer, size_t index,
                                ggml_tensor* mass) {
  ggml_tensor* all = tensors_->sequences[index].mass;
  const int64_t first = FirstMassArray(sequences_[index].mass, layer);
  ggml_tensor* kept = ggml_view_1d(ctx, all, ggml_nelements(mass), first * all->nb[1]);
  if (reads_again_) {
    mass = ggml_add(ctx, ggml_reshape_1d(ctx, ggml_cont(ctx, mass), ggml_nelements(mass)), kept);
  }
  ggml_build_forward_expand(graph, ggml_cpy(ctx, mass, kept));
}

void BackendAttention::KeepHostWeights(ggml_context* ctx, ggml_cgraph* graph, size_t index,
                                       ggml_tensor* weights) {
  ggml_tensor* all = tensors_->sequences[index].host_weights;
  ggml_build_forward_expand(graph, ggml_cpy(ctx, weights,
                                            ggml_view_1d(ctx, all, ggml_nelements(weights),
                                                         size_t(attention_) * all->nb[1])));
}

size_t DeviceStepBytes(const ModelShape& shape, const DeviceStepSizes& sizes) {
  constexpr size_t kStep = kRowsOfDeviceStep, kF16 = sizeof(ggml_fp16_t);
  const size_t rows = (sizes.num_rows + kStep - 1) / kStep * kStep;
  const size_t streams = shape.NumStreams(), planes = sizes.is_uniform ? 1 : streams;
  const size_t keys = rows * shape.num_kv_heads * shape.head_dim * kF16;
  const size_t tokens = std::max<size_t>(sizes.prompt_tokens, 1);
  const auto mask_rows = [&](size_t tokens) { return tokens * planes + kMaskPaddingTokens; };
  const size_t masks =
      kF16 * rows * std::max(mask_rows(tokens), sizes.num_sequences * mask_rows(1));
  const size_t lists = sizeof(int32_t) * rows * streams * sizes.num_sequences * kKeptDeviceGraphs;
  const size_t eager =
      sizes.is_eager ? sizeof(float) * rows * tokens * shape.num_q_heads + keys : 0;
  return 2 * keys + masks + lists + eager;
}

}  // namespace ebb

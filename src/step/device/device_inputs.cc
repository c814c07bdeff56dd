#include "src/step/device/device_inputs.h"

#include <algorithm>

namespace ebb {
namespace {

// kHidden hides a row in a mask: its weight in a softmax is 0. Minus infinity would give NaN where
// it is multiplied by 0.
constexpr float kHidden = -60000.0f;

}  // namespace

// Uploads the places of the step's new rows, by layer, token and kv head. For a missing follower,
// or one that lacks a token's position, the list names the sequence's own row again.
void DeviceInputs::SetNewRows(const StepWork& work, const DeviceGraph& graph) {
  const std::vector<int>& kv_heads = model_.hparams.kv_heads;
  const size_t num_tokens = work.tokens.size();
  const auto size =
      static_cast<size_t>(graph.attention->FirstHead(model_.hparams.num_layers)) * num_tokens;
  const auto number_of = [&](const RowsView& view, Slot slot) {
    return device_->RowNumber(view.pages[slot.page()]) + static_cast<int32_t>(slot.row());
  };
  new_rows_.resize(size * (1 + graph.shape.wanted.num_followers));
  size_t first = 0;
  for (int layer = 0; layer < model_.hparams.num_layers; ++layer) {
    const int heads = kv_heads[layer];
    for (const SequenceStep& sequence : work.sequences) {
      for (int head = 0; head < heads; ++head) {
        const auto set = [&](size_t list, int token, int32_t number) {
          const size_t of_token = first + size_t(sequence.first_token + token) * heads;
          new_rows_[list * size + of_token + head] = number;
        };
        const RowsView view = sequence.cache->views().View(layer, head);
        const auto slots = view.slots.last(sequence.num_tokens());
        for (int token = 0; token < sequence.num_tokens(); ++token) {
          const int32_t own = number_of(view, slots[token]);
          for (int list = 0; list <= graph.shape.wanted.num_followers; ++list)
            set(list, token, own);
        }
        for (size_t i = 0; i < sequence.followers.size(); ++i) {
          const RowsView followers = sequence.followers[i].cache->views().View(layer, head);
          const auto begin = std::ranges::lower_bound(followers.positions, sequence.first);
          for (size_t row = begin - followers.positions.begin(); row < followers.size(); ++row) {
            const int token = followers.positions[row] - sequence.first;
            if (token >= sequence.num_tokens()) break;
            set(1 + i, token, number_of(followers, followers.slots[row]));
          }
        }
      }
    }
    first += heads * num_tokens;
  }
  device_->Upload<int32_t>(new_rows_, 0, graph.tensors.new_rows);
}

template <typename NumRows>
void DeviceInputs::UploadCounts(const NumRows& num_rows, std::vector<int32_t>* counts,
                                ggml_tensor* to) const {
  counts->clear();
  ForEachStream(
      [&](int layer, int head) { counts->push_back(static_cast<int32_t>(num_rows(layer, head))); });
  device_->Upload<int32_t>(*counts, 0, to);
}

void DeviceInputs::SetSlots(const SequenceStep& sequence, size_t index, DeviceGraph* graph) {
  if (graph->shape.sequences[index].num_groups == 0) return;
  PageLists& lists = *graph->lists[index].pages;
  slot_changes_.clear();
  lists.UpdateSlots(*sequence.cache, &slot_changes_);
  for (const PageLists::Change& change : slot_changes_) {
    device_->Upload(lists.Slots().subspan(change.begin, change.end - change.begin), change.begin,
                    graph->tensors.sequences[index].slots);
  }
}

void DeviceInputs::SetCompressed(const SequenceStep& sequence, size_t index, DeviceGraph* graph) {
  if (graph->shape.sequences[index].num_compressed == 0) return;
  const SequenceCache& cache = *sequence.cache;
  CompressedLists& lists = *graph->lists[index].compressed;
  const BackendTensors::OfSequence& tensors = graph->tensors.sequences[index];
  const CompressedLists::Changes changes = lists.Update(cache, *device_);
  if (changes.pages) device_->Upload(lists.Pages(), 0, tensors.compressed_pages);
  if (changes.slots) device_->Upload(lists.Slots(), 0, tensors.compressed_slots);
  if (changes.centres) device_->Upload(lists.Centres(), 0, tensors.centres);
  if (tensors.compressed_counts == nullptr) return;
  UploadCounts([&](int layer, int head) { return cache.views().Compressed(layer, head).size(); },
               &compressed_counts_[index], tensors.compressed_counts);
}

void DeviceInputs::SetRankVectors(const SequenceStep& sequence, size_t index, DeviceGraph* graph) {
  if (graph->shape.sequences[index].ranks.num_pages == 0) return;
  RankMirror& mirror = graph->lists[index].ranks->mirror;
  ggml_tensor* const tensor = graph->tensors.sequences[index].rank_vectors;
  const std::span<const uint16_t> vectors = mirror.Vectors();
  rank_changes_.clear();
  if (mirror.Update(dynamic_cast<const RankVectors&>(*sequence.selector), sequence.cache->layout(),
                    &rank_changes_)) {
    device_->Upload(vectors, 0, tensor);
  }
  const size_t stride = mirror.StreamSize() * sizeof(uint16_t);
  for (const RankMirror::Change& change : rank_changes_) {
    ggml_backend_tensor_set_2d_async(device_->backend(), tensor, vectors.data() + change.offset,
                                     change.offset * sizeof(uint16_t),
                                     change.size * sizeof(uint16_t), change.num_streams, stride,
                                     stride);
  }
}

// Uploads the changes in one copy if they are the same in all layers, as they mostly are.
void DeviceInputs::SetLists(const SequenceStep& sequence, DeviceGraph* graph) {
  const size_t index = graph->IndexOf(sequence);
  const std::vector<int>& kv_heads = model_.hparams.kv_heads;
  const auto num_layers = static_cast<int>(kv_heads.size());
  ggml_tensor* const tensor = graph->tensors.sequences[index].lists;
  if (graph->lists[index].pages.has_value()) {
    PageLists& lists = *graph->lists[index].pages;
    bool is_changed = false;
    for (int layer = 0; layer < num_layers; ++layer) {
      is_changed |= lists.UpdatePages(*sequence.cache, *device_, layer);
    }
    if (!is_changed) return;
    device_->Upload(lists.Pages(), 0, tensor);
    return;
  }
  RowLists& lists = *graph->lists[index].rows;
  const size_t num_rows = graph->shape.sequences[index].num_rows;
  lists.Begin();
  std::vector<RowLists::Change> changes;
  for (int layer = 0; layer < num_layers; ++layer) {
    changes.push_back(lists.Update(*sequence.cache, *device_, layer));
  }
  lists.End();
  const bool are_alike = std::ranges::count(changes, changes[0]) == std::ssize(changes) &&
                         std::ranges::count(kv_heads, kv_heads[0]) == std::ssize(kv_heads);
  if (are_alike) {
    if (changes[0].end <= changes[0].begin) return;
    const size_t row_bytes = kv_heads[0] * sizeof(int32_t), layer_bytes = num_rows * row_bytes;
    const size_t offset = changes[0].begin * row_bytes;
    ggml_backend_tensor_set_2d_async(
        device_->backend(), tensor,
        reinterpret_cast<const std::byte*>(lists.OfLayer(0).data()) + offset, offset,
        (changes[0].end - changes[0].begin) * row_bytes, num_layers, layer_bytes, layer_bytes);
    return;
  }
  for (int layer = 0; layer < num_layers; ++layer) {
    UploadRows(index, layer, changes[layer], *graph);
  }
}

void DeviceInputs::SetListOfLayer(const SequenceStep& sequence, int layer, bool reads_again,
                                  DeviceGraph* graph) {
  const size_t index = graph->IndexOf(sequence);
  DeviceGraph::Lists& lists = graph->lists[index];
  if (lists.rows.has_value()) {
    UploadRows(index, layer,
               reads_again ? lists.rows->Rename(*sequence.cache, *device_, layer)
                           : lists.rows->Update(*sequence.cache, *device_, layer),
               *graph);
    return;
  }
  if (!lists.pages->UpdatePages(*sequence.cache, *device_, layer)) return;
  const std::span<const int32_t> pages = lists.pages->PagesOfLayer(layer);
  device_->Upload(pages, pages.data() - lists.pages->Pages().data(),
                  graph->tensors.sequences[index].lists);
}

void DeviceInputs::UploadRows(size_t index, int layer, const RowLists::Change& change,
                              const DeviceGraph& graph) const {
  if (change.end <= change.begin) return;
  const std::span<const int32_t> list = graph.lists[index].rows->OfLayer(layer);
  const size_t heads = model_.hparams.kv_heads[layer];
  const size_t num_rows = graph.shape.sequences[index].num_rows;
  const size_t first = static_cast<size_t>(graph.attention->FirstHead(layer)) * num_rows;
  const size_t begin = change.begin * heads;
  device_->Upload(list.subspan(begin, (change.end - change.begin) * heads), first + begin,
                  graph.tensors.sequences[index].lists);
}

void DeviceInputs::FillMask(const SequenceStep& sequence, const BackendSequence& shape, int layer,
                            int kv_head, ggml_fp16_t* mask) {
  const RowsView rows = RowsOnDevice(*sequence.cache, layer, kv_head);
  const int group = sequence.cache->layout().GroupOf(layer, kv_head);
  std::span<const uint32_t> compressed;  // rows of T2; their columns follow the others
  if (shape.num_compressed > 0) {
    compressed = sequence.cache->tables().Of(group).CompressedIndices();
  }
  const std::span<const Position> positions = sequence.cache->positions(group);
  const ggml_fp16_t hidden = ggml_fp32_to_fp16(kHidden), seen = ggml_fp32_to_fp16(0.0f);
  const bool all_see = rows.window == 0 && rows.last_visible.empty();
  for (int token = 0; token < shape.num_tokens; ++token) {
    ggml_fp16_t* const row = mask + size_t(token) * shape.NumKeys();
    const size_t end = rows.slots.size() - (shape.num_tokens - 1 - token);
    std::fill_n(row, end, seen);
    std::fill(row + end, row + shape.NumKeys(), hidden);
    std::fill_n(row + shape.num_rows, compressed.size(), seen);
    if (shape.is_eager && shape.adds_host) row[shape.NumKeys() - 1] = seen;  // the host's
    if (all_see) continue;
    const Position query = sequence.first + token;
    for (size_t i = 0; i < end; ++i) {
      if (query > rows.LastVisible(i)) row[i] = hidden;
    }
    for (size_t i = 0; i < compressed.size() && rows.window > 0; ++i) {
      if (query >= positions[compressed[i]] + rows.window) row[shape.num_rows + i] = hidden;
    }
  }
}

int64_t DeviceInputs::HideOthers(std::span<const RowRange> ranges, size_t num_rows,
                                 ggml_fp16_t* mask) {
  if (ranges.empty()) return 0;
  int64_t num_hidden = 0;
  size_t begin = 0;
  const auto hide_to = [&](size_t end) {
    std::fill(mask + begin, mask + end, ggml_fp32_to_fp16(kHidden));
    num_hidden += static_cast<int64_t>(end - begin);
  };
  for (const RowRange& range : ranges) {
    hide_to(range.begin);
    begin = range.end;
  }
  hide_to(num_rows);
  return num_hidden;
}

void DeviceInputs::SetMask(const SequenceStep& sequence, size_t index, const DeviceGraph& graph) {
  const BackendSequence& shape = graph.shape.sequences[index];
  std::vector<ggml_fp16_t>& mask = masks_[index];
  ggml_tensor* const tensor = graph.tensors.sequences[index].mask;
  const size_t num_rows = shape.NumKeys();
  mask.resize(static_cast<size_t>(ggml_nelements(tensor)) - kMaskPaddingTokens * num_rows);
  if (shape.is_uniform) {
    FillMask(sequence, shape, 0, 0, mask.data());
  } else {
    ggml_fp16_t* next = mask.data();
    ForEachStream([&](int layer, int head) {
      FillMask(sequence, shape, layer, head, next);
      next += shape.num_tokens * num_rows;
    });
  }
  device_->Upload<ggml_fp16_t>(mask, 0, tensor);
}

std::span<ggml_fp16_t> DeviceInputs::MasksOfLayer(size_t index, int layer,
                                                  const DeviceGraph& graph) {
  const size_t num_rows = graph.shape.sequences[index].NumKeys();
  return std::span(masks_[index])
      .subspan(graph.attention->FirstHead(layer) * num_rows,
               model_.hparams.kv_heads[layer] * num_rows);
}

void DeviceInputs::UploadMasks(size_t index, int layer, const DeviceGraph& graph) {
  const std::span<const ggml_fp16_t> masks = MasksOfLayer(index, layer, graph);
  device_->Upload(masks, masks.data() - masks_[index].data(), graph.tensors.sequences[index].mask);
}

void DeviceInputs::Set(const StepWork& work, DeviceGraph* graph) {
  graph->graph.inputs->Set(work.tokens, work.rope_positions, work.output_rows);
  SetNewRows(work, *graph);
  masks_.resize(work.sequences.size());
  counts_.resize(work.sequences.size());
  compressed_counts_.resize(work.sequences.size());
  for (const SequenceStep& sequence : work.sequences) {
    const size_t index = graph->IndexOf(sequence);
    if (graph->shape.sequences[index].has_mask) SetMask(sequence, index, *graph);
    if (graph->shape.sequences[index].by_row_attention) {
      UploadCounts(
          [&](int layer, int head) {
            return RowsOnDevice(*sequence.cache, layer, head).slots.size();
          },
          &counts_[index], graph->tensors.sequences[index].counts);
    }
    SetSlots(sequence, index, graph);
    SetCompressed(sequence, index, graph);
    SetRankVectors(sequence, index, graph);
  }
}

}  // namespace ebb

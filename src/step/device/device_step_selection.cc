// The rows that selectors choose in a step on the device.
#include <algorithm>
#include <chrono>
#include <span>

#include "src/step/device/device_step.h"

namespace ebb {

void DeviceStep::FetchQueries(const StepWork& work, int attention, const Graph& graph) {
  const size_t size = size_t(model_.hparams.num_q_heads) * model_.hparams.head_dim;
  queries_.resize(work.sequences.size());
  rank_products_.resize(work.sequences.size());
  for (size_t i = 0; i < work.sequences.size(); ++i) {
    const SequenceStep& sequence = work.sequences[i];
    if (sequence.selector == nullptr) continue;
    queries_[i].resize(size);
    ggml_backend_tensor_get_async(device_->backend(), graph.tensors.q[attention],
                                  queries_[i].data(), sequence.first_token * size * sizeof(float),
                                  size * sizeof(float));
    const size_t index = IndexOf(graph, sequence);
    rank_products_[i].clear();
    if (graph.shape.sequences[index].ranks.num_pages == 0) continue;
    const ggml_tensor* const products = graph.tensors.sequences[index].rank_products;
    rank_products_[i].resize(static_cast<size_t>(ggml_nelements(products)));
    ggml_backend_tensor_get_async(device_->backend(), products, rank_products_[i].data(), 0,
                                  rank_products_[i].size() * sizeof(float));
  }
  ggml_backend_synchronize(device_->backend());
}

void DeviceStep::Choose(const SequenceStep& sequence, const BackendSequence& shape, int layer,
                        int head, std::span<const float> queries, std::span<const float> products,
                        Choice* choice) const {
  choice->ranges.clear();
  choice->foreseen.clear();
  if (products.empty()) {
    sequence.selector->Rank(layer, head, queries, 0, 1);
  } else {
    TakeRankProducts(shape.ranks, products, model_.hparams.num_q_heads, layer, head,
                     model_.hparams.kv_heads[layer], dynamic_cast<RankVectors*>(sequence.selector));
  }
  sequence.selector->Select(layer, head, queries, &choice->ranges);
  sequence.selector->Foresee(layer, head, &choice->foreseen);
}

int64_t DeviceStep::HideOthers(std::span<const RowRange> ranges, size_t num_rows,
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

void DeviceStep::SelectRows(const SequenceStep& sequence, size_t number, const StagedStep& staged,
                            int attention, Graph* graph) {
  const auto start = std::chrono::steady_clock::now();
  const std::span<const float> queries = queries_[number], products = rank_products_[number];
  const int layer = model_.shape.LayerRead(attention);
  const size_t heads = model_.hparams.kv_heads[layer];
  const size_t of_head = queries.size() / heads;
  const size_t index = IndexOf(*graph, sequence);
  const size_t num_rows = graph->shape.sequences[index].NumKeys();
  const size_t first = graph->attention->FirstHead(layer) * num_rows;
  ggml_fp16_t* const mask = masks_[index].data() + first;
  if (choices_.size() < heads) choices_.resize(heads);
  for (size_t head = 0; head < heads; ++head) {
    const size_t num_ranges =
        sequence.cache->views().View(layer, static_cast<int>(head)).size() / 2;
    choices_[head].ranges.reserve(num_ranges + 1);
    choices_[head].foreseen.reserve(num_ranges + 1);
  }
  on_threads_([&](int part, int num_parts) {
    for (int head = part; head < static_cast<int>(heads); head += num_parts) {
      const BackendSequence& shape = graph->shape.sequences[index];
      FillMask(sequence, shape, layer, head, mask + head * num_rows);
      Choose(sequence, shape, layer, head, queries.subspan(head * of_head, of_head), products,
             &choices_[head]);
      const size_t visible = sequence.cache->views().View(layer, head).size();
      choices_[head].rows_unread =
          HideOthers(choices_[head].ranges, visible, mask + head * num_rows);
    }
  });
  staged.BeginSelection();
  staged.ClearAddresses(layer);
  for (int head = 0; head < static_cast<int>(heads); ++head) {
    staged.WantRows(layer, head, choices_[head].ranges);
    staged.ForeseeRows(layer, head, choices_[head].foreseen);
    *sequence.rows_unread += choices_[head].rows_unread;
  }
  staged.ReadWantedRows();
  select_seconds_ +=
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  ggml_backend_tensor_set_async(device_->backend(), graph->tensors.sequences[index].mask, mask,
                                first * sizeof(ggml_fp16_t),
                                heads * num_rows * sizeof(ggml_fp16_t));
}

}  // namespace ebb

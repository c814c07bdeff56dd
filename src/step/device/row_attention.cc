#include "src/step/device/row_attention.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <numbers>
#include <vector>

#include "ggml-cpu.h"
#include "ggml.h"
#include "src/base/page_units.h"
#include "src/step/device/host_fold.h"

namespace ebb {
namespace {

static_assert(kRowsOfPage == kRowsPerPage);

// Source gives the indices of the fold node's source tensors.
enum Source { kQ, kRows, kList, kCounts, kMask, kSlots };

// Returns the dot product. Several partial sums let the compiler use vector instructions.
float Dot(const float* a, const float* b, int size) {
  constexpr int kSums = 16;
  std::array<float, kSums> sums = {};
  int d = 0;
  for (; d + kSums <= size; d += kSums) {
    for (int i = 0; i < kSums; ++i) sums[i] += a[d + i] * b[d + i];
  }
  float sum = 0;
  for (const float part : sums) sum += part;
  for (; d < size; ++d) sum += a[d] * b[d];
  return sum;
}

// HalfRows gives HostFold access to rows in F16, which the fold node's source tensors list.
class HalfRows {
 public:
  HalfRows(const RowAttention& attention, const ggml_tensor* node)
      : attention_(attention),
        q_(node->src[kQ]),
        rows_(static_cast<const ggml_fp16_t*>(node->src[kRows]->data)),
        list_(static_cast<const int32_t*>(node->src[kList]->data)),
        counts_(static_cast<const int32_t*>(node->src[kCounts]->data)),
        slots_(attention.has_slots ? static_cast<const int32_t*>(node->src[kSlots]->data)
                                   : nullptr),
        mask_(node->src[kMask] == node->src[kCounts] ? nullptr : node->src[kMask]),
        row_(attention.head_dim) {}

  // Returns the number of rows of a kv head, as HostFold asks for it.
  [[nodiscard]] int Count(int head) const { return counts_[head]; }
  void BeginSplit(int /*head*/) {}
  void Logits(int head, int row, float* logits) {
    const int size = attention_.head_dim, group = attention_.group;
    if (IsHidden(head, row)) {
      std::fill_n(logits, group, kHiddenLogit);
      return;
    }
    ggml_fp16_to_fp32_row(Key(head, row), row_.data(), size);
    for (int i = 0; i < group; ++i) {
      const auto* q = reinterpret_cast<const float*>(static_cast<const std::byte*>(q_->data) +
                                                     (head * group + i) * q_->nb[1]);
      logits[i] = LogitOf(attention_, Dot(q, row_.data(), size));
    }
  }
  const float* Value(int head, int row) {
    const int size = attention_.head_dim;
    ggml_fp16_to_fp32_row(Key(head, row) + size_t{kRowsOfPage} * size, row_.data(), size);
    return row_.data();
  }
  void EndSplit(int /*head*/, float /*weight*/, float* /*sum*/) {}

 private:
  [[nodiscard]] const ggml_fp16_t* Key(int head, int row) const {
    int64_t number = 0;
    if (attention_.num_pages > 0) {
      const int slot = slots_ == nullptr ? row : slots_[head * attention_.slot_stride + row];
      const int page = list_[head * attention_.num_pages + slot / kRowsOfPage];
      number = int64_t{page} * kRowsOfPage + slot % kRowsOfPage;
    } else {
      number = list_[size_t(row) * attention_.kv_heads + head];
    }
    return rows_ + number * attention_.head_dim;
  }
  [[nodiscard]] bool IsHidden(int head, int row) const {
    if (mask_ == nullptr) return false;
    const auto* plane = reinterpret_cast<const ggml_fp16_t*>(
        static_cast<const std::byte*>(mask_->data) + (mask_->ne[3] == 1 ? 0 : head * mask_->nb[3]));
    return ggml_fp16_to_fp32(plane[row]) < 0;
  }

  const RowAttention& attention_;
  const ggml_tensor* const q_;
  const ggml_fp16_t* const rows_;
  const int32_t *const list_, *const counts_, *const slots_;
  const ggml_tensor* const mask_;
  std::vector<float> row_;
};

void FoldOnHost(ggml_tensor* node, int thread, int num_threads, void* data) {
  const auto& attention = *static_cast<const RowAttention*>(data);
  HalfRows rows(attention, node);
  HostFold(attention, node, &rows).Run(thread, num_threads);
}

// Folded points to the parts of a fold's result, and to the lengths of its lists.
struct Folded {
  Folded(const RowFold& fold, const ggml_tensor* node, const ggml_tensor* counts_node)
      : num_splits(fold.NumSplits()),
        num_rows(fold.num_rows),
        sums(static_cast<const float*>(node->data)),
        weights(sums + fold.SumsSize()),
        logits(weights + fold.WeightsSize()),
        counts(static_cast<const int32_t*>(counts_node->data)) {}
  const int num_splits, num_rows;
  const float *sums, *weights, *logits;
  const int32_t* counts;
};

// HostMerge computes the merge node on the processor. The node's sources are a fold and its counts,
// then, if they exist, the second fold with its counts, the host's part, and sinks.
class HostMerge {
 public:
  HostMerge(const RowAttention& attention, ggml_tensor* node)
      : attention_(attention), out_(static_cast<float*>(node->data)) {
    int next = 2;
    folds_.emplace_back(attention, node->src[0], node->src[1]);
    if (attention.compressed != nullptr) {
      folds_.emplace_back(*attention.compressed, node->src[2], node->src[3]);
      next += 2;
    }
    if (attention.adds_host) host_ = static_cast<const float*>(node->src[next++]->data);
    if (attention.has_sinks) sinks_ = static_cast<const float*>(node->src[next]->data);
  }

  void Run() {
    for (int head = 0; head < attention_.q_heads(); ++head) MergeHead(head);
    if (attention_.mass != RowAttention::Mass::kNone) AddMass();
  }

 private:
  void MergeHead(size_t head) {
    const size_t heads = attention_.q_heads(), size = attention_.head_dim;
    const float of_host = host_ == nullptr ? kHiddenLogit : host_[heads * size + head];
    const float sink =
        sinks_ == nullptr ? kHiddenLogit : sinks_[head] * std::numbers::log2e_v<float>;
    float largest = std::max(of_host, sink), sum = 0;
    for (const Folded& fold : folds_) {
      for (int split = 0; split < fold.num_splits; ++split) {
        largest = std::max(largest, fold.weights[(split * heads + head) * 2]);
      }
    }
    float* const out = out_ + head * size;
    std::fill_n(out, size, 0.0f);
    if (of_host != kHiddenLogit) {
      sum = std::exp2(of_host - largest);
      for (size_t d = 0; d < size; ++d) out[d] = sum * host_[head * size + d];
    }
    if (sink != kHiddenLogit) sum += std::exp2(sink - largest);
    for (const Folded& fold : folds_) {
      for (int split = 0; split < fold.num_splits; ++split) {
        const float* const pair = fold.weights + (split * heads + head) * 2;
        if (pair[0] == kHiddenLogit && pair[1] == 0) continue;
        const float factor = std::exp2(pair[0] - largest);
        sum += pair[1] * factor;
        const float* const of_split = fold.sums + (split * heads + head) * size;
        for (size_t d = 0; d < size; ++d) out[d] += factor * of_split[d];
      }
    }
    if (sum != 0) {
      for (size_t d = 0; d < size; ++d) out[d] /= sum;
    }
    out_[attention_.OutSize() + head] = largest + std::log2(sum);
  }

  void AddMass() {
    const size_t heads = attention_.q_heads(), rows = attention_.RowsOfMass();
    const size_t of_array = heads / attention_.MassArrays();  // query heads per mass array
    const float* const log_sums = out_ + attention_.OutSize();
    float* const mass = out_ + attention_.OutSize() + heads;
    std::fill_n(mass, attention_.MassArrays() * rows, 0.0f);
    for (size_t head = 0; head < heads; ++head) {
      float* to = mass + head / of_array * rows;
      for (const Folded& fold : folds_) {
        const float* const logits = fold.logits + head * fold.num_rows;
        for (int row = 0; row < fold.counts[head / attention_.group]; ++row) {
          to[row] += std::exp2(logits[row] - log_sums[head]);
        }
        to += fold.num_rows;
      }
    }
  }

  const RowAttention& attention_;
  float* const out_;
  std::vector<Folded> folds_;
  const float *host_ = nullptr, *sinks_ = nullptr;
};

void MergeOnHost(ggml_tensor* node, int thread, int, void* data) {
  if (thread != 0) return;
  HostMerge(*static_cast<const RowAttention*>(data), node).Run();
}

}  // namespace

RowAttentionNodes AddRowAttention(ggml_context* context, const RowAttention* attention,
                                  const RowAttentionInputs& inputs, ggml_tensor* after,
                                  ggml_tensor* after_too) {
  assert(inputs.q->type == GGML_TYPE_F32 && inputs.q->nb[0] == sizeof(float));
  assert(inputs.rows->type == GGML_TYPE_F16 && ggml_is_contiguous(inputs.rows));
  assert(attention->has_slots == (inputs.slots != nullptr));
  // A node's sources must be contiguous, so that the tensor of counts replaces each missing one.
  const auto or_counts = [&](ggml_tensor* tensor) {
    return tensor == nullptr ? inputs.counts : tensor;
  };
  std::array<ggml_tensor*, 8> sources = {inputs.q,
                                         inputs.rows,
                                         inputs.list,
                                         inputs.counts,
                                         or_counts(inputs.mask),
                                         or_counts(inputs.slots)};
  int num_sources = kSlots + 1;
  for (ggml_tensor* tensor : {after, after_too}) {
    if (tensor != nullptr) sources[num_sources++] = tensor;
  }
  void* const data = const_cast<RowAttention*>(attention);
  RowAttentionNodes nodes = {.attention = attention};
  nodes.fold =
      ggml_custom_4d(context, GGML_TYPE_F32, static_cast<int64_t>(attention->FoldSize()), 1, 1, 1,
                     sources.data(), num_sources, FoldOnHost, GGML_N_TASKS_MAX, data);
  assert(attention->adds_host == (inputs.host != nullptr));
  assert(attention->has_sinks == (inputs.sinks != nullptr));
  assert((attention->compressed != nullptr) == (inputs.compressed_fold != nullptr));
  std::array<ggml_tensor*, 6> folded = {nodes.fold, inputs.counts};
  int num_folded = 2;
  for (ggml_tensor* tensor :
       {inputs.compressed_fold, inputs.compressed_counts, inputs.host, inputs.sinks}) {
    if (tensor != nullptr) folded[num_folded++] = tensor;
  }
  nodes.merge = ggml_custom_4d(context, GGML_TYPE_F32, static_cast<int64_t>(attention->MergeSize()),
                               1, 1, 1, folded.data(), num_folded, MergeOnHost, 1, data);
  return nodes;
}

#ifndef EBB_HAS_CUDA_KERNELS
bool CudaRowAttentionTakes(int, int) { return false; }
decltype(DeviceOp::launch) CudaRowAttention() { return nullptr; }
#endif

}  // namespace ebb

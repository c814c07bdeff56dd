// CUDA kernels of the nodes of row_attention.h.
//
// A team of lanes of a warp reads a row, each lane 16 bytes of it. A team reads kTile rows at a
// time, and all queries of a kv head share one read of a row.
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "ggml.h"
#include "src/step/device/fold_softmax.cuh"
#include "src/step/device/row_attention.h"

namespace ebb {
namespace {

constexpr int kThreads = 128;
constexpr int kTile = 4;       // rows that a team loads at once
constexpr int kHalves = 8;     // F16 numbers in the 16 bytes of a lane
constexpr int kMostGroup = 8;  // queries of a block; larger groups are divided evenly

struct FoldArguments {
  const float* q;
  size_t q_stride;  // distance of query heads, in floats
  const __half* rows;
  const int32_t* list;
  const int32_t* counts;
  const int32_t* slots;
  const __half* mask;
  size_t mask_stride;  // distance of kv heads in the mask, in halves
  float *sums, *weights, *logits;
  int head_dim, kv_heads, group, num_rows, rows_of_split, num_pages, slot_stride;
  bool has_logits;
  float scale;
};

// Sets `numbers` to the numbers of the rows from `first` on; from `end` on, it repeats the last
// row's. Issues all loads of one kind before any result is needed.
__device__ inline void FindRows(const FoldArguments& a, int head, int first, int end,
                                int (&numbers)[kTile]) {
  int rows[kTile];
#pragma unroll
  for (int r = 0; r < kTile; ++r) rows[r] = min(first + r, end - 1);
  if (a.num_pages == 0) {
#pragma unroll
    for (int r = 0; r < kTile; ++r) numbers[r] = a.list[int64_t{rows[r]} * a.kv_heads + head];
    return;
  }
  if (a.slots != nullptr) {
    const int32_t* const slots = a.slots + int64_t{head} * a.slot_stride;
#pragma unroll
    for (int r = 0; r < kTile; ++r) rows[r] = slots[rows[r]];
  }
  const int32_t* const pages = a.list + head * a.num_pages;
#pragma unroll
  for (int r = 0; r < kTile; ++r) numbers[r] = pages[unsigned(rows[r]) / kRowsOfPage];
#pragma unroll
  for (int r = 0; r < kTile; ++r) {
    numbers[r] = numbers[r] * kRowsOfPage + static_cast<int>(unsigned(rows[r]) % kRowsOfPage);
  }
}

__device__ inline void Unpack(const uint4& unit, float (&to)[kHalves]) {
  const auto* pairs = reinterpret_cast<const __half2*>(&unit);
#pragma unroll
  for (int i = 0; i < kHalves / 2; ++i) {
    const float2 pair = __half22float2(pairs[i]);
    to[2 * i] = pair.x;
    to[2 * i + 1] = pair.y;
  }
}

__device__ inline bool IsSeen(const FoldArguments& a, int head, int row) {
  return __half2float(a.mask[head * a.mask_stride + row]) >= 0.0f;
}

// Returns whether any team of the warp has a visible row in this round. If none has, nothing is
// read: selectors hide whole pages.
__device__ inline bool AnySeen(const FoldArguments& a, int head, int first, int end) {
  bool any = false;
#pragma unroll
  for (int r = 0; r < kTile; ++r) any |= first + r < end && IsSeen(a, head, first + r);
  return __any_sync(kAllLanes, any) != 0;
}

// Computes partial attention over splits of the rows. kLanes is the number of lanes of a row,
// kQueries the number of queries of a kv head that a block attends for. Grid: splits, then kv heads
// times the blocks for a kv head's queries.
template <int kLanes, int kQueries>
__global__ void __launch_bounds__(kThreads) Fold(const FoldArguments a) {
  constexpr int kTeams = kThreads / kLanes, kTeamsOfWarp = kWarp / kLanes;
  const int blocks_of_head = a.group / kQueries;
  const int head = blockIdx.y / blocks_of_head;
  const int first_query = head * a.group + blockIdx.y % blocks_of_head * kQueries;
  const int num_q = a.kv_heads * a.group;
  const int begin = blockIdx.x * a.rows_of_split;
  const int end = min(begin + a.rows_of_split, a.counts[head]);
  const int team = threadIdx.x / kLanes, lane = threadIdx.x % kLanes;
  float* const pairs = a.weights + (size_t(blockIdx.x) * num_q + first_query) * 2;
  if (begin >= end) {
    if (threadIdx.x < kQueries) {
      pairs[2 * threadIdx.x] = kHidden;
      pairs[2 * threadIdx.x + 1] = 0.0f;
    }
    return;
  }
  const bool has_unit = lane * kHalves < a.head_dim;
  float q[kQueries][kHalves], sum[kQueries][kHalves], largest[kQueries], weight[kQueries];
#pragma unroll
  for (int i = 0; i < kQueries; ++i) {
    largest[i] = kHidden;
    weight[i] = 0.0f;
#pragma unroll
    for (int j = 0; j < kHalves; ++j) {
      sum[i][j] = 0.0f;
      q[i][j] = has_unit
                    ? a.q[(first_query + i) * a.q_stride + lane * kHalves + j] * (a.scale * kLog2e)
                    : 0.0f;
    }
  }
  // All teams of a warp run the same number of rounds, because they shuffle together.
  const int first_of_warp = begin + threadIdx.x / kWarp * kTeamsOfWarp * kTile;
  for (int round = first_of_warp; round < end; round += kTeams * kTile) {
    const int first = round + team % kTeamsOfWarp * kTile;
    if (a.mask != nullptr && !AnySeen(a, head, first, end)) {
      for (int r = 0; a.has_logits && lane == 0 && r < kTile && first + r < end; ++r) {
        for (int i = 0; i < kQueries; ++i) {
          a.logits[size_t(first_query + i) * a.num_rows + first + r] = kHidden;
        }
      }
      continue;
    }
    int numbers[kTile];
    FindRows(a, head, first, end, numbers);
    uint4 keys[kTile], values[kTile];
    const int units = a.head_dim / kHalves;
#pragma unroll
    for (int r = 0; r < kTile; ++r) {
      const auto* key = reinterpret_cast<const uint4*>(a.rows + int64_t{numbers[r]} * a.head_dim);
      keys[r] = has_unit ? __ldg(key + lane) : uint4{};
      values[r] = has_unit ? __ldg(key + kRowsOfPage * units + lane) : uint4{};
    }
    float logits[kTile][kQueries];
#pragma unroll
    for (int r = 0; r < kTile; ++r) {
      float key[kHalves];
      Unpack(keys[r], key);
#pragma unroll
      for (int i = 0; i < kQueries; ++i) {
        float dot = 0.0f;
#pragma unroll
        for (int j = 0; j < kHalves; ++j) dot = fmaf(q[i][j], key[j], dot);
        logits[r][i] = dot;
      }
    }
#pragma unroll
    for (int distance = kLanes / 2; distance > 0; distance /= 2) {
#pragma unroll
      for (int r = 0; r < kTile; ++r) {
#pragma unroll
        for (int i = 0; i < kQueries; ++i) {
          logits[r][i] += __shfl_xor_sync(kAllLanes, logits[r][i], distance);
        }
      }
    }
#pragma unroll
    for (int r = 0; r < kTile; ++r) {
      const int row = first + r;
      const bool is_seen = row < end && (a.mask == nullptr || IsSeen(a, head, row));
#pragma unroll
      for (int i = 0; i < kQueries; ++i) {
        if (!is_seen) logits[r][i] = kHidden;
        if (a.has_logits && lane == 0 && row < end) {
          a.logits[size_t(first_query + i) * a.num_rows + row] = logits[r][i];
        }
      }
    }
    AddToSoftmax(logits, largest, weight, sum);
#pragma unroll
    for (int r = 0; r < kTile; ++r) {
      float value[kHalves];
      Unpack(values[r], value);
#pragma unroll
      for (int i = 0; i < kQueries; ++i) {
#pragma unroll
        for (int j = 0; j < kHalves; ++j) sum[i][j] = fmaf(logits[r][i], value[j], sum[i][j]);
      }
    }
  }

  __shared__ float all_largest[kTeams][kQueries], all_weights[kTeams][kQueries];
  __shared__ float all_sums[kTeams][kQueries][kLanes * kHalves];
#pragma unroll
  for (int i = 0; i < kQueries; ++i) {
    if (lane == 0) {
      all_largest[team][i] = largest[i];
      all_weights[team][i] = weight[i];
    }
#pragma unroll
    for (int j = 0; j < kHalves; ++j) all_sums[team][i][lane * kHalves + j] = sum[i][j];
  }
  __syncthreads();
  for (int at = threadIdx.x; at < kQueries * kLanes * kHalves; at += kThreads) {
    const int i = at / (kLanes * kHalves), d = at % (kLanes * kHalves);
    float most = kHidden, total = 0.0f, weights = 0.0f;
#pragma unroll
    for (int t = 0; t < kTeams; ++t) most = fmaxf(most, all_largest[t][i]);
#pragma unroll
    for (int t = 0; t < kTeams; ++t) {
      const float factor = Factor(all_largest[t][i], most);
      total = fmaf(factor, all_sums[t][i][d], total);
      weights = fmaf(factor, all_weights[t][i], weights);
    }
    if (d < a.head_dim) {
      a.sums[(size_t(blockIdx.x) * num_q + first_query + i) * a.head_dim + d] = total;
    }
    if (d == 0) {
      pairs[2 * i] = most;
      pairs[2 * i + 1] = weights;
    }
  }
}

// Folded points to the parts of a fold's result, and to the lengths of its lists.
struct Folded {
  const float *sums, *weights, *logits;
  const int32_t* counts;
  int num_splits, num_rows;
};

struct MergeArguments {
  Folded first, second;  // `second` is over rows of T2; without splits if none
  const float* host;     // null, or RowAttentionInputs::host
  float *out, *log_sums, *mass;
  int head_dim, q_heads, group;
  int heads_of_mass;  // query heads that share an array of mass
};

// Joins the splits of both folds; those of the second follow those of the first. A block computes
// one query head: threads in x take elements of the result, threads in y share the splits.
constexpr int kShares = 4;
__global__ void __launch_bounds__(kShares* kWarp* kHalves) Merge(const MergeArguments a) {
  extern __shared__ float shared[];
  const int num_first = a.first.num_splits, num_splits = num_first + a.second.num_splits;
  float* const factors = shared;                // [num_splits]
  float* const weights = factors + num_splits;  // [num_splits]
  float* const totals = weights + num_splits;   // [kShares, blockDim.x]
  const int head = blockIdx.x, d = threadIdx.x;
  for (int split = threadIdx.y * blockDim.x + d; split < num_splits;
       split += kShares * blockDim.x) {
    const float* const of_fold = split < num_first ? a.first.weights : a.second.weights;
    const int of = split < num_first ? split : split - num_first;
    const float* const pair = of_fold + (size_t(of) * a.q_heads + head) * 2;
    factors[split] = pair[0];
    weights[split] = pair[1];
  }
  __syncthreads();
  const float of_host = a.host == nullptr ? kHidden : a.host[a.q_heads * a.head_dim + head];
  float largest = of_host;
  for (int split = 0; split < num_splits; ++split) largest = fmaxf(largest, factors[split]);
  const float weight_of_host = Factor(of_host, largest);
  float weight = weight_of_host;
  for (int split = 0; split < num_splits; ++split) {
    weight = fmaf(weights[split], Factor(factors[split], largest), weight);
  }
  float total = 0.0f;
  if (d < a.head_dim) {
    if (of_host != kHidden && threadIdx.y == 0) {
      total = weight_of_host * a.host[size_t(head) * a.head_dim + d];
    }
#pragma unroll 4
    for (int split = threadIdx.y; split < num_splits; split += kShares) {
      const float factor = Factor(factors[split], largest);
      // The sums of a split without visible rows are NaN.
      if (factor == 0.0f) continue;
      const float* const of_fold = split < num_first ? a.first.sums : a.second.sums;
      const int of = split < num_first ? split : split - num_first;
      total = fmaf(factor, of_fold[(size_t(of) * a.q_heads + head) * a.head_dim + d], total);
    }
  }
  totals[threadIdx.y * blockDim.x + d] = total;
  __syncthreads();
  if (threadIdx.y != 0) return;
  if (d < a.head_dim) {
    for (int share = 1; share < kShares; ++share) total += totals[share * blockDim.x + d];
    a.out[size_t(head) * a.head_dim + d] = weight == 0.0f ? 0.0f : total / weight;
  }
  if (d == 0) a.log_sums[head] = largest + log2f(weight);
}

// Computes mass. A thread computes one row of an array, in which the rows of the second fold follow
// the rows of the first.
__global__ void Mass(const MergeArguments a) {
  const int place = blockIdx.x * blockDim.x + threadIdx.x;
  const int num_rows = a.first.num_rows + a.second.num_rows;
  if (place >= num_rows) return;
  const Folded& of = place < a.first.num_rows ? a.first : a.second;
  const int row = place < a.first.num_rows ? place : place - a.first.num_rows;
  const int first = blockIdx.y * a.heads_of_mass;
  float mass = 0.0f;
  for (int head = first; head < first + a.heads_of_mass; ++head) {
    if (row >= of.counts[head / a.group]) continue;
    mass += Factor(of.logits[size_t(head) * of.num_rows + row], a.log_sums[head]);
  }
  a.mass[size_t(blockIdx.y) * num_rows + place] = mass;
}

int QueriesOfBlock(int group) {
  int queries = group < kMostGroup ? group : kMostGroup;
  while (group % queries != 0) --queries;
  return queries;
}

template <int kLanes>
void LaunchFold(const FoldArguments& a, int num_splits, cudaStream_t stream) {
  const int queries = QueriesOfBlock(a.group);
  const dim3 grid(num_splits, a.kv_heads * (a.group / queries));
  switch (queries) {
    case 1:
      return Fold<kLanes, 1><<<grid, kThreads, 0, stream>>>(a);
    case 2:
      return Fold<kLanes, 2><<<grid, kThreads, 0, stream>>>(a);
    case 3:
      return Fold<kLanes, 3><<<grid, kThreads, 0, stream>>>(a);
    case 4:
      return Fold<kLanes, 4><<<grid, kThreads, 0, stream>>>(a);
    case 5:
      return Fold<kLanes, 5><<<grid, kThreads, 0, stream>>>(a);
    case 6:
      return Fold<kLanes, 6><<<grid, kThreads, 0, stream>>>(a);
    case 7:
      return Fold<kLanes, 7><<<grid, kThreads, 0, stream>>>(a);
    default:
      return Fold<kLanes, 8><<<grid, kThreads, 0, stream>>>(a);
  }
}

void LaunchFold(const RowAttention& attention, const ggml_tensor* node, cudaStream_t stream) {
  const ggml_tensor *q = node->src[0], *counts = node->src[3], *mask = node->src[4];
  auto* const sums = static_cast<float*>(node->data);
  float* const weights = sums + attention.SumsSize();
  const bool has_mask = mask != counts;
  const FoldArguments arguments = {
      .q = static_cast<const float*>(q->data),
      .q_stride = q->nb[1] / sizeof(float),
      .rows = static_cast<const __half*>(node->src[1]->data),
      .list = static_cast<const int32_t*>(node->src[2]->data),
      .counts = static_cast<const int32_t*>(counts->data),
      .slots = attention.has_slots ? static_cast<const int32_t*>(node->src[5]->data) : nullptr,
      .mask = has_mask ? static_cast<const __half*>(mask->data) : nullptr,
      .mask_stride = has_mask && mask->ne[3] > 1 ? mask->nb[3] / sizeof(__half) : 0,
      .sums = sums,
      .weights = weights,
      .logits = weights + attention.WeightsSize(),
      .head_dim = attention.head_dim,
      .kv_heads = attention.kv_heads,
      .group = attention.group,
      .num_rows = attention.num_rows,
      .rows_of_split = attention.RowsOfSplit(),
      .num_pages = attention.num_pages,
      .slot_stride = attention.slot_stride,
      .has_logits = attention.LogitsSize() > 0,
      .scale = attention.scale};
  const int units = attention.head_dim / kHalves, num_splits = attention.NumSplits();
  if (units <= 4) return LaunchFold<4>(arguments, num_splits, stream);
  if (units <= 8) return LaunchFold<8>(arguments, num_splits, stream);
  if (units <= 16) return LaunchFold<16>(arguments, num_splits, stream);
  LaunchFold<32>(arguments, num_splits, stream);
}

Folded FoldedOf(const RowFold& fold, const ggml_tensor* node, const ggml_tensor* counts) {
  const auto* sums = static_cast<const float*>(node->data);
  return {.sums = sums,
          .weights = sums + fold.SumsSize(),
          .logits = sums + fold.SumsSize() + fold.WeightsSize(),
          .counts = static_cast<const int32_t*>(counts->data),
          .num_splits = fold.NumSplits(),
          .num_rows = fold.num_rows};
}

void LaunchMerge(const RowAttention& attention, const ggml_tensor* node, cudaStream_t stream) {
  auto* const out = static_cast<float*>(node->data);
  float* const log_sums = out + attention.OutSize();
  MergeArguments arguments = {.first = FoldedOf(attention, node->src[0], node->src[1]),
                              .second = {},
                              .host = nullptr,
                              .out = out,
                              .log_sums = log_sums,
                              .mass = log_sums + attention.q_heads(),
                              .head_dim = attention.head_dim,
                              .q_heads = attention.q_heads(),
                              .group = attention.group,
                              .heads_of_mass = attention.MassArrays() == 0
                                                   ? 0
                                                   : attention.q_heads() / attention.MassArrays()};
  int next = 2;
  if (attention.compressed != nullptr) {
    arguments.second = FoldedOf(*attention.compressed, node->src[2], node->src[3]);
    next += 2;
  }
  if (attention.adds_host) arguments.host = static_cast<const float*>(node->src[next]->data);
  const int width = (attention.head_dim + kWarp - 1) / kWarp * kWarp;
  const int num_splits = arguments.first.num_splits + arguments.second.num_splits;
  const size_t shared = size_t(kShares) * width + 2 * size_t(num_splits);
  Merge<<<attention.q_heads(), dim3(width, kShares), shared * sizeof(float), stream>>>(arguments);
  if (attention.mass == RowAttention::Mass::kNone) return;
  const dim3 grid((attention.RowsOfMass() + kThreads - 1) / kThreads, attention.MassArrays());
  Mass<<<grid, kThreads, 0, stream>>>(arguments);
}

void Launch(const DeviceOp* op, const ggml_tensor* node, void* queue) {
  const auto& attention = *static_cast<const RowAttention*>(op);
  auto* const stream = static_cast<cudaStream_t>(queue);
  const bool is_fold = node->src[1]->type == GGML_TYPE_F16;  // a fold's source 1 are F16 rows
  if (is_fold) {
    LaunchFold(attention, node, stream);
  } else {
    LaunchMerge(attention, node, stream);
  }
  // A launch error is reported by the backend's next call of the CUDA driver.
}

}  // namespace

bool CudaRowAttentionTakes(int head_dim, int group) {
  return head_dim % kHalves == 0 && head_dim <= kWarp * kHalves && group > 0;
}

decltype(DeviceOp::launch) CudaRowAttention() { return Launch; }

}  // namespace ebb

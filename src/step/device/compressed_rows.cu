// CUDA kernels of the nodes of compressed_rows.h.
//
// A warp reads kTile records at a time; each lane reads every 32nd element of all of them. All
// queries of a kv head share one read of a record. Both the processor and these kernels decode
// elements by record_elements.h.
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "ggml.h"
#include "src/step/device/compressed_rows.h"
#include "src/step/device/fold_softmax.cuh"

namespace ebb {
namespace {

constexpr int kWarps = 4;  // warps of a block
constexpr int kThreads = kWarps * kWarp;
constexpr int kTile = 4;         // records that a warp loads at once
constexpr int kMostQueries = 8;  // queries that a block attends for
constexpr int kMostHeadDim = 256;

// Records locates the records of a layer.
struct Records {
  const uint8_t* rows;
  int64_t row_bytes;
  const int32_t *pages, *slots, *counts;
  const float* centres;
  RecordFormat format;
  int num_pages, slot_stride;

  __device__ const uint8_t* At(int head, int row) const {
    const int slot = slots[int64_t{head} * slot_stride + row];
    const int64_t page = pages[int64_t{head} * num_pages + slot / kRowsOfPage];
    return rows + page * row_bytes + int64_t{slot % kRowsOfPage} * format.stride;
  }
  __device__ const float* Centre(int head) const {
    return centres + int64_t{head} * format.head_dim;
  }
};

// Reads the node's source tensors in this order: rows, pages, slots, counts, centres.
Records RecordsOf(const RecordFormat& format, int num_pages, int slot_stride,
                  const ggml_tensor* const* sources) {
  return {.rows = static_cast<const uint8_t*>(sources[0]->data),
          .row_bytes = static_cast<int64_t>(sources[0]->nb[1]),
          .pages = static_cast<const int32_t*>(sources[1]->data),
          .slots = static_cast<const int32_t*>(sources[2]->data),
          .counts = static_cast<const int32_t*>(sources[3]->data),
          .centres = static_cast<const float*>(sources[4]->data),
          .format = format,
          .num_pages = num_pages,
          .slot_stride = slot_stride};
}

// Makes a lane's writes to shared memory visible to the other lanes of its warp.
struct WarpSync {
  __device__ void operator()() const { __syncwarp(); }
};

__device__ inline float SumOfWarp(float x) {
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    x += __shfl_xor_sync(kAllLanes, x, distance);
  }
  return x;
}

struct FoldArguments {
  Records records;
  const float* q;
  size_t q_stride;  // distance of query heads, in floats
  float *sums, *weights, *logits;
  int kv_heads, group, num_rows, rows_of_split;
  bool has_logits;
  float scale;
};

// Computes partial attention over splits of the compressed rows. kElements is the number of
// elements of a lane, for head sizes up to 32 times as many. kQueries is at least the number of
// queries that a block attends for. Grid: splits, then kv heads times the blocks for a kv head's
// queries.
template <RecordType kType, int kElements, int kQueries>
__global__ void __launch_bounds__(kThreads) FoldRecords(const FoldArguments a) {
  constexpr int kWidth = kElements * kWarp;
  __shared__ float queries[kQueries][kWidth];
  __shared__ float centre_dots[kQueries];
  __shared__ float all_sums[kWarps][kQueries][kWidth];
  __shared__ float all_largest[kWarps][kQueries], all_weights[kWarps][kQueries];
  const RecordFormat& format = a.records.format;
  const int head_dim = format.head_dim;
  const int blocks_of_head = (a.group + kQueries - 1) / kQueries;
  const int head = blockIdx.y / blocks_of_head;
  const int first_of_head = blockIdx.y % blocks_of_head * kQueries;
  const int num_queries = min(kQueries, a.group - first_of_head);
  const int first_query = head * a.group + first_of_head;
  const int num_q = a.kv_heads * a.group;
  const int begin = blockIdx.x * a.rows_of_split;
  const int end = min(begin + a.rows_of_split, a.records.counts[head]);
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  float* const pairs = a.weights + (size_t(blockIdx.x) * num_q + first_query) * 2;
  if (begin >= end) {
    if (threadIdx.x < num_queries) {
      pairs[2 * threadIdx.x] = kHidden;
      pairs[2 * threadIdx.x + 1] = 0.0f;
    }
    return;
  }

  // Each warp takes queries in turn: it computes their products with the centre, then rotates them.
  const float* const centre = a.records.Centre(head);
  for (int i = warp; i < kQueries; i += kWarps) {
    float dot = 0.0f;
    for (int d = lane; d < kWidth; d += kWarp) {
      const bool is_there = i < num_queries && d < head_dim;
      const float q =
          is_there ? a.q[(first_query + i) * a.q_stride + d] * (a.scale * kLog2e) : 0.0f;
      queries[i][d] = q;
      if (is_there) dot = fmaf(q, centre[d], dot);
    }
    dot = SumOfWarp(dot);
    if (lane == 0) centre_dots[i] = dot;
    if (format.is_rotated) RotateByLanes(queries[i], head_dim, lane, kWarp, WarpSync());
  }
  __syncthreads();

  float sum[kQueries][kElements], largest[kQueries], weight[kQueries];
#pragma unroll
  for (int i = 0; i < kQueries; ++i) {
    largest[i] = kHidden;
    weight[i] = 0.0f;
#pragma unroll
    for (int e = 0; e < kElements; ++e) sum[i][e] = 0.0f;
  }
  for (int first = begin + warp * kTile; first < end; first += kWarps * kTile) {
    const uint8_t* records[kTile];
    float elements[kTile][kElements];
#pragma unroll
    for (int r = 0; r < kTile; ++r) records[r] = a.records.At(head, min(first + r, end - 1));
#pragma unroll
    for (int r = 0; r < kTile; ++r) {
#pragma unroll
      for (int e = 0; e < kElements; ++e) {
        const int d = lane + e * kWarp;
        elements[r][e] = d < head_dim ? KeyElement<kType>(format, records[r], d) : 0.0f;
      }
    }
    float logits[kTile][kQueries];
#pragma unroll
    for (int r = 0; r < kTile; ++r) {
#pragma unroll
      for (int i = 0; i < kQueries; ++i) {
        float dot = 0.0f;
#pragma unroll
        for (int e = 0; e < kElements; ++e) {
          dot = fmaf(queries[i][lane + e * kWarp], elements[r][e], dot);
        }
        const bool is_there = first + r < end;
        dot = SumOfWarp(dot) + centre_dots[i];
        logits[r][i] = is_there ? dot : kHidden;
        if (a.has_logits && lane == 0 && is_there && i < num_queries) {
          a.logits[size_t(first_query + i) * a.num_rows + first + r] = dot;
        }
      }
    }
    AddToSoftmax(logits, largest, weight, sum);
#pragma unroll
    for (int r = 0; r < kTile; ++r) {
#pragma unroll
      for (int e = 0; e < kElements; ++e) {
        const int d = lane + e * kWarp;
        elements[r][e] = d < head_dim ? ValueElement<kType>(format, records[r], d) : 0.0f;
      }
#pragma unroll
      for (int i = 0; i < kQueries; ++i) {
#pragma unroll
        for (int e = 0; e < kElements; ++e) {
          sum[i][e] = fmaf(logits[r][i], elements[r][e], sum[i][e]);
        }
      }
    }
  }

#pragma unroll
  for (int i = 0; i < kQueries; ++i) {
    if (lane == 0) {
      all_largest[warp][i] = largest[i];
      all_weights[warp][i] = weight[i];
    }
#pragma unroll
    for (int e = 0; e < kElements; ++e) all_sums[warp][i][lane + e * kWarp] = sum[i][e];
  }
  __syncthreads();
  // Each warp takes queries in turn: it joins the sums of all warps in the place of the first
  // warp's.
  for (int i = warp; i < num_queries; i += kWarps) {
    float most = kHidden, weights = 0.0f, factors[kWarps];
#pragma unroll
    for (int w = 0; w < kWarps; ++w) most = fmaxf(most, all_largest[w][i]);
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      factors[w] = Factor(all_largest[w][i], most);
      weights = fmaf(factors[w], all_weights[w][i], weights);
    }
    float* const joined = all_sums[0][i];
    for (int d = lane; d < head_dim; d += kWarp) {
      float total = 0.0f;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) total = fmaf(factors[w], all_sums[w][i][d], total);
      joined[d] = total;
    }
    if (format.is_rotated) RotateByLanes(joined, head_dim, lane, kWarp, WarpSync());
    float* const to = a.sums + (size_t(blockIdx.x) * num_q + first_query + i) * head_dim;
    for (int d = lane; d < head_dim; d += kWarp) {
      // Without values, the sum is of keys less their centre, which is added here.
      to[d] = format.has_values ? joined[d] : fmaf(weights, centre[d], joined[d]);
    }
    if (lane == 0) {
      pairs[2 * i] = most;
      pairs[2 * i + 1] = weights;
    }
  }
}

template <RecordType kType, int kElements, int kQueries>
void LaunchFold(const FoldArguments& a, int num_splits, cudaStream_t stream) {
  const int blocks_of_head = (a.group + kQueries - 1) / kQueries;
  const dim3 grid(num_splits, a.kv_heads * blocks_of_head);
  FoldRecords<kType, kElements, kQueries><<<grid, kThreads, 0, stream>>>(a);
}

template <RecordType kType, int kElements>
void LaunchFold(const FoldArguments& a, int num_splits, cudaStream_t stream) {
  if (a.group <= 1) return LaunchFold<kType, kElements, 1>(a, num_splits, stream);
  if (a.group <= 2) return LaunchFold<kType, kElements, 2>(a, num_splits, stream);
  if (a.group <= 4) return LaunchFold<kType, kElements, 4>(a, num_splits, stream);
  LaunchFold<kType, kElements, kMostQueries>(a, num_splits, stream);
}

template <RecordType kType>
void LaunchFold(const FoldArguments& a, int num_splits, cudaStream_t stream) {
  const int head_dim = a.records.format.head_dim;
  if (head_dim <= kWarp) return LaunchFold<kType, 1>(a, num_splits, stream);
  if (head_dim <= 2 * kWarp) return LaunchFold<kType, 2>(a, num_splits, stream);
  if (head_dim <= 4 * kWarp) return LaunchFold<kType, 4>(a, num_splits, stream);
  LaunchFold<kType, kMostHeadDim / kWarp>(a, num_splits, stream);
}

void LaunchCompressedFold(const DeviceOp* op, const ggml_tensor* node, void* queue) {
  const auto& fold = *static_cast<const CompressedFold*>(op);
  const ggml_tensor* q = node->src[0];
  auto* const sums = static_cast<float*>(node->data);
  float* const weights = sums + fold.SumsSize();
  const FoldArguments arguments = {
      .records = RecordsOf(fold.format, fold.num_pages, fold.slot_stride, node->src + 1),
      .q = static_cast<const float*>(q->data),
      .q_stride = q->nb[1] / sizeof(float),
      .sums = sums,
      .weights = weights,
      .logits = weights + fold.WeightsSize(),
      .kv_heads = fold.kv_heads,
      .group = fold.group,
      .num_rows = fold.num_rows,
      .rows_of_split = fold.RowsOfSplit(),
      .has_logits = fold.LogitsSize() > 0,
      .scale = fold.scale};
  auto* const stream = static_cast<cudaStream_t>(queue);
  switch (fold.format.type) {
    case RecordType::kInt8:
      return LaunchFold<RecordType::kInt8>(arguments, fold.NumSplits(), stream);
    case RecordType::kInt4:
      return LaunchFold<RecordType::kInt4>(arguments, fold.NumSplits(), stream);
    case RecordType::kInt3:
      return LaunchFold<RecordType::kInt3>(arguments, fold.NumSplits(), stream);
  }
}

struct UnpackArguments {
  Records records;
  const __half* rows;
  const int32_t* list;
  __half* out;
  int kv_heads, num_rows, num_pages, num_compressed;
};

// Unpacks rows to F16. A warp takes one row of a kv head, full or compressed. Grid: rows, kv heads.
template <RecordType kType>
__global__ void __launch_bounds__(kThreads) Unpack(const UnpackArguments a) {
  __shared__ float of_warps[kWarps][kMostHeadDim];
  const RecordFormat& format = a.records.format;
  const int head_dim = format.head_dim, all_rows = a.num_rows + a.num_compressed;
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const int row = blockIdx.x * kWarps + warp, head = blockIdx.y;
  if (row >= all_rows) return;
  __half* const key = a.out + (int64_t{head} * all_rows + row) * head_dim;
  __half* const value = key + int64_t{a.kv_heads} * all_rows * head_dim;
  if (row < a.num_rows) {
    int64_t number = 0;
    if (a.num_pages > 0) {
      number =
          int64_t{a.list[head * a.num_pages + row / kRowsOfPage]} * kRowsOfPage + row % kRowsOfPage;
    } else {
      number = a.list[int64_t{row} * a.kv_heads + head];
    }
    const __half* const from = a.rows + number * head_dim;
    for (int d = lane; d < head_dim; d += kWarp) {
      key[d] = from[d];
      value[d] = from[int64_t{kRowsOfPage} * head_dim + d];
    }
    return;
  }
  const int index = row - a.num_rows;
  if (index >= a.records.counts[head]) {
    for (int d = lane; d < head_dim; d += kWarp) key[d] = value[d] = __float2half(0.0f);
    return;
  }
  const uint8_t* const record = a.records.At(head, index);
  const float* const centre = a.records.Centre(head);
  float* const x = of_warps[warp];
  for (int d = lane; d < head_dim; d += kWarp) x[d] = KeyElement<kType>(format, record, d);
  __syncwarp();
  if (format.is_rotated) RotateByLanes(x, head_dim, lane, kWarp, WarpSync());
  for (int d = lane; d < head_dim; d += kWarp) key[d] = __float2half(x[d] + centre[d]);
  __syncwarp();
  for (int d = lane; d < head_dim; d += kWarp) x[d] = ValueElement<kType>(format, record, d);
  __syncwarp();
  if (format.is_rotated) RotateByLanes(x, head_dim, lane, kWarp, WarpSync());
  for (int d = lane; d < head_dim; d += kWarp) value[d] = __float2half(x[d]);
}

void LaunchUnpack(const DeviceOp* op, const ggml_tensor* node, void* queue) {
  const auto& unpack = *static_cast<const UnpackRows*>(op);
  const UnpackArguments arguments = {
      .records =
          RecordsOf(unpack.format, unpack.num_compressed_pages, unpack.slot_stride, node->src + 1),
      .rows = static_cast<const __half*>(node->src[1]->data),
      .list = static_cast<const int32_t*>(node->src[0]->data),
      .out = static_cast<__half*>(node->data),
      .kv_heads = unpack.kv_heads,
      .num_rows = unpack.num_rows,
      .num_pages = unpack.num_pages,
      .num_compressed = unpack.num_compressed};
  const int all_rows = unpack.num_rows + unpack.num_compressed;
  const dim3 grid((all_rows + kWarps - 1) / kWarps, unpack.kv_heads);
  auto* const stream = static_cast<cudaStream_t>(queue);
  switch (unpack.format.type) {
    case RecordType::kInt8:
      return Unpack<RecordType::kInt8><<<grid, kThreads, 0, stream>>>(arguments);
    case RecordType::kInt4:
      return Unpack<RecordType::kInt4><<<grid, kThreads, 0, stream>>>(arguments);
    case RecordType::kInt3:
      return Unpack<RecordType::kInt3><<<grid, kThreads, 0, stream>>>(arguments);
  }
}

}  // namespace

decltype(DeviceOp::launch) CudaCompressedFold() { return LaunchCompressedFold; }
decltype(DeviceOp::launch) CudaUnpackRows() { return LaunchUnpack; }

}  // namespace ebb

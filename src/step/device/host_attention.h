// HostAttention attends on the host's threads to rows that lie in the host's memory, for a device
// that attends to the others: rows of T1 that a step reads in place, and rows of a T2 on the host.
// Its result is one more split for a merge (row_attention.h), or one more column for a softmax
// (backend_attention.h).
//
// Thread safety: one caller at a time.
#ifndef EBB_STEP_DEVICE_HOST_ATTENTION_H_
#define EBB_STEP_DEVICE_HOST_ATTENTION_H_

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "ebb/status.h"
#include "src/attention/attention.h"
#include "src/attention/decode.h"
#include "src/step/step_work.h"

namespace ebb {

class HostAttention {
 public:
  // Calls work(part, num_parts) once for each part.
  using OnThreads = std::function<void(const std::function<void(int part, int num_parts)>& work)>;
  // REQUIRES: `shape` has the most kv heads of any layer; the kernel outlives this.
  HostAttention(const AttentionKernel& kernel, const AttentionShape& shape, int threads,
                OnThreads on_threads);

  // Returns whether a step of the sequence reads rows on the host.
  [[nodiscard]] static bool IsFor(const SequenceCache& cache) {
    return cache.views().ReadsInPlace() || HasCompressedRows(cache);
  }
  // Returns whether the sequence has rows of T2 in the host's memory.
  [[nodiscard]] static bool HasCompressedRows(const SequenceCache& cache) {
    return cache.views().HasCompressedRows() && !cache.views().CompressedOnDevice();
  }
  // Query is one token of a sequence.
  struct Query {
    const SequenceStep* sequence = nullptr;
    const float* q = nullptr;  // [num_q_heads, head_dim]
    // Gets the attention, [num_q_heads, head_dim], then, [num_q_heads], log2 of the sum of 2^logit,
    // with logits to base 2. A head without a row here gets zeros and minus infinity.
    float* result = nullptr;
  };
  // Returns the number of floats of a Query's result.
  [[nodiscard]] static size_t ResultSize(const AttentionShape& shape) {
    return size_t(shape.num_q_heads) * (shape.format.head_dim + 1);
  }
  // Attends to the rows of a layer. May throw std::bad_alloc.
  void Attend(int layer, std::span<const Query> queries);
  // Adds the mass of the rows that the last Attend() attended to for its query `index`. weights:
  // [num_q_heads], what of the softmax over all rows is theirs.
  void AddMass(size_t index, std::span<const float> weights);

  // Names the kernel, the threads and the shape, which its speed depends on.
  [[nodiscard]] std::string Description() const;
  // Measures how many bytes of rows a second the host attends to. Errors: OutOfMemory.
  [[nodiscard]] Result<double> MeasureBytesPerSecond();

 private:
  void Run(std::span<const DecodeQuery> queries, size_t most_rows);
  // Returns how many rows the longest list of a kv head has.
  size_t FindRows(int layer, std::span<const Query> queries);
  void MakeMass(size_t index, size_t kv_heads, DecodeQuery* query);

  const std::string_view kernel_name_;
  const AttentionShape shape_;
  const int threads_;
  const OnThreads on_threads_;
  DecodeAttention attention_;
  int layer_ = 0;
  std::vector<Query> asked_;
  // List, [queries, kv heads], the rows of T1, none if the step does not read them in place, and
  // the rows of T2.
  std::vector<RowsView> rows_;
  std::vector<CompressedRows> compressed_;
  // Give, [queries, kv heads], the places of these rows in the mass of a query; rows of T1 come
  // first.
  std::vector<std::span<const uint32_t>> elements_, compressed_elements_;
  std::vector<DecodeQuery> queries_;
  // MassOfQuery is the mass of a query, by query head, as if only the rows on the host existed.
  struct MassOfQuery {
    std::vector<float> all;
    std::vector<float*> by_head;
    bool not_finite = false;
  };
  std::vector<MassOfQuery> mass_;
  std::vector<uint32_t> numbers_;  // 0, 1, ...
};

}  // namespace ebb

#endif  // EBB_STEP_DEVICE_HOST_ATTENTION_H_

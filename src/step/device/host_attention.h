// HostAttention attends on the host's threads to rows in the host's memory, while a device attends
// to its own rows: rows of T1 that a step reads in place, and rows of a T2 on the host. The device
// joins the result with its own, as an additional split of a merge (row_attention.h) or an
// additional column of a softmax (backend_attention.h).
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
#include "src/step/work/step_work.h"

namespace ebb {

class HostAttention {
 public:
  // Runs `work` on the engine's threads: calls work(part, num_parts) once for each part.
  using OnThreads = std::function<void(const std::function<void(int part, int num_parts)>& work)>;
  // Makes attention that runs `threads` parts by `on_threads`. REQUIRES: `shape` has the most kv
  // heads of any layer; the kernel outlives this.
  HostAttention(const AttentionKernel& kernel, const AttentionShape& shape, int threads,
                OnThreads on_threads);

  // Returns whether a step of the sequence attends to rows on the host.
  [[nodiscard]] static bool IsFor(const SequenceCache& cache) {
    return cache.views().ReadsInPlace() || HasCompressedRows(cache);
  }
  // Returns whether the sequence has rows of T2 in the host's memory.
  [[nodiscard]] static bool HasCompressedRows(const SequenceCache& cache) {
    return cache.views().HasCompressedRows() && !cache.views().CompressedOnDevice();
  }
  // Query describes one sequence's single token, whose query heads attend to the host's rows.
  struct Query {
    const SequenceStep* sequence = nullptr;
    const float* q = nullptr;  // [num_q_heads, head_dim]
    // Receives the attention over the host's rows, [num_q_heads, head_dim], then log2 of the sum of
    // 2^logit, [num_q_heads]; logits are to base 2. A head without rows on the host gets zeros and
    // minus infinity.
    float* result = nullptr;
  };
  // Returns the number of floats of a Query's result.
  [[nodiscard]] static size_t ResultSize(const AttentionShape& shape) {
    return size_t(shape.num_q_heads) * (shape.format.head_dim + 1);
  }
  // Attends to the host's rows of a layer for all queries. May throw std::bad_alloc.
  void Attend(int layer, std::span<const Query> queries);
  // Adds the mass of the rows that query `index` of the last Attend() attended to. `weights`,
  // [num_q_heads], are the shares of the host's rows in the softmax over all rows.
  void AddMass(size_t index, std::span<const float> weights);

  // Returns a text with the kernel, the threads and the shape, on which the speed depends.
  [[nodiscard]] std::string Description() const;
  // Measures how many bytes of rows the host attends to in a second. Errors: OutOfMemory.
  [[nodiscard]] Result<double> MeasureBytesPerSecond();

 private:
  void Run(std::span<const DecodeQuery> queries, size_t most_rows);
  // Lists the layer's rows on the host in rows_ and compressed_. Returns the length of the longest
  // list.
  size_t FindRows(int layer, std::span<const Query> queries);
  void MakeMass(size_t index, size_t kv_heads, DecodeQuery* query);

  const std::string_view kernel_name_;
  const AttentionShape shape_;
  const int threads_;
  const OnThreads on_threads_;
  DecodeAttention attention_;
  int layer_ = 0;
  std::vector<Query> asked_;
  // List, [queries, kv heads], the rows of T1 (empty if the step does not read them in place) and
  // the rows of T2.
  std::vector<RowsView> rows_;
  std::vector<CompressedRows> compressed_;
  // Give, [queries, kv heads], the indices of these rows in the mass of a query: rows of T1 come
  // first, then those of T2.
  std::vector<std::span<const uint32_t>> elements_, compressed_elements_;
  std::vector<DecodeQuery> queries_;
  // MassOfQuery is the mass of one query's heads, as if only the rows on the host existed.
  struct MassOfQuery {
    std::vector<float> all;
    std::vector<float*> by_head;
    bool not_finite = false;
  };
  std::vector<MassOfQuery> mass_;
  std::vector<uint32_t> numbers_;  // 0, 1, 2, ...
};

}  // namespace ebb

#endif  // EBB_STEP_DEVICE_HOST_ATTENTION_H_

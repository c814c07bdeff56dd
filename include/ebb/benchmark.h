// Benchmarks of the machine and of parts of a step that no session shows by itself: the memory's
// bandwidth, and how near to it attention and matrix products come. They need no model file.
//
// Every benchmark runs on threads of its own, which it starts and joins. Figures are meaningful
// only on an otherwise idle machine, since a thread that waits for another one spins.
//
// SPDX-License-Identifier: MIT
#ifndef EBB_BENCHMARK_H_
#define EBB_BENCHMARK_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ebb/status.h"
#include "ebb/tiers.h"
#include "ebb/types.h"

namespace [[gnu::visibility("default")]] ebb {

// Spread holds the median and the extremes of repeated measurements.
struct Spread {
  double median = 0;  // the mean of the two middle values, if their number is even
  double min = 0;
  double max = 0;
};
// Returns the spread of `values`; all zero if there are none.
[[nodiscard]] Spread SpreadOf(std::span<const double> values);

// MemoryBenchmarkOptions configure BenchmarkMemory().
struct MemoryBenchmarkOptions {
  int threads = 0;                   // 0: AvailableProcessors().threads
  size_t bytes = size_t{512} << 20;  // read in each pass; far more than the caches hold
  int repetitions = 5;
};
// MemoryBenchmark reports the bandwidth of the memory.
struct MemoryBenchmark {
  int threads = 0;
  size_t bytes = 0;
  std::string kernel = {};  // instruction set, such as "AVX3"
  Spread read_gb_s = {};    // in 10^9 bytes a second
  Spread copy_gb_s = {};    // bytes read plus bytes written
};
// Measures the bandwidth of reading and of copying memory. Errors: options out of range;
// kOutOfMemory.
[[nodiscard]] Result<MemoryBenchmark> BenchmarkMemory(const MemoryBenchmarkOptions& options);

// AttentionBenchmarkOptions configure BenchmarkAttention().
struct AttentionBenchmarkOptions {
  // shape has the sizes of SmolLM2-135M by default. Sizes that attention does not use may be zero.
  ModelShape shape = {.num_layers = 30, .num_q_heads = 9, .num_kv_heads = 3, .head_dim = 64};
  RowType kv_type = RowType::kF16;
  int rows = 8000;    // tokens in the cache
  double keep = 1.0;  // share of them that stays, drawn at random: the others' slots are holes
  // Selects a type of T2 to measure as well, alternating with full rows.
  std::optional<CompressedType> compressed = {};
  int threads = 0;  // 0: AvailableProcessors().threads
  int repetitions = 5;
  int steps = 20;  // decode steps' attention per repetition
  uint64_t seed = 0;
  std::function<void(int repetition)> progress = {};  // after each repetition; may be null
};
// AttentionRate reports one variant of attention. Rates count the bytes of the visible rows' keys
// and values, and nothing else.
struct AttentionRate {
  Spread read_gb_s = {};
  Spread share_of_limit = {};  // of the bandwidth measured in the same repetition
  Spread step_ms = {};         // all layers of one decode step
};
// AttentionBenchmark reports the speed of decode attention with and without mass.
struct AttentionBenchmark {
  int threads = 0;
  std::string kernel = {};
  int rows_kept = 0;
  size_t bytes_per_step = 0;
  Spread limit_gb_s = {};  // read bandwidth, over 256 MiB
  AttentionRate without_mass = {};
  AttentionRate with_mass = {};
  AttentionRate compressed = {};      // without mass
  Spread compressed_time_ratio = {};  // of a step over compressed rows to one over full rows
  double max_error = 0;  // largest difference to the reference kernel, of the result's magnitude
};
// Measures attention without mass and with mass, alternating with the memory's bandwidth within
// each repetition. Errors: options out of range, or a shape that attention does not support; no
// memory; kInternal if a sample of the result differs from the reference kernel's.
[[nodiscard]] Result<AttentionBenchmark> BenchmarkAttention(
    const AttentionBenchmarkOptions& options);

// ProductBenchmarkOptions configure BenchmarkProducts().
struct ProductBenchmarkOptions {
  std::vector<std::string> types = {};  // ggml's names, such as "q4_K"; empty: all that the CPU has
  // columns and rows are the sizes of one matrix. The default is a feed-forward matrix of a 1.5B
  // model.
  int columns = 1536;
  int rows = 8960;
  int batch = 512;                 // tokens of the second measurement
  int threads = 0;                 // 0: AvailableProcessors().threads
  size_t bytes = size_t{1} << 30;  // matrices that are read in turn; far more than the caches hold
  int repetitions = 5;
  std::function<void(const std::string& type)> progress = {};  // before each type; may be null
};
// ProductRate reports products with matrices of one type, in the memory layout that the engine uses
// on this machine.
struct ProductRate {
  std::string type = {};
  std::string layout = {};     // ggml's name of a packed layout, or "plain"
  double bits_per_weight = 0;  // in the memory layout
  Spread read_gb_s = {};       // with one token, as in decoding
  Spread share_of_limit = {};  // of the read bandwidth
  Spread gflop_s = {};         // with `batch` tokens, as in prefill
  // Records whether a token's result has the same bits when the token is computed alone and among 2
  // to 64 tokens.
  bool same_bits = false;
  uint64_t hash = 0;  // of the result for one token; equal hashes are equal bits
};
// ProductBenchmark reports products with matrices of each type.
struct ProductBenchmark {
  int threads = 0;
  std::string kernel = {};  // instruction set, such as "AVX3"
  Spread limit_gb_s = {};   // read bandwidth of the memory
  std::vector<ProductRate> rates = {};
};
// Measures the product of weights and activations, which bounds the speed of decoding and prefill,
// for each type of weights. Weights and activations are random, from a fixed seed. Errors: options
// out of range; an unknown type; no memory; kInternal if a sample of a result differs from the
// product of the dequantized weights.
[[nodiscard]] Result<ProductBenchmark> BenchmarkProducts(const ProductBenchmarkOptions& options);

// FileReadOptions describes a benchmark of the disk alone: it reads a private file from end to end,
// bypassing the system's page cache. It is the baseline of a T1 in a file; alternate it with
// measurements of T1, since a disk's speed varies from minute to minute.
struct FileReadOptions {
  std::string folder = {};                 // empty: the system's folder for such files
  size_t bytes = 0;                        // rounded up to requests
  size_t request_bytes = size_t{1} << 20;  // a multiple of 4096
  int under_way = 4;                       // requests at a time
};
// FileReadBenchmark measures how fast a file is read.
class FileReadBenchmark {
 public:
  // Creates and writes the file. Errors: options out of range; a folder without enough space, or
  // without direct reads.
  static Result<std::unique_ptr<FileReadBenchmark>> Create(const FileReadOptions& options);
  ~FileReadBenchmark();
  FileReadBenchmark(const FileReadBenchmark&) = delete;
  FileReadBenchmark& operator=(const FileReadBenchmark&) = delete;

  // Reads the file once, and returns its rate in 10^9 bytes a second. Errors: those of reading.
  [[nodiscard]] Result<double> ReadOnce();

 private:
  FileReadBenchmark();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ebb

#endif  // EBB_BENCHMARK_H_

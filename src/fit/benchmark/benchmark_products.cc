// Measures products with quantized matrices on the CPU as steps compute them: by ggml's kernels, on
// packed layouts if ggml has one for the type.
#include <ggml-cpu.h>
#include <ggml.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <utility>

#include <fmt/format.h>

#include "ebb/benchmark.h"
#include "src/base/ggml_deleter.h"
#include "src/base/llama_runtime.h"
#include "src/fit/benchmark/benchmark_team.h"
#include "src/model/loaded/product_layout.h"

namespace ebb {
namespace {

using Clock = std::chrono::steady_clock;
using ContextPtr = std::unique_ptr<ggml_context, GgmlDeleter>;
using BufferPtr = std::unique_ptr<ggml_backend_buffer, GgmlDeleter>;

constexpr int kMaxBatch = 4096;
constexpr int kSameBitsTokens = 64;

constexpr std::array kTypes = {
    GGML_TYPE_F32,   GGML_TYPE_F16,    GGML_TYPE_BF16,   GGML_TYPE_Q8_0,  GGML_TYPE_Q6_K,
    GGML_TYPE_Q5_K,  GGML_TYPE_Q5_1,   GGML_TYPE_Q5_0,   GGML_TYPE_Q4_K,  GGML_TYPE_Q4_1,
    GGML_TYPE_Q4_0,  GGML_TYPE_IQ4_XS, GGML_TYPE_IQ4_NL, GGML_TYPE_MXFP4, GGML_TYPE_Q3_K,
    GGML_TYPE_IQ3_S, GGML_TYPE_Q2_K,
};

std::vector<float> RandomNumbers(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> numbers(count);
  for (float& number : numbers) number = static_cast<float>(random()) / 4294967296.0F - 0.5F;
  return numbers;
}

// CpuBackend is a ggml backend with as many threads as steps have and the same kind of thread pool.
struct CpuBackend {
  std::unique_ptr<ggml_threadpool, GgmlDeleter> pool;
  std::unique_ptr<ggml_backend, GgmlDeleter> backend;

  static Result<CpuBackend> Create(int threads) {
    CpuBackend cpu;
    ggml_threadpool_params params = ggml_threadpool_params_default(threads);
    params.poll = 1;
    cpu.pool.reset(ggml_threadpool_new(&params));
    cpu.backend.reset(ggml_backend_cpu_init());
    if (cpu.pool == nullptr || cpu.backend == nullptr) {
      return OutOfMemory(fmt::format("ggml could not start {} threads", threads));
    }
    ggml_backend_cpu_set_n_threads(cpu.backend.get(), threads);
    ggml_backend_cpu_set_threadpool(cpu.backend.get(), cpu.pool.get());
    return cpu;
  }
};

// Matrices holds `count` equal matrices of one type in one buffer. Their rows repeat kDistinctRows
// random rows, so that only these need quantizing: the numbers do not change a kernel's speed.
class Matrices {
 public:
  static Result<std::unique_ptr<Matrices>> Create(ggml_type type, int columns, int rows,
                                                  size_t bytes) {
    auto matrices = std::unique_ptr<Matrices>(new Matrices());
    EBB_RETURN_IF_ERROR(matrices->Allocate(type, columns, rows, bytes));
    matrices->Fill();
    return matrices;
  }

  [[nodiscard]] int count() const { return static_cast<int>(tensors_.size()); }
  [[nodiscard]] ggml_tensor* tensor(int i) const { return tensors_[static_cast<size_t>(i)]; }
  [[nodiscard]] const std::string& layout() const { return layout_; }
  [[nodiscard]] size_t bytes_each() const { return bytes_each_; }
  // Returns row `row` of every matrix, dequantized.
  [[nodiscard]] std::vector<float> Row(int row) const {
    const ggml_tensor* t = tensors_.front();
    std::vector<float> numbers(static_cast<size_t>(t->ne[0]));
    const char* bytes = rows_.data() + (row % kDistinctRows) * ggml_row_size(t->type, t->ne[0]);
    if (t->type == GGML_TYPE_F32) {
      std::memcpy(numbers.data(), bytes, numbers.size() * sizeof(float));
    } else {
      ggml_get_type_traits(t->type)->to_float(bytes, numbers.data(), t->ne[0]);
    }
    return numbers;
  }

 private:
  static constexpr int kDistinctRows = 64;

  Matrices() = default;

  Status Allocate(ggml_type type, int columns, int rows, size_t bytes) {
    const auto packed = PackedBufferTypes();
    ggml_backend_buffer_type_t layout = PackedTypeOf(packed, type, columns, rows);
    layout_ = layout == nullptr ? "plain" : ggml_backend_buft_name(layout);
    if (layout == nullptr) layout = ggml_backend_cpu_buffer_type();
    const size_t least = ggml_row_size(type, columns) * static_cast<size_t>(rows);
    const size_t count = std::max<size_t>(1, (bytes + least - 1) / least);
    context_.reset(ggml_init({.mem_size = (count + 1) * ggml_tensor_overhead(),
                              .mem_buffer = nullptr,
                              .no_alloc = true}));
    for (size_t i = 0; i < count; ++i) {
      tensors_.push_back(ggml_new_tensor_2d(context_.get(), type, columns, rows));
    }
    const size_t alignment = ggml_backend_buft_get_alignment(layout);
    bytes_each_ = ggml_backend_buft_get_alloc_size(layout, tensors_.front());
    const size_t stride = (bytes_each_ + alignment - 1) / alignment * alignment;
    buffer_.reset(ggml_backend_buft_alloc_buffer(layout, count * stride));
    if (buffer_ == nullptr) {
      return OutOfMemory(fmt::format("no memory for {} bytes of weights", count * stride));
    }
    ggml_backend_buffer_set_usage(buffer_.get(), GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    AdviseHugePages(buffer_.get());
    auto* address = static_cast<char*>(ggml_backend_buffer_get_base(buffer_.get()));
    for (ggml_tensor* tensor : tensors_) {
      ggml_backend_tensor_alloc(buffer_.get(), tensor, address);
      address += stride;
    }
    return OkStatus();
  }

  void Fill() {
    const ggml_tensor* first = tensors_.front();
    const auto columns = static_cast<size_t>(first->ne[0]);
    const std::vector<float> numbers = RandomNumbers(kDistinctRows * columns, 1);
    const size_t row_bytes = ggml_row_size(first->type, first->ne[0]);
    rows_.resize(kDistinctRows * row_bytes);
    if (first->type == GGML_TYPE_F32) {
      std::memcpy(rows_.data(), numbers.data(), rows_.size());
    } else {
      ggml_quantize_chunk(first->type, numbers.data(), rows_.data(), 0, kDistinctRows, first->ne[0],
                          nullptr);
    }
    std::vector<char> whole(static_cast<size_t>(first->ne[1]) * row_bytes);
    for (size_t at = 0; at < whole.size(); at += rows_.size()) {
      std::memcpy(whole.data() + at, rows_.data(), std::min(rows_.size(), whole.size() - at));
    }
    for (ggml_tensor* tensor : tensors_) {
      ggml_backend_tensor_set(tensor, whole.data(), 0, whole.size());
    }
  }

  ContextPtr context_;
  BufferPtr buffer_;
  std::vector<ggml_tensor*> tensors_;
  std::string layout_;
  size_t bytes_each_ = 0;
  std::vector<char> rows_;  // kDistinctRows, as quantized
};

// ProductGraph multiplies the first `count` matrices by the first `tokens` activations, one product
// after the other.
class ProductGraph {
 public:
  ProductGraph(const Matrices& matrices, int count, int tokens, std::span<const float> activations)
      : context_(ggml_init(
            {.mem_size = static_cast<size_t>(count + 2) * ggml_tensor_overhead() +
                         ggml_graph_overhead_custom(static_cast<size_t>(count) + 1, false),
             .mem_buffer = nullptr,
             .no_alloc = true})),
        graph_(ggml_new_graph_custom(context_.get(), static_cast<size_t>(count) + 1, false)) {
    const int64_t columns = matrices.tensor(0)->ne[0];
    ggml_tensor* input = ggml_new_tensor_2d(context_.get(), GGML_TYPE_F32, columns, tokens);
    for (int i = 0; i < count; ++i) {
      output_ = ggml_mul_mat(context_.get(), matrices.tensor(i), input);
      ggml_build_forward_expand(graph_, output_);
    }
    buffer_.reset(
        ggml_backend_alloc_ctx_tensors_from_buft(context_.get(), ggml_backend_cpu_buffer_type()));
    if (buffer_ != nullptr) {
      ggml_backend_tensor_set(input, activations.data(), 0, ggml_nbytes(input));
    }
  }

  [[nodiscard]] bool has_memory() const { return buffer_ != nullptr; }
  // Seconds.
  [[nodiscard]] double Run(ggml_backend* backend) {
    const Clock::time_point start = Clock::now();
    ggml_backend_graph_compute(backend, graph_);
    return std::chrono::duration<double>(Clock::now() - start).count();
  }
  // Returns the last product for one token. [rows]
  [[nodiscard]] std::vector<float> OutputOf(int token) const {
    std::vector<float> values(static_cast<size_t>(output_->ne[0]));
    const size_t bytes = values.size() * sizeof(float);
    ggml_backend_tensor_get(output_, values.data(), static_cast<size_t>(token) * bytes, bytes);
    return values;
  }

 private:
  ContextPtr context_;
  BufferPtr buffer_;
  ggml_cgraph* graph_;
  ggml_tensor* output_ = nullptr;
};

Status NoMemory() { return OutOfMemory("no memory for the results of the products"); }

// Compares some rows of a token's product with the product of dequantized weights and activations.
// Errors: Internal if they differ by more than rounding activations to 8 bits explains.
Status CheckProduct(const Matrices& matrices, std::span<const float> activations,
                    const std::vector<float>& found) {
  double error = 0, size = 0;
  const size_t step = std::max<size_t>(1, found.size() / 37);
  for (size_t row = 0; row < found.size(); row += step) {
    const std::vector<float> weights = matrices.Row(static_cast<int>(row));
    double expected = 0;
    for (size_t i = 0; i < weights.size(); ++i) expected += double{weights[i]} * activations[i];
    error += (expected - found[row]) * (expected - found[row]);
    size += expected * expected;
  }
  constexpr double kMost = 1e-3;
  if (error <= kMost * size) return OkStatus();
  return Internal(fmt::format("the product of {} is wrong: a normalized square error of {:.1e}",
                              ggml_type_name(matrices.tensor(0)->type), error / size));
}

// Returns whether a token's product has the same bits among 2 to kSameBitsTokens tokens as alone.
Result<bool> HasSameBits(const Matrices& matrices, const CpuBackend& cpu,
                         std::span<const float> activations) {
  const auto columns = static_cast<size_t>(matrices.tensor(0)->ne[0]);
  const auto alone = [&](int token) -> Result<std::vector<float>> {
    ProductGraph graph(matrices, 1, 1, activations.subspan(static_cast<size_t>(token) * columns));
    if (!graph.has_memory()) return NoMemory();
    (void)graph.Run(cpu.backend.get());
    return graph.OutputOf(0);
  };
  for (const int tokens : {2, 3, 4, 5, 7, 8, 16, 17, 32, 33, kSameBitsTokens}) {
    ProductGraph graph(matrices, 1, tokens, activations);
    if (!graph.has_memory()) return NoMemory();
    (void)graph.Run(cpu.backend.get());
    for (const int token : {0, tokens / 2, tokens - 1}) {
      EBB_ASSIGN_OR_RETURN(const std::vector<float> expected, alone(token));
      if (graph.OutputOf(token) != expected) return false;
    }
  }
  return true;
}

Result<ProductRate> MeasureType(const ProductBenchmarkOptions& options, ggml_type type,
                                const CpuBackend& cpu, double limit_gb_s) {
  EBB_ASSIGN_OR_RETURN(const auto matrices,
                       Matrices::Create(type, options.columns, options.rows, options.bytes));
  const int tokens = std::max(options.batch, kSameBitsTokens);
  const std::vector<float> activations =
      RandomNumbers(static_cast<size_t>(options.columns) * static_cast<size_t>(tokens), 2);
  ProductRate rate = {.type = ggml_type_name(type), .layout = matrices->layout()};
  const double weights = double{1} * options.columns * options.rows;
  rate.bits_per_weight = 8 * static_cast<double>(matrices->bytes_each()) / weights;

  ProductGraph one(*matrices, matrices->count(), 1, activations);
  ProductGraph many(*matrices, 1, options.batch, activations);
  if (!one.has_memory() || !many.has_memory()) return NoMemory();
  std::vector<double> gb_s, share, gflop_s;
  for (int repetition = -1; repetition < options.repetitions; ++repetition) {
    const double seconds = one.Run(cpu.backend.get());
    const double batch_seconds = many.Run(cpu.backend.get());
    if (repetition < 0) continue;  // the first one warms up
    const double bytes = static_cast<double>(matrices->bytes_each()) * matrices->count();
    gb_s.push_back(bytes / seconds / 1e9);
    share.push_back(gb_s.back() / limit_gb_s);
    gflop_s.push_back(2 * weights * options.batch / batch_seconds / 1e9);
  }
  const std::vector<float> result = one.OutputOf(0);
  EBB_RETURN_IF_ERROR(CheckProduct(*matrices, activations, result));
  EBB_RETURN_IF_ERROR(CheckProduct(*matrices, activations, many.OutputOf(0)));
  EBB_ASSIGN_OR_RETURN(rate.same_bits, HasSameBits(*matrices, cpu, activations));
  rate.hash = XXH3_64bits(result.data(), result.size() * sizeof(float));
  rate.read_gb_s = SpreadOf(gb_s);
  rate.share_of_limit = SpreadOf(share);
  rate.gflop_s = SpreadOf(gflop_s);
  return rate;
}

Result<std::vector<ggml_type>> TypesOf(const std::vector<std::string>& names) {
  std::vector<ggml_type> types, known;
  std::string all;
  for (const ggml_type type : kTypes) {
    if (!CanMultiply(type)) continue;
    known.push_back(type);
    all += fmt::format("{}{}", all.empty() ? "" : ", ", ggml_type_name(type));
  }
  if (names.empty()) return known;
  const auto lower = [](std::string text) {
    std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
    return text;
  };
  for (const std::string& name : names) {
    const auto found = std::ranges::find_if(
        known, [&](ggml_type type) { return lower(ggml_type_name(type)) == lower(name); });
    if (found == known.end()) {
      return InvalidArgument(fmt::format("unknown type \"{}\"; there are {}", name, all));
    }
    types.push_back(*found);
  }
  return types;
}

}  // namespace

Result<ProductBenchmark> BenchmarkProducts(const ProductBenchmarkOptions& options) {
  constexpr int kMaxThreads = 1024;
  constexpr int kBlock = 256;  // of K-quants
  if (options.threads < 0 || options.threads > kMaxThreads || options.repetitions < 1 ||
      options.batch < 1 || options.batch > kMaxBatch || options.columns < kBlock ||
      options.columns % kBlock != 0 || options.columns > 65536 || options.rows < 64 ||
      options.rows > 262144) {
    return InvalidArgument(
        "the benchmark of products needs 0 to 1024 threads, a repetition, a batch of 1 to 4096, "
        "columns that are a multiple of 256 up to 65536, and 64 to 262144 rows");
  }
  InitLlamaRuntime();
  EBB_ASSIGN_OR_RETURN(const std::vector<ggml_type> types, TypesOf(options.types));
  ProductBenchmark result = {.threads = ResolveThreads(options.threads)};
  constexpr size_t kLeastBytes = size_t{1} << 20;
  EBB_ASSIGN_OR_RETURN(const MemoryBenchmark memory,
                       BenchmarkMemory({.threads = result.threads,
                                        .bytes = std::max(kLeastBytes, options.bytes),
                                        .repetitions = options.repetitions}));
  result.limit_gb_s = memory.read_gb_s;
  result.kernel = memory.kernel;
  EBB_ASSIGN_OR_RETURN(const CpuBackend cpu, CpuBackend::Create(result.threads));
  for (const ggml_type type : types) {
    if (options.progress) options.progress(ggml_type_name(type));
    EBB_ASSIGN_OR_RETURN(ProductRate rate,
                         MeasureType(options, type, cpu, result.limit_gb_s.median));
    result.rates.push_back(std::move(rate));
  }
  return result;
}

}  // namespace ebb

#include "src/fit/projections.h"

#include <algorithm>
#include <array>

namespace ebb {
namespace {

// Of the H100 SXM, as the paper gives them.
constexpr double kFlopsPerSecond = 989.5e12;
constexpr double kBytesPerSecond = 3.35e12;

// The models' own configurations: DeepSeek-R1-Distill-Qwen, Llama 3.
constexpr std::array<PaperShape, 6> kShapes = {{
    {"Qwen-R1 1.5B", 28, 1536, 8960, 256, 151936},
    {"Qwen-R1 7B", 28, 3584, 18944, 512, 152064},
    {"Llama 3.1 8B", 32, 4096, 14336, 1024, 128256},
    {"Qwen-R1 14B", 48, 5120, 13824, 1024, 152064},
    {"Qwen-R1 32B", 64, 5120, 27648, 1024, 152064},
    {"Llama 3 70B", 80, 8192, 28672, 1024, 128256},
}};

struct Deployment {
  std::string_view model;
  std::string_view weights_type;
  int batch, tokens;
  double paper_cache_gb, weights_gb;
};
// Table 11; Table 18 is the same without its third row.
constexpr std::array<Deployment, 6> kDeployments = {{
    {"7B", "fp16", 1, 2048, 0.5, 14},
    {"7B", "fp16", 8, 2048, 3.8, 14},
    {"7B", "fp16", 1, 16384, 3.8, 14},
    {"7B", "int4", 8, 2048, 3.8, 3.5},
    {"70B", "fp16", 8, 4096, 80, 140},
    {"70B", "int4", 8, 4096, 80, 35},
}};

// Sums of weights of a layer that a token is multiplied by, twice: Eq. 2 and 3 share them.
double LayerWeights(const PaperShape& shape) {
  const double d = shape.embed_dim;
  return 6 * d * shape.feed_forward_dim + 4 * d * d + 4 * d * shape.kv_dim;
}

double OutputWeights(const PaperShape& shape) { return 2.0 * shape.embed_dim * shape.vocab_size; }

}  // namespace

uint64_t CacheBytesPerToken(int num_layers, int num_heads, int head_dim) {
  constexpr int kF16Bytes = 2;
  return uint64_t{2} * num_layers * num_heads * head_dim * kF16Bytes;
}

std::vector<PaperProjection> PaperProjections() {
  std::vector<PaperProjection> projections;
  for (const Deployment& d : kDeployments) {
    const bool small = d.model == "7B";
    const int layers = small ? 28 : 80;
    const int query_heads = small ? 28 : 64;
    const int kv_heads = small ? 4 : 8;
    const uint64_t tokens = uint64_t{1} * d.batch * d.tokens;
    projections.push_back(
        {.model = d.model,
         .weights_type = d.weights_type,
         .batch = d.batch,
         .tokens = d.tokens,
         .paper_cache_gb = d.paper_cache_gb,
         .weights_gb = d.weights_gb,
         .cache_bytes_by_query_heads = tokens * CacheBytesPerToken(layers, query_heads, 128),
         .cache_bytes_by_kv_heads = tokens * CacheBytesPerToken(layers, kv_heads, 128)});
  }
  return projections;
}

std::span<const PaperShape> PaperShapes() { return kShapes; }

double StepFlops(const PaperShape& shape, int64_t batch, int64_t tokens) {
  const double of_layer = LayerWeights(shape) + 4.0 * shape.embed_dim * static_cast<double>(tokens);
  return static_cast<double>(batch) * (shape.num_layers * of_layer + OutputWeights(shape));
}

double CacheReadBytes(const PaperShape& shape, int64_t batch, int64_t tokens) {
  return 4.0 * shape.num_layers * static_cast<double>(batch) * static_cast<double>(tokens) *
         shape.kv_dim;
}

double StepReadBytes(const PaperShape& shape, int64_t batch, int64_t tokens) {
  return shape.num_layers * LayerWeights(shape) + OutputWeights(shape) +
         CacheReadBytes(shape, batch, tokens);
}

double CacheShareOfStep(const PaperShape& shape, int64_t batch, int64_t tokens,
                        double compression) {
  const double cache = CacheReadBytes(shape, batch, tokens) / compression;
  const double reads = StepReadBytes(shape, batch, 0) + cache;
  const auto kept = static_cast<int64_t>(static_cast<double>(tokens) / compression);
  const double seconds =
      std::max(StepFlops(shape, batch, kept) / kFlopsPerSecond, reads / kBytesPerSecond);
  return cache / kBytesPerSecond / seconds;
}

}  // namespace ebb

// Writes tiny models with random weights of every architecture that libllama knows, by the fixture
// of llama.cpp's own tests (tests/test-llama-archs.cpp of its source). Differences from it: 8
// experts of which 2 are used, so that routing matters; 4 heads for latent attention; a tokenizer
// that ebb loads.
#ifndef EBB_TESTS_SUPPORT_LIBRARY_MODELS_H_
#define EBB_TESTS_SUPPORT_LIBRARY_MODELS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "ebb/status.h"

namespace ebb {

struct LibraryModelOptions {
  std::string architecture;  // "qwen3moe"
  bool has_experts = false;
  std::string weight_type = "f32";  // or "q8_0", "q4_0", "q4_K"
  // Sizes instead of the fixture's, by their keys without the architecture: "embedding_length".
  std::map<std::string, uint32_t> sizes = {};
  // Sizes by layer, by the same keys.
  std::map<std::string, std::vector<uint32_t>> sizes_by_layer = {};
  // Norms scale by about 1, and no tensor scales a product, as in real models: attention is sharp,
  // and logits show a wrong angle, scale, window or sink. Else attention is almost uniform.
  bool is_sharp = false;
  // The file has a layer for multi-token prediction behind the others, of the kind of the first
  // one.
  bool has_mtp = false;
  // Matrices repeat a few million random weights, so that a model of real size is written quickly
  // and without memory for it; scales that real models lack are left out.
  bool repeats_weights = false;
};

// Half of its ten layers read the rows of layers before them.
[[nodiscard]] LibraryModelOptions Gemma4WithSharedRows();

// The architectures, with and without experts, that the fixture has models of.
[[nodiscard]] std::vector<LibraryModelOptions> AllLibraryModels();

// "qwen3moe, experts, f32"
[[nodiscard]] std::string NameOf(const LibraryModelOptions& options);

// Errors: Unsupported, where the fixture has no such model or libllama does not quantize it so.
// May end the process, by an assertion of libllama.
Status WriteLibraryModel(const LibraryModelOptions& options, const std::string& path);

}  // namespace ebb

#endif  // EBB_TESTS_SUPPORT_LIBRARY_MODELS_H_

// The matrix of speculative decoding: texts of 2,000 tokens of 19 architectures (hybrids, windows,
// sinks, latent attention, shared rows, experts), and of the real models.
#include "tests/engine/speculation_matrix.h"
#include "tests/support/default_model.h"
#include "tests/support/skip.h"

namespace ebb {
namespace {

EBB_CPU_ONLY_FILE("a device rounds several tokens of a step differently than one");

constexpr int kTokens = 2000;

std::vector<MatrixModel> TinyModels() {
  std::vector<MatrixModel> models;
  const auto add = [&](LibraryModelOptions options) {
    options.sizes["context_length"] = 4096;
    options.is_sharp = true;
    models.push_back({NameOf(options), [=] { return LibraryModelOf(options); }, kTokens});
  };
  for (const char* dense : {"llama", "qwen2", "qwen3", "gemma3", "gemma2", "phi3", "granite",
                            "lfm2", "falcon-h1", "granite-hybrid"}) {
    add({.architecture = dense, .weight_type = "q8_0"});
  }
  for (const char* with_experts : {"gpt-oss", "qwen3moe", "deepseek2", "llama4", "qwen3next"}) {
    add({.architecture = with_experts, .has_experts = true});
  }
  for (const char* with_mtp : {"glm4moe", "qwen35moe", "mimo2"}) {
    add({.architecture = with_mtp, .has_experts = true, .has_mtp = true});
  }
  add(Gemma4WithSharedRows());
  return models;
}

TEST_P(SpeculationMatrix, TextsAndLogitsAreThoseOfPlainDecoding) { CompareAll(); }
INSTANTIATE_TEST_SUITE_P(Tiny, SpeculationMatrix, testing::ValuesIn(TinyModels()));

class SpeculationOfRealModels : public SpeculationMatrix {};

TEST_P(SpeculationOfRealModels, TextsAndLogitsAreThoseOfPlainDecoding) {
  if (model_ == nullptr) EBB_SKIP_WITHOUT("default_model") << kNoDefaultModel;
  CompareAll();
}

std::shared_ptr<const Model> LoadFile(const std::string& path) {
  if (path.empty()) return nullptr;
  auto model = Model::Load({.path = path});
  ExpectOk(model.status());
  return *model;
}

INSTANTIATE_TEST_SUITE_P(
    Real, SpeculationOfRealModels,
    testing::Values(
        MatrixModel{"default model", [] { return LoadFile(DefaultModelPath()); }, kTokens},
        MatrixModel{"pebble",
                    [] { return LoadFile(EBB_SOURCE_DIR "/training/pebble/pebble.gguf"); },
                    kTokens}));

}  // namespace
}  // namespace ebb

// The matrix of speculative decoding for a few models; speculation_matrix_verify_test.cc has the
// others.
#include "tests/engine/speculation_matrix.h"

#include <vector>

#include "tests/support/skip.h"

namespace ebb {
namespace {

EBB_CPU_ONLY_FILE("a device rounds several tokens of a step differently than one");

TEST_P(SpeculationMatrix, TextsAndLogitsAreThoseOfPlainDecoding) { CompareAll(); }

std::vector<MatrixModel> Models() {
  const auto library = [](const LibraryModelOptions& options) {
    return MatrixModel{options.architecture, [=] { return LibraryModelOf(options); }};
  };
  // Dense, with experts and sinks in windows, one with a layer that guesses, and hybrids.
  return {
      {"dense", SmallModel},
      library({"gpt-oss", true, "f32"}),
      library({.architecture = "mimo2", .has_experts = true, .is_sharp = true, .has_mtp = true}),
      library({"qwen35moe", true, "q4_0"}),
      library({"lfm2", false, "q8_0"}),
#ifdef EBB_LLAMA_IS_PATCHED
      library({"jamba", true, "q8_0"}),
      library({"plamo2", false, "q8_0"}),
      library({"kimi-linear", true, "q8_0"}),
#endif  // EBB_LLAMA_IS_PATCHED
  };
}

INSTANTIATE_TEST_SUITE_P(Models, SpeculationMatrix, testing::ValuesIn(Models()));

}  // namespace
}  // namespace ebb

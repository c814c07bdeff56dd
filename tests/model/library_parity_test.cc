// Architectures of each kind that libllama builds the graphs of: the engine's logits are
// libllama's. All architectures: library_parity_verify_test.cc.
#include <gtest/gtest.h>

#include "tests/model/library_parity.h"

namespace ebb {
namespace {

bool HasNoRope(const std::string& architecture) {
  return architecture == "nemotron_h" || architecture == "granitehybrid" ||
         architecture == "kimi-linear";
}

class LibraryParityTest : public testing::TestWithParam<LibraryModelOptions> {};

TEST_P(LibraryParityTest, LogitsAreThoseOfLibllama) {
  const auto parity = CompareWithLibllama(GetParam());
  ASSERT_TRUE(parity.ok()) << parity.status().ToString();
  ASSERT_TRUE(parity->fixture.ok()) << parity->fixture.ToString();
  ASSERT_TRUE(parity->load.ok()) << parity->load.ToString();
  EXPECT_GT(parity->deviation, 0.05) << "the model is too dull to show a fault";
  EXPECT_LE(parity->error, 1e-6);
}

// The comparison can see a fault of RoPE, of the softmax, of windows, of sinks, and of a row that
// is not read.
TEST_P(LibraryParityTest, AFaultMovesTheLogits) {
  const auto errors = ErrorsOfFaults(GetParam());
  ASSERT_TRUE(errors.ok()) << errors.status().ToString();
  for (const auto& [fault, error] : *errors) {
    const bool has_no_angle = fault == "angle" && HasNoRope(GetParam().architecture);
    if (has_no_angle) continue;
    EXPECT_GT(error, 1e-5) << fault;
  }
}

// A text that fits the original context takes the short factors of LongRoPE, as in libllama.
TEST(LongRope, TheContextChoosesTheFactors) {
  const LibraryModelOptions phi3 = {
      .architecture = "phi3",
      .sizes = {{"context_length", 1024}, {"rope.scaling.original_context_length", 256}}};
  std::vector<double> deviations;
  for (const int context : {256, 1024}) {
    const auto parity = CompareWithLibllama(phi3, context);
    ASSERT_TRUE(parity.ok()) << parity.status().ToString();
    ASSERT_TRUE(parity->load.ok()) << parity->load.ToString();
    EXPECT_LE(parity->error, 1e-6) << context;
    deviations.push_back(parity->deviation);
  }
  EXPECT_NE(deviations[0], deviations[1]) << "both took the same factors";
}

std::string TestName(const testing::TestParamInfo<LibraryModelOptions>& info) {
  std::string name = info.param.architecture + (info.param.sizes.empty() ? "" : "Shared");
  std::erase(name, '-');
  std::erase(name, '_');
  return name;
}

// A mixture of experts, partial RoPE, sinks and windows, a soft cap, two head sizes, rows that
// layers share, latent attention, and recurrent state of four kinds.
INSTANTIATE_TEST_SUITE_P(
    Kinds, LibraryParityTest,
    testing::Values(LibraryModelOptions{"qwen3moe", true}, LibraryModelOptions{"phi3", false},
                    LibraryModelOptions{"glm4moe", true}, LibraryModelOptions{"minimax-m2", true},
                    LibraryModelOptions{"gpt-oss", true}, LibraryModelOptions{"gemma4", false},
                    Gemma4WithSharedRows(), LibraryModelOptions{"gemma3n", false},
                    LibraryModelOptions{"gemma2", false}, LibraryModelOptions{"deepseek2", true},
                    LibraryModelOptions{"qwen35moe", true}, LibraryModelOptions{"lfm2", false},
                    LibraryModelOptions{"nemotron_h", false},
                    LibraryModelOptions{"granitehybrid", false},
                    LibraryModelOptions{"kimi-linear", true}),
    TestName);

}  // namespace
}  // namespace ebb

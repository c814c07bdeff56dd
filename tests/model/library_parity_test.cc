// Architectures of each kind that libllama builds the graphs of: the engine's logits are
// libllama's. All architectures: library_parity_verify_test.cc.
#include <gtest/gtest.h>

#include "tests/model/library_parity.h"

namespace ebb {
namespace {

class LibraryParityTest : public testing::TestWithParam<LibraryModelOptions> {};

TEST_P(LibraryParityTest, LogitsAreThoseOfLibllama) {
  const auto parity = CompareWithLibllama(GetParam());
  ASSERT_TRUE(parity.ok()) << parity.status().ToString();
  ASSERT_TRUE(parity->fixture.ok()) << parity->fixture.ToString();
  ASSERT_TRUE(parity->load.ok()) << parity->load.ToString();
  EXPECT_GT(parity->deviation, 0.05) << "the model is too dull to show a fault";
  EXPECT_LE(parity->error, 1e-6);
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

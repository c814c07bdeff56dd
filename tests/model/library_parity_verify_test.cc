// Every architecture of libllama: the engine's logits are libllama's, or the model is refused for
// the reason that is listed here, so that a change of either side shows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cctype>
#include <fstream>
#include <map>
#include <string>

#include "tests/model/library_parity.h"

namespace ebb {
namespace {

using testing::HasSubstr;

constexpr double kMostError = 1e-6;
constexpr double kMostQuantizedError = 1e-3;

// Why an architecture is refused, in words of its message.
const std::map<std::string, std::string>& Refusals() {
  static const std::string indexer = "selects rows by an indexer";
  static const std::string no_text = "does not generate text token by token";
  static const std::map<std::string, std::string> refusals = {
      {"llama4", "attention within chunks"},
      {"mpt", "ALiBi"},
      {"refact", "ALiBi"},
      {"bloom", "ALiBi"},
      {"jais", "ALiBi"},
      {"t5", no_text},
      {"mamba", "recurrent state and no KV cache"},
      {"mamba2", "recurrent state and no KV cache"},
      {"qwen4exp", indexer},
      {"deepseek32", indexer},
      {"deepseek4", indexer},
      {"glm-dsa", indexer},
      {"glm5-next", indexer},
      {"dots3note", indexer},
      {"hy_v4", indexer},
      {"minimax-m3", indexer},
      {"dream", no_text},
      {"llada", no_text},
      {"llada-moe", no_text},
      {"rnd1", no_text},
  };
  return refusals;
}

// llama.cpp's fixture cannot write models of these.
bool HasNoFixture(const std::string& architecture) {
  for (const char* name : {"eagle3", "dflash"}) {
    if (architecture == name) return true;
  }
  return false;
}

class LibraryParityVerifyTest : public testing::TestWithParam<LibraryModelOptions> {};

TEST_P(LibraryParityVerifyTest, LogitsAreThoseOfLibllama) {
  if (HasNoFixture(GetParam().architecture)) GTEST_SKIP() << "no fixture of this architecture";
  const auto parity = CompareWithLibllama(GetParam());
  ASSERT_TRUE(parity.ok()) << parity.status().ToString();
  ASSERT_TRUE(parity->fixture.ok()) << parity->fixture.ToString();
  const auto refusal = Refusals().find(GetParam().architecture);
  if (refusal != Refusals().end()) {
    EXPECT_EQ(parity->load.code(), StatusCode::kUnsupported) << parity->load.ToString();
    EXPECT_THAT(parity->load.message(), HasSubstr(refusal->second));
    return;
  }
  ASSERT_TRUE(parity->load.ok()) << parity->load.ToString();
  EXPECT_GT(parity->deviation, 0.05) << "the model is too dull to show a fault";
  EXPECT_LE(parity->error, kMostError);
}

// Quantized weights: activations are rounded, and a rounding that flips is seen in all logits. Each
// token takes all experts of a mixture, so that no rounding chooses other ones.
TEST_P(LibraryParityVerifyTest, WithQuantizedWeightsTheyAreAlmostThose) {
  if (HasNoFixture(GetParam().architecture) || Refusals().contains(GetParam().architecture)) {
    GTEST_SKIP() << "refused, or no fixture";
  }
  for (const char* type : {"q8_0", "q4_0", "q4_K"}) {
    LibraryModelOptions options = GetParam();
    options.weight_type = type;
    if (options.has_experts) options.sizes["expert_used_count"] = 8;
    const auto parity = CompareWithLibllama(options);
    ASSERT_TRUE(parity.ok()) << type << ": " << parity.status().ToString();
    if (!parity->fixture.ok()) continue;  // rows that the type's blocks do not divide
    ASSERT_TRUE(parity->load.ok()) << type << ": " << parity->load.ToString();
    EXPECT_LE(parity->error, kMostQuantizedError) << type;
  }
}

// The tables of docs/user/models.md name each architecture that this test loads or sees refused.
TEST(LibraryModelsDocumentVerifyTest, NamesEveryArchitecture) {
  std::ifstream file(EBB_SOURCE_DIR "/docs/user/models.md");
  std::map<bool, std::string> rows;  // by whether they are refused
  bool is_refused = false;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("| refused |")) is_refused = true;
    if (line.starts_with("| kind |")) is_refused = false;
    if (line.starts_with("|")) rows[is_refused] += line;
  }
  for (const LibraryModelOptions& model : AllLibraryModels()) {
    if (HasNoFixture(model.architecture)) continue;
    const bool refused = Refusals().contains(model.architecture);
    const std::string name = "`" + model.architecture + "`";
    EXPECT_THAT(rows[refused], HasSubstr(name));
    EXPECT_THAT(rows[!refused], testing::Not(HasSubstr(name)));
  }
}

std::string TestName(const testing::TestParamInfo<LibraryModelOptions>& info) {
  std::string name;
  for (const char c : info.param.architecture) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) name += c;
  }
  return name + (info.param.has_experts ? "Experts" : "");
}

INSTANTIATE_TEST_SUITE_P(All, LibraryParityVerifyTest, testing::ValuesIn(AllLibraryModels()),
                         TestName);

}  // namespace
}  // namespace ebb

#include "apps/common/models/reasoners.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include <fmt/format.h>

#include "apps/common/models/model_name.h"
#include "ebb/fit.h"

namespace ebb::cli {
namespace {

using testing::HasSubstr;

constexpr int kContext = 8192;

// Returns a cell of the table: the setting that `ebb fit` calls the gentlest, and the longest
// context that fits with it, rounded down and at most the trained one.
std::string CellFor(const Reasoner& reasoner, uint64_t gigabytes) {
  const FitModel model = FitModelFor(reasoner);
  const FitLimits limits = {.memory_bytes = gigabytes * 1'000'000'000};
  FitRequest request;
  request.SetContext(kContext, kPromptsOfConversation);
  const auto setting = GentlestSetting(model, request, limits);
  if (!setting.ok()) return "no";
  request.tiers = setting->tiers;
  int context = std::min(LargestContext(model, request, limits), reasoner.trained_context);
  if (context < reasoner.trained_context) context = context / 100 * 100;
  const std::string name =
      setting->name == "full" ? setting->name : fmt::format("`{}`", setting->name);
  return fmt::format("{}, {},{:03}", name, context / 1000, context % 1000);
}

std::string MemoryFor(const Reasoner& reasoner) {
  return fmt::format("{:.1f}", static_cast<double>(MemoryAt(reasoner, kContext)) / 1e9);
}

TEST(ReasonersTest, NamesAreThoseOfModelsAndTheSmallestComesFirst) {
  std::set<std::string_view> names;
  uint64_t last = 0;
  for (const Reasoner& reasoner : Reasoners()) {
    EXPECT_TRUE(ParseModelName(reasoner.name).ok()) << reasoner.name;
    EXPECT_TRUE(names.insert(reasoner.name).second) << reasoner.name;
    EXPECT_GT(reasoner.bytes, last) << reasoner.name;
    last = reasoner.bytes;
    EXPECT_EQ(FindReasoner(reasoner.name), &reasoner);
  }
  EXPECT_EQ(FindReasoner("hf:tide/Tide"), nullptr);
  const auto find = [](const char* name) { return FindReasoner(*ParseModelName(name)); };
  const Reasoner* const qwen = FindReasoner("hf:Qwen/Qwen3-8B-GGUF:Q4_K_M");
  EXPECT_EQ(find("hf:Qwen/Qwen3-8B-GGUF"), qwen);
  EXPECT_EQ(find("hf:Qwen/Qwen3-8B-GGUF:Q4_K_M"), qwen);
  EXPECT_EQ(find("hf:Qwen/Qwen3-8B-GGUF:Q8_0"), nullptr);
  EXPECT_EQ(find("ollama:qwen3"), nullptr);
}

// Expects that the table of docs/user/models.md holds what `ebb fit` computes.
TEST(ReasonersTest, TheTableOfTheManualIsWhatFitSays) {
  std::ifstream file(EBB_SOURCE_DIR "/docs/user/models.md");
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  for (const Reasoner& reasoner : Reasoners()) {
    const std::string line =
        fmt::format("| `{}` | {} | {:.2f} | {} | {} | {} | {} |\n", reasoner.name, reasoner.licence,
                    static_cast<double>(reasoner.bytes) / 1e9, MemoryFor(reasoner),
                    CellFor(reasoner, 8), CellFor(reasoner, 16), CellFor(reasoner, 32));
    EXPECT_THAT(page, HasSubstr(line));
  }
}

}  // namespace
}  // namespace ebb::cli

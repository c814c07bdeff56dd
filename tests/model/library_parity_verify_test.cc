// Every architecture of libllama: the engine's logits are libllama's, or the model is refused and
// the reason is known here.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "tests/model/library_parity.h"

namespace ebb {
namespace {

constexpr double kMostError = 1e-6;

class LibraryParityVerifyTest : public testing::TestWithParam<LibraryModelOptions> {};

TEST_P(LibraryParityVerifyTest, LogitsAreThoseOfLibllama) {
  const auto parity = CompareWithLibllama(GetParam());
  ASSERT_TRUE(parity.ok()) << parity.status().ToString();
  std::printf("RESULT %s: fixture %s; load %s; nmse %.1e, deviation %.2f\n",
              NameOf(GetParam()).c_str(), parity->fixture.ToString().c_str(),
              parity->load.ToString().c_str(), parity->error, parity->deviation);
  ASSERT_TRUE(parity->load.ok());
  EXPECT_LE(parity->error, kMostError);
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

// Every architecture whose graph libllama builds, on the simulated device beside the processor.
#include <algorithm>
#include <cctype>
#include <cmath>

#include "tests/engine/devices/backend_fixture.h"
#include "tests/support/engine/library_models.h"

namespace ebb {
namespace {

class LibraryDeviceVerify : public testing::TestWithParam<LibraryModelOptions> {};

std::vector<float> LogitsAfter(Engine& engine, std::span<const Token> tokens) {
  auto session = Open(engine);
  ExpectOk(session->Prefill(tokens.first(40)));
  std::vector<float> all = Logits(*session);
  for (const Token token : tokens.subspan(40)) {
    ExpectOk(session->Decode(token));
    all.insert(all.end(), session->logits().begin(), session->logits().end());
  }
  return all;
}

// What is refused on the processor is listed in tests/model/library_parity_verify_test.cc.
TEST_P(LibraryDeviceVerify, LogitsAreTheProcessorsUpToRounding) {
  const TempFolder folder;
  const std::string path = folder.File("model.gguf");
  const Status written = WriteLibraryModel(GetParam(), path);
  if (!written.ok()) GTEST_SKIP() << written.ToString();
  const auto on_host = Model::Load({.path = path});
  const auto model = Model::Load({.path = path, .for_device = true});
  ASSERT_EQ(model.status().ToString(), on_host.status().ToString());
  if (!model.ok()) GTEST_SKIP() << model.status().ToString();
  std::vector<Token> tokens(60);
  for (size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<Token>(i * i % (*model)->shape().vocab_size);
  }
  auto host = MakeEngineOf(*on_host, {.threads = 1});
  auto device = MakeEngineOf(*model, {.threads = 1, .device = *ParseDevice(TestDevice())});
  const std::vector<float> expected = LogitsAfter(*host, tokens);
  const std::vector<float> found = LogitsAfter(*device, tokens);
  float largest = 0;
  for (const float logit : expected) largest = std::max(largest, std::abs(logit));
  // Flash attention adds values up in f16.
  EXPECT_LT(LargestDifference(expected, found), 0.02 * largest);
}

std::string TestName(const testing::TestParamInfo<LibraryModelOptions>& info) {
  std::string name;
  for (const char c : info.param.architecture) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) name += c;
  }
  return name + (info.param.has_experts ? "Experts" : "");
}

INSTANTIATE_TEST_SUITE_P(All, LibraryDeviceVerify, testing::ValuesIn(AllLibraryModels()), TestName);

}  // namespace
}  // namespace ebb

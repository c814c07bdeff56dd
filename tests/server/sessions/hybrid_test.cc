// Tests models with recurrent state or sliding windows: the next turn of a conversation continues
// from the checkpoint at the end of the last prompt, with the answer of a server that reads
// everything.
#include "tests/server/server_fixture.h"
#include "tests/support/engine/library_models.h"
#include "tests/support/expect_ok.h"
#include "tests/support/temp_folder.h"

namespace ebb::server {
namespace {

using nlohmann::json;

class HybridTest : public ServerTest, public testing::WithParamInterface<LibraryModelOptions> {
 protected:
  static void SetUpTestSuite() {}
  void SetUp() override {
    const TempFolder folder;
    const std::string path = folder.File("model.gguf");
    ExpectOk(WriteLibraryModel(GetParam(), path));
    auto model = Model::Load({.path = path});
    ASSERT_TRUE(model.ok()) << model.status().ToString();
    model_ = *model;
  }
};

TEST_P(HybridTest, AConversationGoesOnFromItsLastPrompt) {
  ServerOptions options = Options();
  options.driver.prefix_cache_bytes = 64 << 20;
  Start(options);
  const auto ask = [&](const json& body) {
    const ClientAnswer answer = Client(port()).Post("/v1/chat/completions", body);
    EXPECT_EQ(answer.status, 200) << answer.body;
    return answer.json();
  };
  std::string question;
  for (int i = 0; i < 30; ++i) question += "abc ";
  json body = {{"messages", {{{"role", "user"}, {"content", question}}}},
               {"max_tokens", 6},
               {"temperature", 0}};
  const json first = ask(body);
  body["messages"].push_back({{"role", "assistant"}, {"content", "ab"}});
  body["messages"].push_back({{"role", "user"}, {"content", "cd"}});
  const json second = ask(body);
  EXPECT_EQ(second["usage"]["prompt_tokens_details"]["cached_tokens"],
            first["usage"]["prompt_tokens"]);
  body["cache_prompt"] = false;
  const json whole = ask(body);
  EXPECT_EQ(whole["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
  EXPECT_EQ(second["choices"], whole["choices"]);
}

INSTANTIATE_TEST_SUITE_P(Models, HybridTest,
                         testing::Values(LibraryModelOptions{"qwen35moe", true, "q4_0"},
                                         LibraryModelOptions{"gemma2", false, "q4_0"}),
                         [](const auto& info) { return info.param.architecture; });

}  // namespace
}  // namespace ebb::server

// Checks long runs of one kind of character, with a pre-tokenizer whose regular expressions once
// overflowed the stack at 26 KB.
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include <nlohmann/json.hpp>

#include "src/server/server.h"
#include "tests/server/client.h"
#include "tests/support/expect_ok.h"
#include "tests/support/gguf_edit.h"
#include "tests/support/random_gguf.h"
#include "tests/support/temp_folder.h"

#ifdef EBB_LLAMA_IS_PATCHED
namespace ebb::server {
namespace {

using nlohmann::json;

class LongRunsTest : public testing::Test {
 protected:
  void SetUp() override {
    const TempFolder folder;
    ExpectOk(WriteRandomGguf({.num_layers = 1, .context = 2048}, folder.File("plain.gguf")));
    Result<GgufEdit> edit = GgufEdit::Open(folder.File("plain.gguf"));
    ASSERT_TRUE(edit.ok()) << edit.status().ToString();
    edit->SetText("tokenizer.ggml.pre", "tekken");
    ExpectOk(edit->Save(folder.File("model.gguf")));
    auto model = Model::Load({.path = folder.File("model.gguf")});
    ASSERT_TRUE(model.ok()) << model.status().ToString();
    ServerOptions options;
    options.port = 0;
    options.defaults.model_id = "random";
    options.defaults.engine.threads = 1;
    auto server = Server::Start(*model, options);
    ASSERT_TRUE(server.ok()) << server.status().ToString();
    server_ = *std::move(server);
  }
  ClientAnswer Post(const std::string& path, const json& body) {
    return Client(server_->port()).Post(path, body);
  }
  std::unique_ptr<Server> server_;
};

std::string LongRun(const std::string& character, size_t bytes) {
  std::string text;
  while (text.size() < bytes) text += character;
  return text;
}

json Messages(const std::string& text) { return {{{"role", "user"}, {"content", text}}}; }

TEST_F(LongRunsTest, AreTokenizedByEveryEndpointThatCounts) {
  for (const char* character : {"A", "-", " ", "\n", "中"}) {
    const std::string text = LongRun(character, 1'000'000);
    const ClientAnswer tokens = Post("/tokenize", {{"content", text}});
    ASSERT_EQ(tokens.status, 200) << character;
    EXPECT_GT(tokens.json()["count"], 80'000) << character;
    EXPECT_EQ(Post("/v1/responses/input_tokens", {{"input", text}}).status, 200) << character;
    EXPECT_EQ(Post("/v1/messages/count_tokens", {{"messages", Messages(text)}}).status, 200)
        << character;
  }
}

TEST_F(LongRunsTest, AreRefusedWhereTheContextIsTooSmall) {
  // The first text is below the limit in bytes and is tokenized; the second is above it.
  for (const size_t bytes : {24'000, 1'000'000}) {
    const std::string text = LongRun(" ", bytes);
    EXPECT_EQ(Post("/v1/chat/completions", {{"messages", Messages(text)}}).json()["error"]["code"],
              "context_length_exceeded");
    EXPECT_EQ(Post("/v1/completions", {{"prompt", text}}).json()["error"]["code"],
              "context_length_exceeded");
    EXPECT_EQ(Post("/v1/responses", {{"input", text}}).json()["error"]["code"],
              "context_length_exceeded");
    EXPECT_EQ(Post("/v1/messages", {{"messages", Messages(text)}, {"max_tokens", 1}}).status, 400);
  }
}

}  // namespace
}  // namespace ebb::server
#endif  // EBB_LLAMA_IS_PATCHED

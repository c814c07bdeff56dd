#include "apps/common/models/model_name.h"
#include "apps/common/models/hub_api.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace ebb::cli {
namespace {

using Source = ModelName::Source;
using testing::HasSubstr;

TEST(ModelNameTest, HubNames) {
  auto name = ParseModelName("hf:ggml-org/Qwen3-8B-GGUF");
  ASSERT_TRUE(name.ok()) << name.status().message();
  EXPECT_EQ(name->source, Source::kHub);
  EXPECT_EQ(name->repo, "ggml-org/Qwen3-8B-GGUF");
  EXPECT_EQ(name->quant + name->file, "");
  name = ParseModelName("hf:a/b.c:Q8_0");
  ASSERT_TRUE(name.ok());
  EXPECT_EQ(name->repo, "a/b.c");
  EXPECT_EQ(name->quant, "Q8_0");
  name = ParseModelName("hf:a/b/Q8/m-Q8_0.gguf");
  ASSERT_TRUE(name.ok());
  EXPECT_EQ(name->repo, "a/b");
  EXPECT_EQ(name->file, "Q8/m-Q8_0.gguf");
}

TEST(ModelNameTest, AFileOfTheHubByItsUrlIsItsHubName) {
  for (const char* url : {"https://huggingface.co/a/b/resolve/main/x/m.gguf?download=true",
                          "https://huggingface.co/a/b/blob/main/x/m.gguf"}) {
    const auto name = ParseModelName(url);
    ASSERT_TRUE(name.ok()) << name.status().message();
    EXPECT_EQ(name->source, Source::kHub);
    EXPECT_EQ(name->text, "hf:a/b/x/m.gguf");
  }
}

TEST(ModelNameTest, OllamaNames) {
  auto name = ParseModelName("ollama:qwen3");
  ASSERT_TRUE(name.ok()) << name.status().message();
  EXPECT_EQ(name->source, Source::kOllama);
  EXPECT_EQ(name->repo, "library/qwen3");
  EXPECT_EQ(name->tag, "latest");
  EXPECT_EQ(name->host, "");
  name = ParseModelName("ollama:someone/deepseek-r1:7b-q4_K_M");
  ASSERT_TRUE(name.ok());
  EXPECT_EQ(name->repo, "someone/deepseek-r1");
  EXPECT_EQ(name->tag, "7b-q4_K_M");
  name = ParseModelName("ollama:models.example.org:5000/team/tide:1");
  ASSERT_TRUE(name.ok()) << name.status().message();
  EXPECT_EQ(name->host, "models.example.org:5000");
  EXPECT_EQ(name->repo, "team/tide");
  EXPECT_EQ(name->tag, "1");
}

TEST(ModelNameTest, Urls) {
  const std::string hash(64, 'A');
  auto name = ParseModelName("https://example.org/m.gguf?x=1#sha256=" + hash);
  ASSERT_TRUE(name.ok()) << name.status().message();
  EXPECT_EQ(name->source, Source::kUrl);
  EXPECT_EQ(name->url, "https://example.org/m.gguf?x=1");
  EXPECT_EQ(name->sha256, std::string(64, 'a'));
  EXPECT_TRUE(ParseModelName("http://example.org/m.gguf#sha256=" + hash).ok());
  EXPECT_TRUE(ParseModelName("http://127.0.0.1:80/m.gguf").ok());
}

TEST(ModelNameTest, ARepositoryAndItsPageAreNamesOfTheHub) {
  for (const std::string& text :
       {std::string("tide/Moon-1B-GGUF"), HubEndpoint() + "/tide/Moon-1B-GGUF",
        HubEndpoint() + "/tide/Moon-1B-GGUF/", HubEndpoint() + "/tide/Moon-1B-GGUF/tree/main"}) {
    EXPECT_TRUE(IsModelName(text)) << text;
    const auto name = ParseModelName(text);
    ASSERT_TRUE(name.ok()) << name.status().message();
    EXPECT_EQ(name->source, Source::kHub);
    EXPECT_EQ(name->repo, "tide/Moon-1B-GGUF");
  }
  const auto name = ParseModelName("tide/Moon-1B-GGUF:Q8_0");
  ASSERT_TRUE(name.ok()) << name.status().message();
  EXPECT_EQ(name->quant, "Q8_0");
}

TEST(ModelNameTest, OthersAreRefusedWithWhatWasExpected) {
  const std::string hash(64, 'a');
  for (const std::string& text : {std::string("hf:"),
                                  std::string("hf:a"),
                                  std::string("hf:a/"),
                                  std::string("hf:/b"),
                                  std::string("hf:../b"),
                                  std::string("hf:a/.."),
                                  std::string("hf:a/b:"),
                                  std::string("hf:a/b:Q 8"),
                                  std::string("hf:a/b/../c.gguf"),
                                  std::string("hf:a/b/c.bin"),
                                  std::string("hf:a--x/b"),
                                  std::string("hf:a/b?c"),
                                  std::string("ollama:"),
                                  std::string("ollama:../x"),
                                  std::string("ollama:a:b:c"),
                                  std::string("ollama:a/b/c/d"),
                                  std::string("ollama:ho st/a/b"),
                                  std::string("https://example.org/m.bin"),
                                  std::string("https://"),
                                  std::string("http://example.org/m.gguf"),
                                  std::string("http://127.0.0.1.example.org/m.gguf"),
                                  std::string("https://example.org/m.gguf#sha256=12"),
                                  std::string("https://example.org/m-00002-of-00002.gguf"),
                                  "https://example.org/m-00001-of-00002.gguf#sha256=" + hash,
                                  std::string("file:///etc/passwd"),
                                  std::string("qwen")}) {
    const auto name = ParseModelName(text);
    EXPECT_EQ(name.status().code(), StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(name.status().message(), HasSubstr("expected ")) << text;
  }
  EXPECT_FALSE(IsModelName("./models/hf:a"));
  EXPECT_FALSE(IsModelName("models/qwen.gguf"));
  EXPECT_FALSE(IsModelName("a/b/c"));
  EXPECT_FALSE(IsModelName("file:///a"));
}

}  // namespace
}  // namespace ebb::cli

// Required calls in the formats of published models: the templates that come with llama.cpp's
// source.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "ebb/sampler.h"
#include "src/model/chat/chat.h"
#include "tests/support/skip.h"
#include "tests/support/tiny_model.h"

namespace ebb {
namespace {

namespace fs = std::filesystem;

const std::string kTemplates =
    std::string(EBB_SOURCE_DIR) + "/build/deps/llama.cpp/models/templates";

std::vector<fs::path> PublishedTemplates() {
  std::error_code error;
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(kTemplates, error)) {
    if (entry.path().extension() == ".jinja") paths.push_back(entry.path());
  }
  std::ranges::sort(paths);
  return paths;
}

std::string ReadAll(const fs::path& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// The library leaves schemas, or what they require, out of its grammars of these formats.
bool TakesAnyArguments(const fs::path& path) {
  const std::string name = path.filename().string();
  return name.starts_with("LFM2") || name.starts_with("google-gemma-4") ||
         name.starts_with("openbmb-MiniCPM5");
}

class CallFormats : public TinyModelTest {
 protected:
  // A text of the grammar, drawn at random. likes_end: it ends where the grammar admits it, and
  // else where it must.
  static std::string Drawn(const ChatPrompt& prompt, uint64_t seed, bool likes_end = true) {
    const auto sampler = Sampler::Create(*model_, {.temperature = 1,
                                                   .top_k = 0,
                                                   .top_p = 1,
                                                   .min_p = 0,
                                                   .seed = seed,
                                                   .grammar = prompt.grammar,
                                                   .grammar_prefix = prompt.grammar_prefix});
    EXPECT_TRUE(sampler.ok()) << sampler.status().ToString() << prompt.grammar;
    if (!sampler.ok()) return "";
    std::mt19937_64 random(seed);
    std::normal_distribution<float> normal(0, 2);
    std::string text;
    for (int i = 0; i < 1000; ++i) {
      std::vector<float> logits(model_->shape().vocab_size);
      for (size_t t = 0; t < logits.size(); ++t) {
        const auto token = static_cast<Token>(t);
        const std::string one = model_->TokenText(token, Model::ControlTokens::kHide);
        const bool is_ascii = !one.empty() && static_cast<unsigned char>(one[0]) < 0x80;
        const bool closes = one == "\"" || one == "}" || one == "]" || one == "<" || one == "'";
        logits[t] = normal(random) +
                    (model_->EndsGeneration(token) ? (likes_end ? 20.0F : -20.0F) : 0.0F) +
                    (closes ? 8.0F : 0.0F) - (is_ascii ? 0.0F : 15.0F) -
                    (one == " " || one == "\n" || one == "\t" ? 6.0F : 0.0F);
      }
      const Result<Token> token = (*sampler)->Sample(logits, i);
      EXPECT_TRUE(token.ok()) << token.status().ToString() << " behind " << text;
      if (!token.ok() || model_->EndsGeneration(*token)) return text;
      text += model_->TokenText(*token, Model::ControlTokens::kShow);
    }
    return text + "...";
  }
};

// gpt-oss writes its thought, its answer and its calls as messages of their own.
TEST_F(CallFormats, GptOssWritesToChannels) {
  const fs::path path = fs::path(kTemplates) / "openai-gpt-oss-120b.jinja";
  if (!fs::exists(path)) EBB_SKIP_WITHOUT("llama_cpp_source") << path << " is not there";
  const auto parsed = ChatTemplate::Parse(nullptr, ReadAll(path));
  ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
  ChatRequest request = {.messages = {{"user", "hi"}}};
  Result<ChatPrompt> prompt = (*parsed)->Render(request);
  ASSERT_TRUE(prompt.ok()) << prompt.status().ToString();
  EXPECT_TRUE(prompt->text.ends_with("<|start|>assistant")) << prompt->text;
  EXPECT_EQ(prompt->thinking_start, "<|channel|>analysis<|message|>");
  EXPECT_EQ(prompt->thinking_end, "<|end|>");
  EXPECT_EQ(prompt->channels.message, "<|start|>assistant");
  EXPECT_EQ(prompt->after_thought, "<|start|>assistant<|channel|>final<|message|>");

  request.tools = {{.name = "f", .description = "adds", .parameters = R"({"type": "object"})"}};
  prompt = (*parsed)->Render(request);
  ASSERT_TRUE(prompt.ok()) << prompt.status().ToString();
  EXPECT_EQ(prompt->after_thought, "<|start|>assistant");
  EXPECT_EQ(ParseAnswer(*prompt, "It is 3.", AnswerEnd::kComplete)->content, "It is 3.");
  for (const std::string text :
       {"<|channel|>commentary to=functions.f<|constrain|>json<|message|>{\"a\": 1}",
        "to=functions.f<|channel|>commentary json<|message|>{\"a\": 1}"}) {
    const Result<ChatAnswer> call = ParseAnswer(*prompt, text, AnswerEnd::kComplete);
    ASSERT_TRUE(call.ok()) << call.status().ToString();
    ASSERT_EQ(call->tool_calls.size(), 1U) << text;
    EXPECT_EQ(call->tool_calls[0].name, "f");
    EXPECT_EQ(call->tool_calls[0].arguments, "{\"a\": 1}");
    for (const size_t size : {1, 2}) {
      EXPECT_EQ(ParseAnswer(*prompt, text.substr(0, size), AnswerEnd::kPartial)->content, "");
    }
  }

  // The next turn: the template refuses marks in a content, and takes a thought apart.
  request.messages = {{"user", "hi"},
                      {.role = "assistant", .content = "Hello.", .reasoning_content = "greet"},
                      {"user", "bye"}};
  prompt = (*parsed)->Render(request);
  ASSERT_TRUE(prompt.ok()) << prompt.status().ToString();
  EXPECT_NE(prompt->text.find("<|channel|>final<|message|>Hello.<|end|>"), std::string::npos)
      << prompt->text;
}

TEST_F(CallFormats, ARequiredCallBeginsTheAnswer) {
  const std::vector<fs::path> paths = PublishedTemplates();
  if (paths.empty()) EBB_SKIP_WITHOUT("llama_cpp_source") << kTemplates << " is not there";
  ChatRequest request = {
      .messages = {{"user", "How is Oslo?"}},
      .tools = {{.name = "weather",
                 .description = "What the weather is like.",
                 .parameters =
                     R"({"type": "object", "properties": {"place": {"type": "integer"}, "days":)"
                     R"( {"type": "integer", "minimum": 1, "maximum": 12}}, "required":)"
                     R"( ["place", "days"]})"}},
      .tool_choice = "required"};
  size_t num_formats = 0;
  // Of formats in which values are texts up to a mark, which chance does not write.
  std::vector<std::string> unfinished;
  for (const fs::path& path : paths) {
    const auto parsed = ChatTemplate::Parse(nullptr, ReadAll(path));
    if (!parsed.ok()) continue;
    const Result<ChatPrompt> prompt = (*parsed)->Render(request);
    if (!prompt.ok()) {
      // Its template takes no tools, or does not say how a call looks.
      EXPECT_EQ(prompt.status().code(), StatusCode::kUnsupported) << path;
      continue;
    }
    ++num_formats;
    for (const uint64_t seed : {1, 2}) {
      const std::string text = Drawn(*prompt, seed);
      if (text.ends_with("...")) {
        unfinished.push_back(path.filename().string());
        continue;
      }
      const Result<ChatAnswer> answer = ParseAnswer(*prompt, text, AnswerEnd::kComplete);
      ASSERT_TRUE(answer.ok()) << path << answer.status().ToString() << "\n" << text;
      EXPECT_GE(answer->tool_calls.size(), 1u) << path << "\n" << text << "\n" << prompt->grammar;
      // One format lets text follow its calls.
      const bool begins_with_text = !answer->content.empty() && text.starts_with(answer->content);
      EXPECT_FALSE(begins_with_text) << path << "\n" << text;
      for (const ToolCall& call : answer->tool_calls) {
        EXPECT_EQ(call.name, "weather") << path;
        const auto arguments = nlohmann::json::parse(call.arguments, nullptr, false);
        if (TakesAnyArguments(path)) continue;
        ASSERT_TRUE(arguments.is_object()) << path << call.arguments << "\n" << text;
        const auto place = arguments.find("place"), days = arguments.find("days");
        ASSERT_TRUE(place != arguments.end() && place->is_number_integer()) << path << text;
        ASSERT_TRUE(days != arguments.end() && days->is_number_integer()) << path << text;
        EXPECT_TRUE(*days >= 1 && *days <= 12) << path << text;
      }
    }
  }
  EXPECT_GE(num_formats, 40u);
  EXPECT_LE(unfinished.size(), num_formats / 2) << testing::PrintToString(unfinished);
}

// Without parallel calls an answer has one, however long the model would go on.
TEST_F(CallFormats, OneCallIsOneCall) {
  const std::vector<fs::path> paths = PublishedTemplates();
  if (paths.empty()) EBB_SKIP_WITHOUT("llama_cpp_source") << kTemplates << " is not there";
  size_t num_formats = 0;
  for (const fs::path& path : paths) {
    const auto parsed = ChatTemplate::Parse(nullptr, ReadAll(path));
    if (!parsed.ok()) continue;
    for (const char* choice : {"required", "auto"}) {
      const Result<ChatPrompt> prompt =
          (*parsed)->Render({.messages = {{"user", "hi"}},
                             .tools = {{.name = "f",
                                        .parameters = R"({"type": "object", "properties": {"x":)"
                                                      R"( {"const": 1}}, "required": ["x"]})"}},
                             .tool_choice = choice,
                             .parallel_tool_calls = false});
      if (!prompt.ok() || prompt->grammar.empty()) continue;
      ++num_formats;
      const std::string text = Drawn(*prompt, 3, /*likes_end=*/false);
      const auto answer = ParseAnswer(*prompt, text, AnswerEnd::kPartial);
      ASSERT_TRUE(answer.ok()) << path << choice << answer.status().ToString() << "\n" << text;
      EXPECT_LE(answer->tool_calls.size(), 1U) << path << choice << "\n" << text;
    }
  }
  EXPECT_GE(num_formats, 80U);
}

}  // namespace
}  // namespace ebb

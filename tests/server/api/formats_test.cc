// Tests answers in the formats of published models, with the templates in llama.cpp's source: the
// pieces of a stream add up to the complete answer, and no text is lost.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "ebb/model.h"
#include "ebb/sampler.h"
#include "src/server/api/openai/answer.h"
#include "tests/support/gguf_edit.h"
#include "tests/support/random_gguf.h"
#include "tests/support/skip.h"
#include "tests/support/temp_folder.h"

namespace ebb::server {
namespace {

namespace fs = std::filesystem;

struct Format {
  std::string name;
  std::shared_ptr<const ChatPrompt> prompt;
  std::string call;  // a call of "f" in this format; empty: none of the random ones ended
};

// Returns a random text of the prompt's grammar.
std::string DrawnCall(const Model& model, const ChatPrompt& prompt) {
  const auto sampler = Sampler::Create(model, {.temperature = 1,
                                               .top_k = 0,
                                               .top_p = 1,
                                               .min_p = 0,
                                               .grammar = prompt.grammar,
                                               .grammar_prefix = prompt.grammar_prefix});
  if (!sampler.ok()) return "";
  std::mt19937_64 random(1);
  std::string text;
  for (int i = 0; i < 300; ++i) {
    std::vector<float> logits(static_cast<size_t>(model.shape().vocab_size));
    for (size_t t = 0; t < logits.size(); ++t) {
      const auto token = static_cast<Token>(t);
      const std::string one = model.TokenText(token, Model::ControlTokens::kHide);
      const bool closes = one == "\"" || one == "}" || one == "]" || one == "<" || one == "'";
      const bool is_blank = one == " " || one == "\n" || one == "\t";
      const bool is_ascii = !one.empty() && static_cast<unsigned char>(one[0]) < 0x80;
      logits[t] = static_cast<float>(random() % 100) / 100 +
                  (model.EndsGeneration(token) ? 20.0F : 0.0F) + (closes ? 8.0F : 0.0F) -
                  (is_blank ? 6.0F : 0.0F) - (is_ascii ? 0.0F : 15.0F);
    }
    const Result<Token> token = (*sampler)->Sample(logits, i);
    if (!token.ok() || model.EndsGeneration(*token)) return text;
    text += model.TokenText(*token, Model::ControlTokens::kShow);
  }
  return "";
}

// Returns the formats of all templates that support tools.
const std::vector<Format>& Formats() {
  static const std::vector<Format> formats = [] {
    std::vector<Format> all;
    std::error_code error;
    std::vector<fs::path> paths;
    const std::string folder = EBB_SOURCE_DIR "/build/deps/llama.cpp/models/templates";
    for (const auto& entry : fs::directory_iterator(folder, error)) {
      if (entry.path().extension() == ".jinja") paths.push_back(entry.path());
    }
    std::ranges::sort(paths);
    const TempFolder models;
    const std::string path = models.File("model.gguf");
    EXPECT_TRUE(WriteRandomGguf({.num_layers = 1}, path).ok());
    for (const fs::path& one : paths) {
      std::stringstream source;
      source << std::ifstream(one).rdbuf();
      const auto model = Model::Load({.path = path, .chat_template = source.str()});
      EXPECT_TRUE(model.ok()) << model.status().ToString();
      ChatRequest request = {.messages = {{"user", "hi"}},
                             .tools = {{.name = "f",
                                        .parameters = R"({"type": "object", "properties": {"x":)"
                                                      R"( {"type": "string"}}})"}}};
      auto prompt = (*model)->FormatChat(request);
      if (!prompt.ok()) continue;
      Format& format = all.emplace_back();
      format.name = one.filename().string();
      format.prompt = std::make_shared<const ChatPrompt>(*std::move(prompt));
      request.tool_choice = "required";
      const auto required = (*model)->FormatChat(request);
      if (required.ok()) format.call = DrawnCall(**model, *required);
    }
    return all;
  }();
  return formats;
}

struct Read {
  AnswerPiece answer;
  bool has_calls = false;
  bool is_malformed = false;
};

Read ReadInPieces(const Format& format, const std::string& text, size_t size,
                  AnswerEnd end = AnswerEnd::kComplete) {
  AnswerReader reader(format.prompt, Calls::kParsed, {});
  Read read;
  for (size_t i = 0; i < text.size(); i += size) {
    read.answer.Append(reader.Add(text.substr(i, size), TextPart::kAnswer));
  }
  read.answer.Append(reader.End(end));
  read.has_calls = reader.has_calls();
  read.is_malformed = reader.is_malformed();
  return read;
}

class AnswerFormats : public testing::Test {
 protected:
  void SetUp() override {
    if (Formats().empty()) EBB_SKIP_WITHOUT("llama_cpp_source") << "there are no templates";
    ASSERT_GE(Formats().size(), 50U);
  }
  static void ExpectSame(const Format& format, const std::string& text, AnswerEnd end) {
    const Read whole = ReadInPieces(format, text, text.size(), end);
    for (const size_t size : {1, 3, 7}) {
      const Read pieces = ReadInPieces(format, text, size, end);
      const std::string where = format.name + ", pieces of " + std::to_string(size) + ":\n" + text;
      EXPECT_EQ(pieces.answer.content, whole.answer.content) << where;
      EXPECT_EQ(pieces.answer.calls, whole.answer.calls) << where;
      EXPECT_EQ(pieces.has_calls, whole.has_calls) << where;
      EXPECT_EQ(pieces.is_malformed, whole.is_malformed) << where;
    }
  }
};

// kTexts holds beginnings of calls in all formats; each is plain text in most formats.
const std::vector<std::string> kTexts = {
    "Hello.",
    "\n\n  if x:\n    y()\n",
    " \n",
    "a < b, [x], {y} and \"z\" \n",
    "Use <tool_call> to call, or {\"name\": \"f\"}.",
    "\n\nI will.\n<tool_call>\n{bad",
    "I look. <tool_call>\nno JSON at all",
    "<tool_call>\n{\"name\": \"f\", \"arguments\": {bad",
    "{\"name\": \"f\", \"parameters\": {bad",
    "[TOOL_CALLS]f[ARGS]{bad",
    "<|tool_call_start|>[f(x=",
    "<function=f>\n<parameter=x>\n1",
    "<tool_call>\n<function=g>\n</function>\n</tool_call> no",
    "[f(x=1)] or [f(",
};

TEST_F(AnswerFormats, PiecesOfATextMakeTheWhole) {
  for (const Format& format : Formats()) {
    for (const std::string& text : kTexts) {
      ExpectSame(format, text, AnswerEnd::kComplete);
      ExpectSame(format, text, AnswerEnd::kPartial);
    }
  }
}

TEST_F(AnswerFormats, PiecesOfACallMakeTheWhole) {
  size_t num_calls = 0;
  for (const Format& format : Formats()) {
    const std::string& call = format.call;
    if (call.empty()) continue;
    ++num_calls;
    for (const std::string& text :
         {call, "\n\nI will.\n" + call, call + " and so", call + "\n" + call,
          call.substr(0, call.size() / 2), call.substr(0, call.size() * 3 / 4),
          "Well: " + call.substr(0, call.size() - 2), call.substr(0, call.size() / 2) + "{]"}) {
      ExpectSame(format, text, AnswerEnd::kComplete);
    }
    EXPECT_TRUE(ReadInPieces(format, call, call.size()).has_calls) << format.name << "\n" << call;
  }
  EXPECT_GE(num_calls, 30U);
}

// Checks that an answer without calls is its text, with leading blanks.
TEST_F(AnswerFormats, AnAnswerWithoutCallsIsItsText) {
  std::vector<std::string> texts = kTexts;
  texts.push_back(std::string(600, '['));
  texts.push_back(std::string(600, '{') + " and more");
  texts.push_back("    indented");
  for (const Format& format : Formats()) {
    for (const std::string& text : texts) {
      const Read read = ReadInPieces(format, text, text.size());
      if (!read.answer.calls.empty()) continue;
      EXPECT_EQ(read.answer.content, text) << format.name;
    }
  }
}

// Checks that arguments are JSON, or that the answer does not end with calls.
TEST_F(AnswerFormats, CallsThatAreToldAreWhole) {
  for (const Format& format : Formats()) {
    for (size_t size = 1; size <= format.call.size(); size += 5) {
      const Read read = ReadInPieces(format, format.call.substr(0, size), 1000);
      if (!read.has_calls) continue;
      for (const CallPiece& call : read.answer.calls) {
        EXPECT_TRUE(nlohmann::json::accept(call.arguments)) << format.name << "\n"
                                                            << format.call.substr(0, size) << "\n"
                                                            << call.arguments;
      }
    }
  }
}

// Puts brackets of plain text before a valid call, and brackets into its strings.
TEST_F(AnswerFormats, BracketsOfTextsDoNotCount) {
  for (const Format& format : Formats()) {
    const std::string quoted = "\"x\":";
    const size_t at = format.call.find(quoted);
    if (at == std::string::npos) continue;
    const size_t begin = format.call.find('"', at + quoted.size());
    if (begin == std::string::npos) continue;
    const std::string text = format.call.substr(0, begin + 1) + std::string(600, '[') +
                             std::string(600, '{') + format.call.substr(begin + 1);
    const Read read = ReadInPieces(format, text, text.size());
    ASSERT_TRUE(read.has_calls) << format.name << "\n" << text;
    const auto arguments = nlohmann::json::parse(read.answer.calls[0].arguments);
    EXPECT_TRUE(arguments["x"].get<std::string>().starts_with(std::string(600, '[') + "{"))
        << format.name;
  }
}

}  // namespace
}  // namespace ebb::server

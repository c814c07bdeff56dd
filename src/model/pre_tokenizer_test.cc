// Pre-tokenizers of libllama, which split a text by regular expressions before its words become
// tokens: a long run of one kind of character must not overflow the stack.
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <regex>
#include <string>
#include <vector>

#include "ebb/model.h"
#include "tests/support/expect_ok.h"
#include "tests/support/gguf_edit.h"
#include "tests/support/random_gguf.h"
#include "tests/support/temp_folder.h"

// A libllama that is installed, or built from another source, splits by std::regex.
#ifdef EBB_LLAMA_IS_PATCHED
#include <linear_regex.h>

namespace ebb {
namespace {

std::string Repeated(const std::string& piece, size_t count) {
  std::string text;
  for (size_t i = 0; i < count; ++i) text += piece;
  return text;
}

std::vector<std::string> LongRuns(size_t length) {
  std::vector<std::string> texts;
  for (const std::string piece : {"A", "a", "7", "-", " ", "\n", "中", "é"}) {
    texts.push_back(Repeated(piece, length));
  }
  texts.push_back(Repeated("aB3dE+/9Zk", length / 10));
  texts.push_back(Repeated(" ", length) + "7");
  texts.push_back(Repeated("<|im_end|>", length / 10));
  return texts;
}

// One name for each list of regular expressions in libllama (llama-vocab.cpp).
std::vector<std::string> PreTokenizerNames() {
  return {"default",      "llama-bpe",   "jais-2",       "dbrx",          "smaug-bpe",
          "deepseek-llm", "deepseek-v3", "spark2_5",     "youtu",         "deepseek-coder",
          "falcon",       "starcoder",   "gpt-2",        "qwen2",         "qwen35",
          "poro-chat",    "bloom",       "gpt3-finnish", "chatglm-bpe",   "viking",
          "tekken",       "chameleon",   "gpt-4o",       "llama4",        "granite-embed-multi-97m",
          "tiny_aya",     "kimi-k2",     "superbpe",     "bailingmoe",    "seed-coder",
          "ufakzeka",     "grok-2",      "afmoe",        "laguna",        "exaone-moe",
          "gemma4",       "sarvam-moe",  "minicpm5",     "hunyuan-dense", "minerva-7b"};
}

class PreTokenizerTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const std::string path = folder_.File("model.gguf");
    ExpectOk(WriteRandomGguf({.num_layers = 1}, path));
    Result<GgufEdit> edit = GgufEdit::Open(path);
    ASSERT_TRUE(edit.ok()) << edit.status().ToString();
    edit->SetText("tokenizer.ggml.pre", GetParam());
    const std::string edited = folder_.File("edited.gguf");
    ExpectOk(edit->Save(edited));
    Result<std::shared_ptr<const Model>> model = Model::Load({.path = edited});
    ASSERT_TRUE(model.ok()) << model.status().ToString();
    model_ = *model;
  }
  // Whether tokens are bytes, so that their texts join to the text.
  [[nodiscard]] static bool HasByteTokens() {
    return GetParam() != "gemma4" && GetParam() != "sarvam-moe";
  }
  TempFolder folder_;
  std::shared_ptr<const Model> model_;
};

TEST_P(PreTokenizerTest, TokenizesALongRunOfOneKindOfCharacter) {
  for (const std::string& text : LongRuns(40'000)) {
    const auto tokens = model_->Tokenize(text, Model::AddBos::kNo, Model::Specials::kAsText);
    ASSERT_TRUE(tokens.ok()) << tokens.status().ToString();
    if (!HasByteTokens()) continue;
    std::string joined;
    for (const Token token : *tokens) {
      joined += model_->TokenText(token, Model::ControlTokens::kHide);
    }
    EXPECT_TRUE(joined == text) << testing::PrintToString(text.substr(0, 20));
  }
}

INSTANTIATE_TEST_SUITE_P(All, PreTokenizerTest, testing::ValuesIn(PreTokenizerNames()),
                         [](const auto& info) {
                           std::string name = info.param;
                           for (char& c : name) {
                             if (c == '-' || c == '.') c = '_';
                           }
                           return name;
                         });

// What std::regex_iterator makes of a text, as libllama's own code counts it.
template <typename CharT>
std::vector<size_t> SplitByStdRegex(const std::basic_string<CharT>& text,
                                    const std::basic_regex<CharT>& regex) {
  using Iterator = std::regex_iterator<typename std::basic_string<CharT>::const_iterator>;
  std::vector<size_t> lengths;
  size_t end = 0;
  for (Iterator it(text.begin(), text.end(), regex); it != Iterator(); ++it) {
    const auto position = static_cast<size_t>(it->position());
    if (position > end) lengths.push_back(position - end);
    lengths.push_back(it->length());
    end = position + it->length();
  }
  if (end < text.size()) lengths.push_back(text.size() - end);
  return lengths;
}

// Forms of libllama's expressions, with categories as the bytes by which libllama replaces them.
const std::vector<std::string>& Expressions() {
  static const std::vector<std::string> expressions = {
      R"([^\r\nL0-9]?((?=[LA-Za-z])([^a-z]))*((?=[LA-Za-z])([^A-Z]))+(?:'[sS]|'[lL][lL])?|[0-9]{1,3}| ?[^\sL0-9]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
      R"([\r\n])",
      R"(\s?[!-/:-~]+)",
      R"(\s+$)",
      R"((?=(\d{3})+(?!\d)))",
      R"(( ?[^(\s|.,!?)]+))",
      R"([!-#%-*,-/:-;?-@\[-\]_\{\}\$\+<=>\^~\|`]+)",
      R"((AB)((A|B|C){1,4})Z)",
      R"(([\t\n]|    |  ))",
      R"([^\r\n0-9]?(?:[A-Za-z]L*(?: [A-Za-z]L*)*)+|[0-9]{2,}|\s{7}(?!\S)|\s{1,2}(?!\S)|\s{1})",
      R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[0-9]{3})"};
  return expressions;
}

TEST(LinearRegexTest, SplitsAsStdRegexDoes) {
  const std::string characters = "aAzLB7123  \n\r\t-'slS.<|>/()[]{}_^$+=~`\"\\,!?CZ";
  std::mt19937 random(1);
  for (const std::string& expression : Expressions()) {
    const std::regex expected(expression);
    LinearRegex<char> regex(expression);
    for (int i = 0; i < 300; ++i) {
      std::string text;
      // Few different characters, so that there are runs.
      const size_t first = random() % characters.size();
      const size_t num_different = 1 + random() % 12;
      const size_t length = random() % 60;
      while (text.size() < length) {
        text += characters[(first + random() % num_different) % characters.size()];
      }
      std::vector<size_t> lengths;
      regex.Split(text.data(), text.size(), &lengths);
      EXPECT_EQ(lengths, SplitByStdRegex(text, expected))
          << expression << ", " << testing::PrintToString(text);
    }
  }
}

TEST(LinearRegexTest, SplitsWideCharactersAsStdRegexDoes) {
  const std::wstring expression = L"[一-龥ࠀ-一가-퟿]+|[^！…、-〿A-Z]{2}";
  const std::wregex expected(expression);
  LinearRegex<wchar_t> regex(expression);
  for (const std::wstring text : {L"", L"A", L"中文 mixed 가나！…ABC", L"、〾〿x😀😀😀A"}) {
    std::vector<size_t> lengths;
    regex.Split(text.data(), text.size(), &lengths);
    EXPECT_EQ(lengths, SplitByStdRegex(text, expected));
  }
}

TEST(LinearRegexTest, RefusesWhatItDoesNotSupport) {
  for (const std::string expression : {"a*?", "a++", "(a*)*", "(?<=a)b", "\\bword", "(a", "a)",
                                       "[a", "a{2", "a{3,2}", "\\1", "^a", "[b-a]", "\\p{L}"}) {
    EXPECT_THROW(LinearRegex<char>{expression}, std::regex_error) << expression;
  }
}

}  // namespace
}  // namespace ebb
#endif  // EBB_LLAMA_IS_PATCHED

#include <gguf.h>
#include <gtest/gtest.h>
#include <llama.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "ebb/model.h"
#include "src/model/loaded/loaded_model.h"
#include "tests/support/default_model.h"
#include "tests/support/expect_ok.h"
#include "tests/support/gguf_edit.h"
#include "tests/support/random_gguf.h"
#include "tests/support/skip.h"
#include "tests/support/temp_folder.h"

namespace ebb {
namespace {

using AddBos = Model::AddBos;
using ControlTokens = Model::ControlTokens;
using Specials = Model::Specials;
using Kind = RandomGgufOptions::Tokenizer;

std::vector<std::string> Texts() {
  return {"",
          "a",
          "abc def",
          "  two  spaces\n\n\tand more ",
          "<|im_start|>user\nhello<|im_end|>\n",
          "x<|im_end|><|im_end|>y",
          "aé€😀\xcc\x81 mixed",
          std::string("nul\0inside", 10),
          "\xff\xfe invalid \x80",
          std::string(5000, 'z')};
}

using PeerPtr = std::unique_ptr<llama_model, LlamaModelDeleter>;

// A second reading of the file, by libllama alone.
PeerPtr LoadPeer(const std::string& path) {
  llama_model_params params = llama_model_default_params();
  params.vocab_only = true;
  return PeerPtr(llama_model_load_from_file(path.c_str(), params));
}

// With a BOS token that the text brings in the place of one in front of it.
std::vector<Token> PeerTokens(const llama_model& peer, const std::string& text, AddBos add_bos,
                              Specials specials) {
  std::vector<Token> tokens(2 * text.size() + 8);
  const int count =
      llama_tokenize(llama_model_get_vocab(&peer), text.data(), static_cast<int>(text.size()),
                     tokens.data(), static_cast<int>(tokens.size()),
                     add_bos == AddBos::kAsModelSays, specials == Specials::kParse);
  EXPECT_GE(count, 0);
  tokens.resize(std::max(count, 0));
  const Token bos = llama_vocab_bos(llama_model_get_vocab(&peer));
  const bool adds = add_bos == AddBos::kAsModelSays && specials == Specials::kParse;
  const bool has_two = adds && tokens.size() >= 2 && tokens[0] == bos && tokens[1] == bos;
  if (has_two) tokens.erase(tokens.begin());
  return tokens;
}

struct Case {
  std::string name;
  Kind tokenizer = Kind::kBytePair;
  bool add_bos = false;
};

class TokenizerTest : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const std::string path = folder_.File("model.gguf");
    Status status = WriteRandomGguf({.num_layers = 1, .tokenizer = GetParam().tokenizer}, path);
    ASSERT_TRUE(status.ok()) << status.ToString();
    Result<GgufEdit> edit = GgufEdit::Open(path);
    ASSERT_TRUE(edit.ok()) << edit.status().ToString();
    gguf_set_val_bool(edit->metadata(), "tokenizer.ggml.add_bos_token", GetParam().add_bos);
    const std::string edited = folder_.File("edited.gguf");
    status = edit->Save(edited);
    ASSERT_TRUE(status.ok()) << status.ToString();

    Result<std::shared_ptr<const Model>> model = Model::Load({.path = edited});
    ASSERT_TRUE(model.ok()) << model.status().ToString();
    model_ = *model;
    peer_ = LoadPeer(edited);
    ASSERT_NE(peer_, nullptr);
  }

  [[nodiscard]] std::vector<Token> Tokens(const std::string& text, AddBos add_bos,
                                          Specials specials) const {
    Result<std::vector<Token>> tokens = model_->Tokenize(text, add_bos, specials);
    EXPECT_TRUE(tokens.ok()) << tokens.status().ToString();
    return *std::move(tokens);
  }
  TempFolder folder_;
  std::shared_ptr<const Model> model_;
  PeerPtr peer_;
};

TEST_P(TokenizerTest, AgreesWithLibllamaOnEveryTextAndSetting) {
  for (const std::string& text : Texts()) {
    for (const AddBos add_bos : {AddBos::kNo, AddBos::kAsModelSays}) {
      for (const Specials specials : {Specials::kAsText, Specials::kParse}) {
        EXPECT_EQ(Tokens(text, add_bos, specials), PeerTokens(*peer_, text, add_bos, specials))
            << testing::PrintToString(text);
      }
    }
  }
}

TEST_P(TokenizerTest, AddsBosOnlyWhenAskedAndTheModelSaysSo) {
  const std::vector<Token> plain = Tokens("abc", AddBos::kNo, Specials::kParse);
  std::vector<Token> expected = plain;
  constexpr Token kBos = 1;
  if (GetParam().add_bos) expected.insert(expected.begin(), kBos);
  EXPECT_EQ(Tokens("abc", AddBos::kAsModelSays, Specials::kParse), expected);
}

TEST_P(TokenizerTest, TextsOfTokensJoinToTheText) {
  // Sentence-piece tokenizers put a space before the first word.
  const std::string before = GetParam().tokenizer == Kind::kUnigram ? " " : "";
  for (const std::string text : {"abc def", "aé€😀z\n\n", "x<|im_end|>y"}) {
    std::string joined;
    for (const Token token : Tokens(text, AddBos::kNo, Specials::kAsText)) {
      joined += model_->TokenText(token, ControlTokens::kHide);
    }
    EXPECT_EQ(joined, before + text);
  }
}

TEST_P(TokenizerTest, SpecialTokensAndTheTextBetweenThemJoinToTheText) {
  for (const std::string text :
       {"<|im_end|>a<|im_end|>b<|im_start|>c<|im_end|>", "a<|im_start|>b<|im_start|><|im_end|>",
        "<|im_start|>a<|im_end|><|im_start|><|im_end|>b"}) {
    std::string joined;
    for (const Token token : Tokens(text, AddBos::kNo, Specials::kParse)) {
      joined += model_->TokenText(token, ControlTokens::kShow);
    }
    std::erase(joined, ' ');  // of sentence-piece tokenizers
    EXPECT_EQ(joined, text);
  }
}

#ifdef EBB_LLAMA_IS_PATCHED
// In quadratic time these would end after the timeout of a test.
TEST_P(TokenizerTest, CharactersWithoutATokenTakeLinearTime) {
  const size_t size = 3'000'000;
  const auto tokens = Tokens(std::string(size, 'A'), AddBos::kNo, Specials::kAsText);
  EXPECT_GE(tokens.size(), size);
}

TEST_P(TokenizerTest, ManySpecialTokensTakeLinearTime) {
  std::string text;
  for (int i = 0; i < 100'000; ++i) text += "<|im_end|>a<|im_start|>";
  EXPECT_EQ(Tokens(text, AddBos::kNo, Specials::kParse).size(), 300'000u);
}
#endif

INSTANTIATE_TEST_SUITE_P(All, TokenizerTest,
                         testing::Values(Case{"BytePair", Kind::kBytePair, false},
                                         Case{"BytePairWithBos", Kind::kBytePair, true},
                                         Case{"Unigram", Kind::kUnigram, true},
                                         Case{"UnigramWithoutBos", Kind::kUnigram, false}),
                         [](const auto& info) { return info.param.name; });

class TokenTextTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::string path = folder_.File("model.gguf");
    const Status status = WriteRandomGguf({.num_layers = 1}, path);
    ASSERT_TRUE(status.ok()) << status.ToString();
    Result<std::shared_ptr<const Model>> model = Model::Load({.path = path});
    ASSERT_TRUE(model.ok()) << model.status().ToString();
    model_ = *model;
  }
  TempFolder folder_;
  std::shared_ptr<const Model> model_;
};

TEST_F(TokenTextTest, ControlTokensShowOnlyWhenAskedFor) {
  constexpr Token kEnd = 2;
  EXPECT_EQ(model_->TokenText(kEnd, ControlTokens::kHide), "");
  EXPECT_EQ(model_->TokenText(kEnd, ControlTokens::kShow), "<|im_end|>");
}

TEST_F(TokenTextTest, IsEmptyOutsideTheVocabulary) {
  EXPECT_EQ(model_->TokenText(-1, ControlTokens::kShow), "");
  EXPECT_EQ(model_->TokenText(model_->shape().vocab_size, ControlTokens::kShow), "");
}

TEST_F(TokenTextTest, OnlyTheEndTokenEndsGeneration) {
  std::vector<Token> ends;
  for (Token token = 0; token < model_->shape().vocab_size; ++token) {
    if (model_->EndsGeneration(token)) ends.push_back(token);
  }
  EXPECT_EQ(ends, std::vector<Token>{2});
}

void ExpectAgreesWithLibllama(const std::string& path, const std::vector<std::string>& texts) {
  const auto model = Model::Load({.path = path});
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  const auto peer = LoadPeer(path);
  ASSERT_NE(peer, nullptr);
  for (const std::string& text : texts) {
    for (const AddBos add_bos : {AddBos::kNo, AddBos::kAsModelSays}) {
      for (const Specials specials : {Specials::kAsText, Specials::kParse}) {
        const auto tokens = (*model)->Tokenize(text, add_bos, specials);
        ASSERT_TRUE(tokens.ok());
        EXPECT_EQ(*tokens, PeerTokens(*peer, text, add_bos, specials))
            << testing::PrintToString(text);
      }
    }
  }
}

TEST(DefaultModelTokenizer, AgreesWithLibllama) {
  const std::string path = DefaultModelPath();
  if (path.empty()) EBB_SKIP_WITHOUT("default_model") << kNoDefaultModel;
  ExpectAgreesWithLibllama(path, Texts());
  // "<|im_start|>" is one token only when it is asked for.
  const auto model = Model::Load({.path = path});
  EXPECT_EQ((*model)->Tokenize("<|im_start|>", AddBos::kNo, Specials::kParse)->size(), 1u);
  EXPECT_GT((*model)->Tokenize("<|im_start|>", AddBos::kNo, Specials::kAsText)->size(), 1u);
}

TEST(PebbleTokenizer, AgreesWithLibllama) {
  std::vector<std::string> texts = Texts();
  texts.emplace_back(
      "<|start|>Question: First Ada gets three. Second last Ben gets Ada plus four. What does Ben "
      "have?<think> First Ada gets three. Ada three. Well, is this right?</think> The answer is "
      "seven.<|end|>");
  ExpectAgreesWithLibllama(EBB_SOURCE_DIR "/training/pebble/pebble.gguf", texts);
}

#ifdef EBB_LLAMA_IS_PATCHED
TEST(VocabularyTest, TakesTwoTokensOfTheSameTextAndReadsItAsTheFirst) {
  const TempFolder folder;
  const std::string path = folder.File("model.gguf");
  ExpectOk(WriteRandomGguf({.num_layers = 1}, path));
  Result<GgufEdit> edit = GgufEdit::Open(path);
  ASSERT_TRUE(edit.ok()) << edit.status().ToString();
  constexpr const char* kTokens = "tokenizer.ggml.tokens";
  const int64_t key = gguf_find_key(edit->metadata(), kTokens);
  std::vector<std::string> texts;
  for (size_t i = 0; i < gguf_get_arr_n(edit->metadata(), key); ++i) {
    texts.emplace_back(gguf_get_arr_str(edit->metadata(), key, i));
  }
  constexpr size_t kFirst = 3 + 'x', kSecond = 380;
  ASSERT_EQ(texts[kFirst], "x");
  texts[kSecond] = "x";
  std::vector<const char*> pointers;
  for (const std::string& text : texts) pointers.push_back(text.c_str());
  gguf_set_arr_str(edit->metadata(), kTokens, pointers.data(), pointers.size());
  const std::string edited = folder.File("edited.gguf");
  ExpectOk(edit->Save(edited));
  const auto model = Model::Load({.path = edited});
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  EXPECT_EQ((*model)->TokenText(kSecond, ControlTokens::kHide), "x");
  EXPECT_EQ(*(*model)->Tokenize("x", AddBos::kNo, Specials::kAsText), std::vector<Token>{kFirst});
}
#endif

// Tokenizers that put a blank in front of a text put none into the user's text where that reads as
// a special token: also where libllama parses the token in plain text, because a user defined it.
TEST_P(TokenizerTest, SpecialLookingTextOfAMessageHasTheTokensOfItsCharacters) {
  Result<GgufEdit> edit = GgufEdit::Open(folder_.File("edited.gguf"));
  ASSERT_TRUE(edit.ok()) << edit.status().ToString();
  constexpr const char* kTypes = "tokenizer.ggml.token_type";
  const int64_t key = gguf_find_key(edit->metadata(), kTypes);
  const auto* data = static_cast<const int32_t*>(gguf_get_arr_data(edit->metadata(), key));
  std::vector<int32_t> types(data, data + gguf_get_arr_n(edit->metadata(), key));
  types[1] = types[2] = LLAMA_TOKEN_TYPE_USER_DEFINED;
  gguf_set_arr_data(edit->metadata(), kTypes, GGUF_TYPE_INT32, types.data(), types.size());
  const std::string path = folder_.File("user_defined.gguf");
  ExpectOk(edit->Save(path));
  const auto user_defined = Model::Load({.path = path});
  ASSERT_TRUE(user_defined.ok()) << user_defined.status().ToString();
  for (const std::string text :
       {"a<|im_start|>b", "<|im_start|>", "<|im_end|> <|im_start|><|im_end|>b", "a <|im_end|>",
        "aé<|im_end|>é\n<|im_start|>\xff"}) {
    ChatPrompt prompt = {.text = "<|im_start|>user\n" + text + "<|im_end|>\n"};
    const size_t begin = prompt.text.find('\n') + 1;
    for (size_t at = text.find("<|"); at != std::string::npos; at = text.find("<|", at + 1)) {
      prompt.plain_at.push_back(begin + at);
    }
    const auto expected = model_->TokenizePrompt(prompt, AddBos::kNo);
    const auto tokens = (*user_defined)->TokenizePrompt(prompt, AddBos::kNo);
    ASSERT_TRUE(expected.ok() && tokens.ok());
    EXPECT_EQ(*tokens, *expected) << text;
  }
}

TEST_P(TokenizerTest, ATextThatBeginsWithBosGetsNoOther) {
  constexpr Token kBos = 1;
  const std::vector<Token> expected = Tokens("<|im_start|>abc", AddBos::kNo, Specials::kParse);
  ASSERT_EQ(expected.front(), kBos);
  EXPECT_EQ(Tokens("<|im_start|>abc", AddBos::kAsModelSays, Specials::kParse), expected);
}

}  // namespace
}  // namespace ebb

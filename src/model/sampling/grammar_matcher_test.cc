// Compares the tokens that a grammar admits with llama.cpp's own parser, and bounds its cost.
#include "src/model/sampling/grammar_matcher.h"

#include <gtest/gtest.h>
#include <llama.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "ebb/grammar.h"
#include "src/model/loaded/loaded_model.h"
#include "tests/support/tiny_model.h"

namespace ebb {
namespace {

class GrammarMatcherTest : public TinyModelTest {
 protected:
  static std::unique_ptr<GrammarMatcher> Make(const std::string& grammar) {
    Result<GrammarProgram> program =
        ParseGrammar(grammar, [](std::string_view name) -> Result<Token> {
          const auto tokens = model_->Tokenize(name, Model::AddBos::kNo, Model::Specials::kParse);
          if (!tokens.ok() || tokens->size() != 1) return InvalidArgument("no token");
          return (*tokens)[0];
        });
    EXPECT_TRUE(program.ok()) << program.status().ToString();
    return GrammarMatcher::Create(std::make_shared<const GrammarProgram>(*std::move(program)),
                                  TokenOrder::Of(*model_));
  }
  static std::string TextOf(Token token) {
    return model_->TokenText(token, Model::ControlTokens::kShow);
  }
  // The tokens of one byte each.
  static std::vector<Token> BytesOf(const std::string& text) {
    std::vector<Token> tokens;
    for (const char c : text) {
      for (Token token = 0; token < model_->shape().vocab_size; ++token) {
        if (TextOf(token) != std::string(1, c) || model_->EndsGeneration(token)) continue;
        tokens.push_back(token);
        break;
      }
    }
    EXPECT_EQ(tokens.size(), text.size()) << "the vocabulary has no token for a byte of " << text;
    return tokens;
  }
  static bool TakesAll(GrammarMatcher* matcher, const std::string& text) {
    for (const Token token : BytesOf(text)) {
      if (!matcher->Admits(token)) return false;
      EXPECT_TRUE(matcher->Accept(token, TextOf(token)));
    }
    return true;
  }
  static bool MayEnd(const GrammarMatcher& matcher) {
    for (Token token = 0; token < model_->shape().vocab_size; ++token) {
      if (model_->EndsGeneration(token)) return matcher.Admits(token);
    }
    ADD_FAILURE() << "the vocabulary has no end";
    return false;
  }
  static bool Matches(const std::string& grammar, const std::string& text) {
    const auto matcher = Make(grammar);
    const bool matches = TakesAll(matcher.get(), text) && MayEnd(*matcher);
    EXPECT_FALSE(matcher->is_overrun()) << grammar;
    return matches;
  }
};

struct LlamaSamplerDeleter {
  void operator()(llama_sampler* sampler) const { llama_sampler_free(sampler); }
};
using LlamaSampler = std::unique_ptr<llama_sampler, LlamaSamplerDeleter>;

std::vector<bool> AdmittedByLlama(llama_sampler* sampler, size_t vocab_size) {
  std::vector<llama_token_data> data(vocab_size);
  for (size_t i = 0; i < vocab_size; ++i) data[i] = {static_cast<llama_token>(i), 1.0F, 0.0F};
  llama_token_data_array array = {data.data(), data.size(), -1, false};
  llama_sampler_apply(sampler, &array);
  std::vector<bool> admitted(vocab_size);
  for (const llama_token_data& one : data) admitted[one.id] = std::isfinite(one.logit);
  return admitted;
}

// llama.cpp takes bytes that UTF-8 never has for the beginning of a character.
bool IsOfUtf8(const std::string& text) {
  return std::ranges::none_of(text, [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte == 0xC0 || byte == 0xC1 || byte > 0xF4;
  });
}

// An expression over a few letters, which may reference later rules: none begins with itself.
std::string RandomExpression(std::mt19937* random, int depth, int rule, int num_rules) {
  const auto pick = [&](int count) { return static_cast<int>((*random)() % count); };
  const auto part = [&] { return RandomExpression(random, depth - 1, rule, num_rules); };
  switch (depth > 0 ? pick(8) : pick(3)) {
    case 0:
      return fmt::format("\"{}\"", std::string(1 + pick(3), static_cast<char>('a' + pick(3))));
    case 1:
      return pick(2) == 0 ? "[a-b]" : "[^c\\n]";
    case 2:
      return rule + 1 < num_rules ? fmt::format("r{}", rule + 1 + pick(num_rules - rule - 1))
                                  : "\"\u00e4\"";
    case 3:
      return fmt::format("({} | {})", part(), part());
    case 4:
      return fmt::format("({} | {} | \"\")", part(), part());
    case 5:
      return fmt::format("(\"b\" {}){}", part(), std::vector{"*", "+", "{2,4}", "?"}[pick(4)]);
    default:
      return fmt::format("{} {}", part(), part());
  }
}

TEST_F(GrammarMatcherTest, AdmitsWhatLlamaCppAdmits) {
  const size_t vocab_size = model_->shape().vocab_size;
  const llama_vocab* vocab = llama_model_get_vocab(model_->loaded().vocab_model.get());
  std::mt19937 random(5);
  int num_tokens = 0;
  for (int i = 0; i < 200; ++i) {
    std::string grammar;
    constexpr int kNumRules = 4;
    for (int rule = 0; rule < kNumRules; ++rule) {
      grammar += fmt::format("{} ::= {}\n", rule == 0 ? "root" : fmt::format("r{}", rule),
                             RandomExpression(&random, 3, rule, kNumRules));
    }
    const LlamaSampler llama(llama_sampler_init_grammar(vocab, grammar.c_str(), "root"));
    ASSERT_NE(llama, nullptr) << grammar;
    auto matcher = Make(grammar);
    std::string text;
    for (int step = 0; step < 12; ++step) {
      const std::vector<bool> admitted = matcher->Admitted();
      const std::vector<bool> expected = AdmittedByLlama(llama.get(), vocab_size);
      std::vector<Token> choices;
      for (Token token = 0; token < static_cast<Token>(vocab_size); ++token) {
        ASSERT_EQ(matcher->Admits(token), admitted[token]) << grammar << text << TextOf(token);
        if (!IsOfUtf8(TextOf(token))) continue;
        ASSERT_EQ(admitted[token], expected[token]) << grammar << text << TextOf(token);
        const bool is_whole = CodePoints(TextOf(token)).find(U'\uFFFD') == std::u32string::npos;
        if (admitted[token] && is_whole && !model_->EndsGeneration(token)) choices.push_back(token);
      }
      if (choices.empty()) break;
      const Token token = choices[random() % choices.size()];
      text += TextOf(token);
      llama_sampler_accept(llama.get(), token);
      ASSERT_TRUE(matcher->Accept(token, TextOf(token))) << grammar << text;
      if (step % 4 == 3) matcher = matcher->Clone();
      ++num_tokens;
    }
  }
  EXPECT_GT(num_tokens, 500);
}

TEST_F(GrammarMatcherTest, RulesMayBeginWithThemselves) {
  const std::string sums = "root ::= root \"+\" term | term\nterm ::= [0-9] | \"(\" root \")\"";
  EXPECT_TRUE(Matches(sums, "1"));
  EXPECT_TRUE(Matches(sums, "1+2+(3+(4)+5)+6"));
  EXPECT_FALSE(Matches(sums, "1+"));
  EXPECT_FALSE(Matches(sums, "1+(2"));
  const std::string hidden = "root ::= b root \"x\" | \"y\"\nb ::= c\nc ::= \"\"";
  EXPECT_TRUE(Matches(hidden, "yxxx"));
  EXPECT_FALSE(Matches(hidden, "xy"));
  EXPECT_TRUE(Matches("root ::= ((\"a\"?)*)*", "aaa"));
  EXPECT_TRUE(Make("root ::= root \"x\"")->IsDead());
  EXPECT_TRUE(Make("root ::= a\na ::= root")->IsDead());
}

TEST_F(GrammarMatcherTest, CountsRepetitionsWithinEachOther) {
  EXPECT_TRUE(Matches("root ::= ((\"a\"{3}){3}){3}", std::string(27, 'a')));
  EXPECT_FALSE(Matches("root ::= ((\"a\"{3}){3}){3}", std::string(26, 'a')));
  EXPECT_FALSE(Matches("root ::= ((\"a\"{3}){3}){3}", std::string(28, 'a')));
  EXPECT_TRUE(Matches("root ::= (\"ab\"{0,2} \"c\"){1,2}", "ababcc"));
  EXPECT_FALSE(Matches("root ::= (\"ab\"{0,2} \"c\"){1,2}", "abababc"));
}

TEST_F(GrammarMatcherTest, ACharacterMayBeCutBetweenTokens) {
  EXPECT_TRUE(Matches("root ::= [\u00e4-\u00fc] \"\u20ac\" [^a] \"\U0001F30A\"",
                      "\u00f6\u20ac\u4e00\U0001F30A"));
  EXPECT_FALSE(Matches("root ::= [\u00e4-\u00fc]", "\u00e3"));
  const auto matcher = Make("root ::= \"a\" | \"a\u00e4\"");
  EXPECT_TRUE(TakesAll(matcher.get(), "a\xc3"));
  EXPECT_FALSE(MayEnd(*matcher));  // in the middle of a character
  EXPECT_FALSE(TakesAll(matcher.get(), "\xa5"));
  EXPECT_TRUE(TakesAll(matcher.get(), "\xa4"));
  EXPECT_TRUE(MayEnd(*matcher));
}

// Grammars that people send to stop a server. Where one takes more than a call may, it says so.
TEST_F(GrammarMatcherTest, AmbiguousGrammarsTakeABoundedTime) {
  const auto regex = [](const std::string& pattern) { return *GrammarOfRegex(pattern); };
  const std::string a = std::string(60, 'a'), brackets(60, '(');
  for (const auto& [grammar, text] : std::vector<std::pair<std::string, std::string>>{
           {regex("(?:(?:(?:a?){100}){100}){100}"), a},
           {regex("(?:(?:(?:a?){10}){10}){10}"), a},
           {regex("(a*)*(a*)*(a|aa)+(a?){500}"), a},
           {"root ::= \"(\" root \")\" | \"(\" root \"]\"", brackets},
           {"root ::= \"a\" root \"a\" | \"a\" root \"b\" | \"a\"", a},
           {"root ::= root root | \"a\" |", a},
           {"root ::= a a a a a a a a\na ::= b b b b b b b b\nb ::= c c c c c c c c\nc ::= \"a\" |",
            a},
           {"root ::= x root y | x root z | \"a\"\nx ::= \"a\"?\ny ::= \"a\"?\nz ::= \"a\" |",
            a}}) {
    const auto matcher = Make(grammar);
    EXPECT_FALSE(matcher->is_overrun()) << grammar.substr(0, 100);
    EXPECT_TRUE(TakesAll(matcher.get(), text)) << grammar.substr(0, 100);
    EXPECT_EQ(matcher->Admitted().size(), static_cast<size_t>(model_->shape().vocab_size));
  }
}

TEST_F(GrammarMatcherTest, ManyLiteralsAreNotTriedOneByOne) {
  std::string grammar = "root ::= \"x0\"";
  for (int i = 1; i < 20000; ++i) grammar += fmt::format(" | \"x{}\"", i);
  const auto matcher = Make(grammar);
  EXPECT_TRUE(TakesAll(matcher.get(), "x1234"));
  EXPECT_TRUE(MayEnd(*matcher));
  EXPECT_FALSE(Make(grammar)->Admitted().empty());
  EXPECT_FALSE(matcher->is_overrun());
}

TEST_F(GrammarMatcherTest, AnOverrunIsTold) {
  std::string optional;
  for (int i = 0; i < 200; ++i) optional += " ([ab]?){2000}";
  EXPECT_TRUE(Make("root ::=" + optional)->is_overrun());
  const auto matcher = Make("root ::= \"x\"" + optional);
  EXPECT_FALSE(matcher->is_overrun());
  EXPECT_FALSE(TakesAll(matcher.get(), "x"));
  EXPECT_TRUE(matcher->is_overrun());
  EXPECT_TRUE(matcher->Clone()->is_overrun());
}

TEST_F(GrammarMatcherTest, LongAnswersTakeNoMoreMemory) {
  const auto matcher = Make("root ::= \"[\" item (\",\" item)* \"]\"\nitem ::= [a-z]+ | root");
  ASSERT_TRUE(TakesAll(matcher.get(), "[a"));
  const std::string more = ",[b,cc,[ddd,e]],fff";
  for (int i = 0; i < 500; ++i) ASSERT_TRUE(TakesAll(matcher.get(), more));
  EXPECT_TRUE(TakesAll(matcher.get(), "]"));
  EXPECT_TRUE(MayEnd(*matcher));
}

}  // namespace
}  // namespace ebb

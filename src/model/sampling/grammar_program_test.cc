#include "src/model/sampling/grammar_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include <fmt/format.h>

namespace ebb {
namespace {

using testing::HasSubstr;

Result<GrammarProgram> Parsed(const std::string& grammar) {
  return ParseGrammar(grammar, [](std::string_view name) -> Result<Token> {
    if (name == "<[7]>" || name == "<seven>") return 7;
    return InvalidArgument(fmt::format("expected a token of the vocabulary, found `{}`", name));
  });
}
std::string Refusal(const std::string& grammar) {
  const Result<GrammarProgram> program = Parsed(grammar);
  EXPECT_FALSE(program.ok()) << grammar.substr(0, 100);
  return program.status().message();
}
std::string Times(int count, const std::string& text) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

TEST(ParseGrammar, ReadsWhatLlamaCppReads) {
  for (const char* grammar :
       {"root ::= \"yes\" | \"no\"", "root ::=", "root::=a\na::=\"x\"",
        "root ::= ws? item (\",\" ws? item)* # a list\nitem ::= [a-z]+ | \"(((\" | [(]\nws ::= \" "
        "\"{0,3}\n",
        "\n# a comment\n\r\nroot ::= value\r\nvalue ::= \"[\" (value\n (\",\" value)*)? \"]\" |\n "
        "number"
        "\nnumber ::= [0-9]+",
        "root ::= a b\na ::= |\"x\"\nb ::= (a b | \"y\"){2}",
        "root ::= [a-zA-Z_.\\-\\]\\x41\\u00e4\\U0001F30A-] . <seven> !<[7]>",
        "root ::= \"a\"{ 3 , 5 } \"b\"{2,} \"c\"{0,100000}"}) {
    EXPECT_TRUE(Parsed(grammar).ok()) << grammar << Parsed(grammar).status().ToString();
  }
}

TEST(ParseGrammar, SaysInWhichLineWhatIsWrong) {
  for (const auto& [grammar, message] : std::vector<std::pair<std::string, std::string>>{
           {"", "it has no rule \"root\""},
           {"a ::= \"x\"", "it has no rule \"root\""},
           {"root ::= missing", "it has no rule \"missing\""},
           {"root ::= (", "line 1: expected `)`, found the end"},
           {"root ::= \"a\"\nroot ::= )", "line 2: expected the end of a line, found `)`"},
           {"root ::= *", "line 1: expected something to repeat, found `*`"},
           {"::= \"x\"", "line 1: expected the name of a rule, found `:`"},
           {"root = \"x\"", "line 1: expected `::=`, found `=`"},
           {"root ::= \"x", "line 1: expected the end of a text or a class, found the end"},
           {"root ::= [a", "line 1: expected the end of a text or a class, found the end"},
           {"root ::= \"\\q\"", "line 1: an escape that is unknown"},
           {"root ::= \"\\u00\"", "line 1: expected 4 digits of a code point behind `\\u`"},
           {"root ::= \"\\UFFFFFFFF\"", "line 1: expected 8 digits of a code point behind `\\U`"},
           {"root ::= \"\xff\"", "line 1: expected UTF-8, found byte 255"},
           {"root ::= \"x\"{", "line 1: expected a number, found the end"},
           {"root ::= \"x\"{5,3}", "line 1: a repetition of at least 5 and at most 3 times"},
           {"root ::= \"x\"{2001}", "a repetition of at least 2001 times: expected at most 2000"},
           {"root ::= \"x\"{99999999999999999999}", "expected at most 2000"},
           {"root ::= <eight>", "expected a token of the vocabulary, found `<eight>`"},
           {"root ::= !\"x\"", "line 1: expected `<`, found `\"`"},
           {"a ::= b ::= c", "line 1: expected the end of a line, found `:`"}}) {
    EXPECT_THAT(Refusal(grammar), HasSubstr("the grammar is refused: ")) << grammar;
    EXPECT_THAT(Refusal(grammar), HasSubstr(message)) << grammar;
  }
}

TEST(ParseGrammar, BoundsWhatAGrammarComesTo) {
  EXPECT_THAT(Refusal("root ::= " + Times(100000, "(")), HasSubstr("brackets within each other"));
  EXPECT_THAT(Refusal("root ::= \"x\" #" + Times(1 << 20, "y")),
              HasSubstr("at most 1048576 bytes"));
  EXPECT_THAT(Refusal("root ::= " + Times(1000, "\"x\"{2000} ")), HasSubstr("its repetitions"));
  // Code in many brackets is not copied for each of them, nor code that is repeated in turn.
  const auto deep = Parsed("root ::= " + Times(200, "(\"y\" ") + '"' + Times(300000, "x") + '"' +
                           Times(200, ")"));
  ASSERT_TRUE(deep.ok()) << deep.status().ToString();
  EXPECT_LT(deep->code.size(), 310000U);
  const auto repeated = Parsed("root ::= (((\"xy\"{100}){100}){100}){100}");
  ASSERT_TRUE(repeated.ok()) << repeated.status().ToString();
  EXPECT_LT(repeated->code.size(), 500U);
}

}  // namespace
}  // namespace ebb

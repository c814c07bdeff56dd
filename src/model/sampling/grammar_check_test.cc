#include "src/model/sampling/grammar_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include <fmt/format.h>

namespace ebb {
namespace {

using testing::HasSubstr;

std::string Times(int count, const std::string& text) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

TEST(CheckGrammar, LetsGrammarsOfPeoplePass) {
  for (const char* grammar :
       {"root ::= \"yes\" | \"no\"", "",
        "root ::= ws? item (\",\" ws? item)* # a list\nitem ::= [a-z]+ | \"(((\" | [(]\nws ::= \" "
        "\"{0,3}\n",
        "root ::= value\nvalue ::= \"[\" (value (\",\" value)*)? \"]\" | number\nnumber ::= [0-9]+",
        "root ::= a b\na ::= |\"x\"\nb ::= (a b | \"y\"){2}"}) {
    const Status status = CheckGrammar(grammar);
    EXPECT_TRUE(status.ok()) << grammar << status.ToString();
  }
  // A grammar as it is made of a JSON object with 200 properties that may all be left out.
  std::string rest = "root ::= \"{\" (p0 r0)? \"}\"\n";
  for (int i = 0; i < 200; ++i)
    rest += fmt::format("p{0} ::= \"{0}\"\nr{0} ::= (\",\" p{0})? r{1}\n", i, i + 1);
  EXPECT_TRUE(CheckGrammar(rest + "r200 ::= \"\"\np200 ::= \"\"").ok());
}

TEST(CheckGrammar, RefusesWhatTakesTheStackOrForEver) {
  std::string doubled, chain, in_brackets = "root ::= a0\n";
  for (int i = 0; i < 60; ++i) {
    doubled += fmt::format("a{0} ::= a{1} | a{1}\n", i, i + 1);
    in_brackets += fmt::format("a{0} ::= (a{1})? (a{1} | a{1} \"y\")\n", i, i + 1);
  }
  for (int i = 0; i < 1100; ++i) chain += fmt::format("a{} ::= a{}\n", i, i + 1);
  for (const std::string& grammar :
       {"root ::= a0\n" + doubled + "a60 ::= \"x\"", "root ::= a0\n" + chain + "a1100 ::= \"x\"",
        in_brackets + "a60 ::= \"x\"", doubled}) {
    EXPECT_THAT(CheckGrammar(grammar).message(), HasSubstr("begin with each other"));
  }
  EXPECT_THAT(CheckGrammar("root ::= " + Times(100000, "(")).message(), HasSubstr("brackets"));
  EXPECT_THAT(CheckGrammar("root ::= \"x\" #" + Times(1 << 20, "y")).message(),
              HasSubstr("at most 1048576 bytes"));
  EXPECT_THAT(CheckGrammar("root ::= \"x\"{5,3}").message(),
              HasSubstr("a repetition of at least 5"));
}

// What is no grammar is left to libllama, whatever it is.
TEST(CheckGrammar, ReadsAnyText) {
  for (const char* text :
       {"(", ")", "root ::= )", "root ::= *", "::=", "root ::= \"", "root ::= [", "root ::= {",
        "root ::= x{0", "!", "root ::= !", "a ::= b ::= c", "root ::= (a ::= b)", "\xff"}) {
    EXPECT_TRUE(CheckGrammar(text).ok()) << text;
  }
}

}  // namespace
}  // namespace ebb

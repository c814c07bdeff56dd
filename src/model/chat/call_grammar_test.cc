#include "src/model/chat/call_grammar.h"

#include <gtest/gtest.h>

namespace ebb {
namespace {

const std::string kRequired =
    "root ::= until-1? tool-calls\n"
    "tool-call ::= \"<call>\" space\n"
    "tool-calls ::= \"[\" tool-call+ \"]\"\n"
    "space ::= [ a\\]-]?\n"
    "until-1 ::= [^<]*\n";

TEST(OnlyCalls, LeavesOutTheTextAheadOfACall) {
  const std::string expected =
      "root ::= tool-calls\n"
      "space ::= [ a\\]-]?\n"
      "tool-call ::= \"<call>\" space\n"
      "tool-calls ::= \"[\" tool-call+ \"]\"\n";
  // Calls lie within a section of calls, of which a lazy grammar may begin with either.
  EXPECT_EQ(OnlyCalls(kRequired, "root ::= tool-call | tool-calls\n"), expected);
  EXPECT_EQ(OnlyCalls(kRequired, "root ::= tool-calls\n"), expected);
  // A template without a mark of calls has no lazy grammar.
  EXPECT_EQ(OnlyCalls(kRequired, ""), expected);
  EXPECT_EQ(OnlyCalls("root ::= \"a\"\n", ""), "");
}

TEST(WithOneCall, EndsTheRepetitionOfCallsAlone) {
  EXPECT_EQ(WithOneCall("root ::= tool-calls\nspace ::= (\" \")+\n"
                        "tool-calls ::= (tool-call space)+\n"),
            "root ::= tool-calls\nspace ::= (\" \")+\ntool-calls ::= (tool-call space)\n");
  EXPECT_EQ(WithOneCall(""), "");
}

TEST(EitherGrammar, KeepsTheNamesOfBothApart) {
  EXPECT_EQ(EitherGrammar("root ::= \"root\" a{1,2} [a-z]\na ::= \"\\\"a\"\n",
                          "root ::= a\na ::= \"b\"\n"),
            "first-a ::= \"\\\"a\"\n"
            "first-root ::= \"root\" first-a{1,2} [a-z]\n"
            "root ::= first-root | second-root\n"
            "second-a ::= \"b\"\n"
            "second-root ::= second-a\n");
}

}  // namespace
}  // namespace ebb

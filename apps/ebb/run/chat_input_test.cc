#include "apps/ebb/run/chat_input.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ebb::cli {
namespace {

using Kind = ChatInput::Kind;
using Strings = std::vector<std::string>;

// Returns all lines as NextChatInput() reads them: turns as they are, commands by their kind.
Strings Read(Strings lines) {
  size_t next = 0;
  const auto next_line = [&](bool) {
    return next < lines.size() ? std::optional(lines[next++]) : std::nullopt;
  };
  Strings said;
  while (const std::optional<ChatInput> input = NextChatInput(next_line)) {
    switch (input->kind) {
      case Kind::kTurn:
        said.push_back(input->text);
        break;
      case Kind::kUnknown:
        said.push_back("unknown:" + input->text);
        break;
      default:
        said.push_back("command " + std::to_string(static_cast<int>(input->kind)));
    }
  }
  return said;
}

TEST(NextChatInput, LinesAreTurnsAndBlankOnesAreNone) {
  EXPECT_EQ(Read({"one", "", "  \t", " two "}), (Strings{"one", " two "}));
}

TEST(NextChatInput, CommandsMayHaveBlanksBehindThem) {
  EXPECT_EQ(Read({"/exit", "/reset ", "/clear\t", "/bye"}),
            (Strings{"command 1", "command 2", "command 2", "command 1"}));
}

TEST(NextChatInput, OtherWordsWithASlashAreNoCommands) {
  EXPECT_EQ(Read({"/fly", "/exit now", "/exti"}),
            (Strings{"unknown:/fly", "unknown:/exit now", "unknown:/exti"}));
}

TEST(NextChatInput, AQuestionMayBeginWithASlash) {
  EXPECT_EQ(Read({"/etc/hosts: what is it for?", "//exit is what?", "///", "/ /"}),
            (Strings{"/etc/hosts: what is it for?", "/exit is what?", "//", "unknown:/ /"}));
}

TEST(NextChatInput, QuotesTakeSeveralLinesAsOneTurn) {
  EXPECT_EQ(Read({"\"\"\"", "def f(x):", "", "  return x", "\"\"\"", "next"}),
            (Strings{"def f(x):\n\n  return x", "next"}));
  EXPECT_EQ(Read({"\"\"\"one", "/exit\"\"\""}), (Strings{"one\n/exit"}));
  EXPECT_EQ(Read({"\"\"\"one\"\"\""}), (Strings{"one"}));
  EXPECT_EQ(Read({"\"\"\"cut", "off"}), (Strings{"cut\noff"}));
  EXPECT_EQ(Read({"\"\"\"", "\"\"\"", "next"}), (Strings{"next"}));
}

TEST(NextChatInput, APasteOfSeveralLinesIsOneTurn) {
  EXPECT_EQ(Read({"What is this?\n/exit\nx"}), (Strings{"What is this?\n/exit\nx"}));
  EXPECT_EQ(Read({"\"\"\"\none\ntwo\n\"\"\""}), (Strings{"one\ntwo"}));
}

TEST(ChatCommands, HaveTheArgumentThatTheyNeed) {
  EXPECT_EQ(Read({"/read", "/read /tmp/a b", "/system", "/reset now"}),
            (Strings{"unknown:/read", "command 4", "command 8", "unknown:/reset now"}));
  EXPECT_EQ(CompleteChatInput("/s"), (Strings{"/system ", "/set ", "/save ", "/stats"}));
  EXPECT_EQ(CompleteChatInput("what"), Strings());
  EXPECT_EQ(CompleteChatInput("/system /etc/hos"), Strings());
  EXPECT_EQ(CompleteChatInput("/read /etc/hostnam"), (Strings{"/read /etc/hostname"}));
}

}  // namespace
}  // namespace ebb::cli

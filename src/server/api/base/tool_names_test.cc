#include "src/server/api/base/tool_names.h"

#include <gtest/gtest.h>

#include <string>

namespace ebb::server {
namespace {

TEST(RenameTools, LeavesNamesThatModelsTake) {
  ChatRequest chat = {.tools = {{.name = "read_file"}, {.name = std::string(64, 'a')}},
                      .tool_choice = "read_file"};
  EXPECT_TRUE(RenameTools(&chat).empty());
  EXPECT_EQ(chat.tools[0].name, "read_file");
  EXPECT_EQ(chat.tool_choice, "read_file");
}

TEST(RenameTools, GivesOtherNamesWhereverTheRequestHasThem) {
  ChatRequest chat = {.messages = {{.role = "assistant",
                                    .content = "",
                                    .tool_calls = {{.name = "a.b", .arguments = "{}"},
                                                   {.name = "gone.by", .arguments = "{}"}}},
                                   {.role = "tool", .content = "", .name = "a.b"}},
                      .tools = {{.name = "a.b"}},
                      .tool_choice = "a.b"};
  EXPECT_EQ(RenameTools(&chat), (ToolNames{{"a_b", "a.b"}}));
  EXPECT_EQ(chat.tools[0].name, "a_b");
  EXPECT_EQ(chat.tool_choice, "a_b");
  EXPECT_EQ(chat.messages[0].tool_calls[0].name, "a_b");
  EXPECT_EQ(chat.messages[0].tool_calls[1].name, "gone.by");
  EXPECT_EQ(chat.messages[1].name, "a_b");
}

TEST(RenameTools, NoTwoNamesAreAlike) {
  ChatRequest chat = {.tools = {{.name = "a.b"},
                                {.name = "a_b"},
                                {.name = "a/b"},
                                {.name = std::string(70, 'x')},
                                {.name = std::string(71, 'x')},
                                {.name = "größe"},
                                {.name = "工具"},
                                {.name = "auto."}}};
  const ToolNames names = RenameTools(&chat);
  const std::string cut(56, 'x');
  const char* const expected[] = {"a_b_2", "a_b", "a_b_3", nullptr, nullptr, "gr_e", "_", "auto_"};
  for (size_t i = 0; i < std::size(expected); ++i) {
    if (expected[i] == nullptr) continue;
    EXPECT_EQ(chat.tools[i].name, expected[i]);
  }
  EXPECT_EQ(chat.tools[3].name, cut);
  EXPECT_EQ(chat.tools[4].name, cut + "_2");
  EXPECT_EQ(names.size(), 7u);
  EXPECT_EQ(names.at("gr_e"), "größe");
}

}  // namespace
}  // namespace ebb::server

#include "apps/common/options/given_options.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace ebb::cli {
namespace {

using Option = std::pair<std::string, std::string>;

// Returns the message of the first option that is refused, or an empty text.
std::string Refusal(const std::vector<Option>& options) {
  GivenOptions given;
  for (const auto& [name, value] : options) {
    if (const Status status = given.Add(name, value); !status.ok()) return status.message();
  }
  return "";
}

TEST(GivenOptions, RefuseTwoOptionsOfOneFieldInAnyOrder) {
  struct Case {
    Option first, second;
    std::string field;
  };
  const std::vector<Case> cases = {
      {{"--kv-type", "q4"}, {"--t2", "25%"}, "what T2 holds"},
      {{"--kv-type", "q8"}, {"--t2", "old:int8"}, "what T2 holds"},
      {{"--kv-type", "q3"}, {"--t1", "host"}, "where T1 lies"},
      {{"--kv-type", "q4"}, {"--t0", "30%"}, "what T0 holds"},
      {{"--model", "a.gguf"}, {"--hf-repo", "a/b"}, "the model"},
      {{"--chat-template", "chatml"}, {"--chat-template-file", "f"}, "the chat template"},
      {{"--prompt", "p"}, {"--file", "f"}, "the prompt"},
      {{"--draft", "h2o"}, {"--policy", "h2o"}, "the policy"},
      {{"--draft", "select:mass=0.5"}, {"--policy", "h2o"}, "the policy"},
      {{"--draft", "select"}, {"--t1-read", "select"}, "which rows of T0 and T1 are read"},
      {{"--draft", "attention:budget=25%"}, {"--budget", "50%"}, "the policy's budget"},
      {{"--draft", "streaming:sinks=4"}, {"--sinks", "8"}, "the policy's sinks"},
      {{"--draft", "streaming:window=4"}, {"--window", "8"}, "the policy's window"},
      {{"--draft", "attention:interval=4"}, {"--interval", "8"}, "the policy's interval"},
  };
  const auto shown = [](const Option& option) {
    const bool has_value = option.first == "--kv-type" || option.first == "--draft";
    return option.first + (has_value ? " " + option.second.substr(0, option.second.find(':')) : "");
  };
  for (const auto& [first, second, field] : cases) {
    const std::string end = " both set " + field + "; give one";
    EXPECT_EQ(Refusal({first, second}), shown(first) + " and " + shown(second) + end);
    EXPECT_EQ(Refusal({second, first}), shown(second) + " and " + shown(first) + end);
  }
}

TEST(GivenOptions, TakeOptionsOfOtherFieldsAndTheLastValueOfAnOption) {
  EXPECT_EQ(Refusal({{"--kv-type", "f32"}, {"--t2", "25%"}, {"--t0", "30%"}, {"--t1", "host"}}),
            "");
  EXPECT_EQ(Refusal({{"--kv-type", "q4"}, {"--kv-type", "f16"}, {"--t2", "25%"}}), "");
  EXPECT_EQ(Refusal({{"--t0", "30%"}, {"--t0", "40%"}}), "");
  // h2o's own parameter sinks is not the field that --sinks sets.
  EXPECT_EQ(Refusal({{"--draft", "h2o:sinks=4"}, {"--sinks", "8"}}), "");
  EXPECT_EQ(Refusal({{"--temp", "1"}, {"--top-k", "4"}}), "");
}

TEST(GivenOptions, TellWhichOptionSetAField) {
  GivenOptions given;
  EXPECT_EQ(given.OptionThatSet(SharedField::kT2), "");
  ASSERT_TRUE(given.Add("--kv-type", "q4").ok());
  EXPECT_EQ(given.OptionThatSet(SharedField::kT2), "--kv-type q4");
  EXPECT_TRUE(given.Sets({SharedField::kBudget, SharedField::kT1}));
  EXPECT_FALSE(given.Sets({SharedField::kBudget, SharedField::kModel}));
}

}  // namespace
}  // namespace ebb::cli

#include "src/sequence/checkpoint_plan.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <random>

namespace ebb {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr Token kControl = 0;
bool IsControl(Token token) { return token == kControl; }

// `length` tokens of text, with control tokens at these places.
std::vector<Token> Prompt(size_t length, std::initializer_list<size_t> control) {
  std::vector<Token> tokens(length, 7);
  for (const size_t i : control) tokens[i] = kControl;
  return tokens;
}

std::vector<size_t> Positions(std::span<const Token> prompt, size_t num_read, size_t chunk,
                              const std::function<bool(Token)>& is_control) {
  return PlanCheckpoints(prompt, num_read, chunk, is_control).positions;
}

TEST(CheckpointPlan, NamesTheEndOfTheFirstMessage) {
  EXPECT_EQ(PlanCheckpoints(Prompt(900, {0, 300, 700, 890}), 0, 512, IsControl).first_message_end,
            300);
  EXPECT_EQ(PlanCheckpoints(Prompt(900, {0, 700, 890}), 800, 512, IsControl).first_message_end, 0);
  EXPECT_EQ(PlanCheckpoints(Prompt(900, {}), 0, 512, IsControl).first_message_end, 0);
}

TEST(CheckpointPlan, IsWhereTheFirstMessageEndsTheLastTwoBeginAndNearTheEnd) {
  // <s>system ... <e>\n<s>user ... <e>\n<s>assistant ... <e>\n<s>user ... <e>\n<s>assistant\n
  const std::vector<Token> chat = Prompt(303, {0, 100, 102, 150, 152, 200, 202, 298, 300});
  EXPECT_THAT(Positions(chat, 0, 512, IsControl), ElementsAre(102, 202, 300));
}

TEST(CheckpointPlan, LeavesOutWhatIsReadAndServesTheSamePromptAgain) {
  const std::vector<Token> chat = Prompt(303, {0, 100, 102, 200, 202, 298, 300});
  EXPECT_THAT(Positions(chat, 150, 512, IsControl), ElementsAre(202, 300));
  EXPECT_THAT(Positions(chat, 299, 512, IsControl), ElementsAre(301));
  EXPECT_THAT(Positions(Prompt(200, {}), 0, 512, IsControl), ElementsAre(198));
  EXPECT_THAT(Positions(Prompt(200, {150}), 0, 512, IsControl), ElementsAre(150, 198));
  EXPECT_THAT(Positions(Prompt(3, {}), 0, 512, IsControl), IsEmpty());
  EXPECT_THAT(Positions(Prompt(4, {}), 0, 512, IsControl), ElementsAre(2));
}

// A single token is multiplied by other kernels than several are.
TEST(CheckpointPlan, NeverCutsASingleTokenOffAChunk) {
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    const size_t length = 1 + random() % 300, chunk = 5 + random() % 60;
    const size_t num_read = random() % length;
    std::vector<Token> prompt(length);
    for (Token& token : prompt) token = static_cast<Token>(random() % 5);
    const std::vector<size_t> planned = Positions(prompt, num_read, chunk, IsControl);
    std::vector<size_t> ends = planned;
    for (size_t end = 0; end < length; end += chunk) ends.push_back(end);
    ends.push_back(length);
    ends.push_back(num_read);
    for (const size_t position : planned) {
      EXPECT_GT(position, num_read);
      EXPECT_EQ(std::ranges::count(ends, position), 1);
      EXPECT_EQ(std::ranges::count(ends, position + 1), 0);
      EXPECT_EQ(std::ranges::count(ends, position - 1), 0);
    }
  }
}

}  // namespace
}  // namespace ebb

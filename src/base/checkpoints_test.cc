#include "src/base/checkpoints.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <vector>

namespace ebb {
namespace {

using testing::Contains;
using testing::ElementsAre;

// Returns the checkpoints that remain after these are added one by one and CheckpointToDrop() keeps
// at most `most` at a time.
std::vector<Position> Left(const std::vector<Position>& added, size_t most, Position kept) {
  std::vector<Position> positions;
  for (const Position position : added) {
    positions.push_back(position);
    if (positions.size() <= most) continue;
    positions.erase(positions.begin() +
                    static_cast<std::ptrdiff_t>(CheckpointToDrop(positions, kept)));
  }
  return positions;
}

// Returns the checkpoints of a prompt with a system message of 3,000 tokens and a question that
// begins at 19,800, with the prompt's end.
std::vector<Position> LongPrompt() {
  std::vector<Position> added = {3000, 19800, 19998, 20000};
  for (Position end = 512; end < 20000; end += 512) added.push_back(end);
  std::ranges::sort(added);
  return added;
}

TEST(Checkpoints, TheEndOfTheFirstMessageStaysAndTheOthersAreDenseNearTheEnd) {
  EXPECT_THAT(Left(LongPrompt(), 4, 3000), ElementsAre(3000, 18944, 19998, 20000));
  for (const size_t most : {8, 16}) {
    const std::vector<Position> left = Left(LongPrompt(), most, 3000);
    EXPECT_EQ(left.size(), most);
    for (const Position planned : {3000, 19800, 19998, 20000}) {
      EXPECT_THAT(left, Contains(planned)) << most;
    }
  }
}

TEST(Checkpoints, WithoutMessagesTheFirstOneStays) {
  EXPECT_THAT(Left(LongPrompt(), 6, 0), Contains(512));
}

}  // namespace
}  // namespace ebb

#include "src/sequence/roll_back.h"

#include <algorithm>
#include <random>
#include <set>

#include "gtest/gtest.h"

namespace ebb {
namespace {

TEST(WindowCheckpoints, WithoutWindowsEveryPositionIsOne) {
  WindowCheckpoints checkpoints({.num_layers = 2}, 4);
  checkpoints.Keep(10, /*replaces=*/false);
  EXPECT_TRUE(checkpoints.empty());
  EXPECT_EQ(checkpoints.NearestUpTo(7, 20), 7);
}

TEST(WindowCheckpoints, AreWhereTheyWereKept) {
  WindowCheckpoints checkpoints({.num_layers = 2, .windows = {0, 8}}, 4);
  EXPECT_EQ(checkpoints.NearestUpTo(60, 60), 60);
  EXPECT_EQ(checkpoints.NearestUpTo(59, 60), 0);
  checkpoints.Keep(20, /*replaces=*/false);
  checkpoints.Keep(30, /*replaces=*/true);  // a later piece of the prompt
  checkpoints.Keep(50, /*replaces=*/false);
  EXPECT_EQ(checkpoints.NearestUpTo(49, 70), 30);
  EXPECT_EQ(checkpoints.NearestUpTo(69, 70), 50);
  EXPECT_EQ(checkpoints.NearestUpTo(29, 70), 0);
  // A session goes back to any position behind the last checkpoint until a row behind it leaves a
  // window.
  EXPECT_EQ(checkpoints.NearestUpTo(55, 57), 55);
  EXPECT_EQ(checkpoints.NearestUpTo(55, 57 + 1), 50);
  for (const Position position : {70, 71, 72}) checkpoints.Keep(position, /*replaces=*/false);
  EXPECT_EQ(checkpoints.positions().size(), 4);
  EXPECT_EQ(checkpoints.NearestUpTo(49, 72), 30) << "the first one stays";
  checkpoints.GoBackTo(60);
  EXPECT_EQ(checkpoints.NearestUpTo(59, 60), 30);
  checkpoints.Clear();
  EXPECT_EQ(checkpoints.NearestUpTo(59, 60), 0);
}

// Rows are removed as FindGone() says, and a position is one to go back to where every window still
// has all of its rows.
TEST(WindowCheckpoints, GoBackWhereAllRowsOfAllWindowsAreThere) {
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    const std::vector<int> windows = {0, 1 + static_cast<int>(random() % 12),
                                      1 + static_cast<int>(random() % 12)};
    WindowCheckpoints checkpoints({.num_layers = 3, .windows = windows}, 4);
    std::vector<std::vector<Position>> rows(3);
    Position next = 0;
    for (int step = 0; step < 12; ++step) {
      const bool is_prompt = random() % 3 == 0;
      const auto tokens = static_cast<Position>(1 + random() % 9);
      for (auto& of_layer : rows) {
        for (Position p = next; p < next + tokens; ++p) of_layer.push_back(p);
      }
      next += tokens;
      if (is_prompt) checkpoints.Keep(next, random() % 4 == 0);
      for (int layer = 1; layer < 3; ++layer) {
        std::vector<uint32_t> gone;
        checkpoints.FindGone(rows[layer], windows[layer], next, &gone);
        ASSERT_TRUE(std::ranges::is_sorted(gone));
        for (auto row = gone.rbegin(); row != gone.rend(); ++row) {
          rows[layer].erase(rows[layer].begin() + *row);
        }
      }
      const auto has_all = [&](Position end) {
        for (int layer = 1; layer < 3; ++layer) {
          const std::set<Position> there(rows[layer].begin(), rows[layer].end());
          for (Position p = std::max(end - windows[layer] + 1, 0); p < end; ++p) {
            if (!there.contains(p)) return false;
          }
        }
        return true;
      };
      for (const Position position : checkpoints.positions()) ASSERT_TRUE(has_all(position));
      for (Position end = 0; end <= next; ++end) {
        Position nearest = end;
        while (!has_all(nearest)) --nearest;
        ASSERT_EQ(checkpoints.NearestUpTo(end, next), nearest) << end << " of " << next;
      }
      if (random() % 4 == 0) {
        next = checkpoints.NearestUpTo(static_cast<Position>(random() % (next + 1)), next);
        checkpoints.GoBackTo(next);
        for (auto& of_layer : rows) std::erase_if(of_layer, [&](Position p) { return p >= next; });
      }
    }
  }
}

}  // namespace
}  // namespace ebb

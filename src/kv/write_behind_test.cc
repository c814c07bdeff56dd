// Operations while writes of T1's file are under way, late or refused lose no row, as long as no
// move reads back its own writes.
#include <cerrno>
#include <chrono>
#include <memory>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/expect_ok.h"
#include "tests/support/kv/tiered_sequence.h"

namespace ebb {
namespace {

// Two sequences that share a file, and a disk that refuses every third write, some of them late.
class WriteBehind : public testing::TestWithParam<int> {
 protected:
  static constexpr int kMaxRows = 1500;

  uint32_t Draw(uint32_t end) { return static_cast<uint32_t>(random_() % end); }

  DiskFault FaultOf(const DiskRequest& request) {
    if (request.call != DiskCall::kWrite || !fails_) return {};
    return {.error = Draw(3) == 0 ? EIO : 0, .delay = std::chrono::microseconds(Draw(3) * 500)};
  }

  // From one tier to one, so that a move that says no has moved nothing.
  static std::vector<RowMove> SomeMoves(TieredSequence* s, int group, uint32_t step, Tier to) {
    auto moves = Every(step, static_cast<uint32_t>(s->groups()[group].size()), to);
    const auto tiers = s->cache().tiers(group);
    std::erase_if(moves, [&](const RowMove& move) {
      return to != Tier::kT2 && tiers[move.index] == Tier::kT2;
    });
    return moves;
  }

  void DoSomething(TieredSequence* s) {
    const int group = static_cast<int>(Draw(static_cast<uint32_t>(s->groups().size())));
    const auto num_rows = static_cast<uint32_t>(s->groups()[group].size());
    const uint32_t step = 1 + Draw(5);
    switch (Draw(8)) {
      case 0:
        if (num_rows < kMaxRows) (void)s->Append(1 + static_cast<int>(Draw(200)));
        return;
      case 1:
      case 2:
        return (void)s->Move(group, SomeMoves(s, group, step, Tier::kT1));
      case 3:
        return (void)s->Move(group, SomeMoves(s, group, step, Tier::kT0));
      case 4:
        return (void)s->Move(group, SomeMoves(s, group, step + 4, Tier::kT2));
      case 5: {
        std::vector<uint32_t> removed;
        for (uint32_t row = Draw(step); row < num_rows; row += step + 1) removed.push_back(row);
        return s->Remove(group, removed);
      }
      case 6:
        s->cache().Compact(SIZE_MAX);
        return;
      default:
        if (Draw(4) == 0) s->TruncateTo(s->next() - s->next() / 8);
        (void)Stage(s->cache());
    }
  }

  void ExpectWhole(TieredSequence* s) {
    fails_ = false;
    (void)Stage(s->cache());  // it learns of the writes that failed, and tries them again
    ExpectOk(s->Append(1));
    s->ExpectLists();
    s->ExpectBytes();
    fails_ = true;
  }

  std::mt19937_64 random_{static_cast<uint64_t>(GetParam())};
  bool fails_ = false;
};

TEST_P(WriteBehind, NoRowIsLostToWritesThatAreLateOrRefused) {
  const TiersForTest tiers(
      {.faults = [this](const DiskRequest& request) { return FaultOf(request); }});
  {
    TieredSequence one(tiers, Granularity::kToken, 1), other(tiers, Granularity::kLayer, 2);
    for (TieredSequence* s : {&one, &other}) ExpectOk(s->Append(400));
    fails_ = true;
    for (int i = 0; i < 80 && !HasFailure(); ++i) {
      DoSomething(Draw(2) == 0 ? &one : &other);
      if (i % 8 != 7) continue;
      ExpectWhole(&one);
      ExpectWhole(&other);
    }
  }
  tiers.ExpectEmpty();
}

INSTANTIATE_TEST_SUITE_P(Seeds, WriteBehind, testing::Range(0, 12));

}  // namespace
}  // namespace ebb

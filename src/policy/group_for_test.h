// Keeps one group of a sequence, as the engine keeps it, for tests of the hierarchy's placement.
#ifndef EBB_POLICY_GROUP_FOR_TEST_H_
#define EBB_POLICY_GROUP_FOR_TEST_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "src/policy/placements.h"

namespace ebb {

// RowsUnder returns the rows that fit under the caps, in pages of 64 rows; like the engine, it
// leaves one page out.
inline constexpr uint64_t kPageBytes = uint64_t{2} << 20;
inline RowsAvailable RowsUnder(const EngineTiers& tiers) {
  const auto rows = [](uint64_t cap_bytes) {
    return cap_bytes == 0 ? RowsAvailable::kNoCap : (cap_bytes / kPageBytes - 1) * 64;
  };
  return {.t0 = rows(tiers.t0_cap_bytes), .t1 = rows(tiers.t1_cap_bytes)};
}

inline std::unique_ptr<Placement> MakeHierarchy(const TierSetting& tiers, int sinks, int window,
                                                int interval,
                                                Protected protected_rows = Protected::kStay) {
  Result<std::unique_ptr<Placement>> made =
      MakeHierarchyPlacement({.policy = "attention",
                              .sinks = sinks,
                              .window = window,
                              .interval = interval,
                              .tiers = tiers,
                              .rows_available = RowsUnder(tiers.engine),
                              .protected_rows = protected_rows});
  EXPECT_TRUE(made.ok()) << made.status().ToString();
  return *std::move(made);
}

struct Group {
  std::vector<TokenKind> kinds;
  std::vector<Position> positions;
  std::vector<float> scores;
  std::vector<Tier> tiers;
  int64_t generated_tokens = 0;

  void Append(TokenKind kind, float score) {
    positions.push_back(static_cast<Position>(kinds.size()));
    kinds.push_back(kind);
    scores.push_back(score);
    tiers.push_back(Tier::kT0);
    generated_tokens += kind == TokenKind::kGenerated ? 1 : 0;
  }

  void TruncateTo(Position end) {
    kinds.resize(end);
    while (!positions.empty() && positions.back() >= end) Erase(positions.size() - 1);
  }

  void Erase(size_t row) {
    positions.erase(positions.begin() + row);
    scores.erase(scores.begin() + row);
    tiers.erase(tiers.begin() + row);
  }

  size_t tokens_to_come = 0;
  [[nodiscard]] PlacementInput Input(StepKind kind = StepKind::kDecode) const {
    return {.positions = positions,
            .tiers = tiers,
            .scores = scores,
            .kinds = kinds,
            .next_position = static_cast<Position>(kinds.size()),
            .generated_tokens = generated_tokens,
            .step_kind = kind,
            .tokens_to_come = tokens_to_come};
  }

  // Applies the moves that the placement decides, and returns the new tier of each row, evicted
  // rows included. Fails the test if the moves are not in ascending order or move a row to the tier
  // that it is in.
  std::vector<Tier> Place(Placement* placement, StepKind kind = StepKind::kDecode) {
    std::vector<Move> moves;
    placement->Place(Input(kind), &moves);
    for (size_t i = 0; i < moves.size(); ++i) {
      EXPECT_TRUE(i == 0 || moves[i - 1].row < moves[i].row);
      EXPECT_LT(moves[i].row, tiers.size());
      EXPECT_NE(tiers[moves[i].row], moves[i].to);
      tiers[moves[i].row] = moves[i].to;
    }
    const std::vector<Tier> targets = tiers;
    for (size_t row = tiers.size(); row-- > 0;) {
      if (targets[row] == Tier::kT3) Erase(row);
    }
    return targets;
  }

  [[nodiscard]] size_t CountIn(Tier tier) const {
    return std::count(tiers.begin(), tiers.end(), tier);
  }
};

inline std::string Text(const std::vector<Tier>& tiers) {
  std::string text;
  for (const Tier tier : tiers) text.push_back(static_cast<char>('0' + static_cast<int>(tier)));
  return text;
}

// Returns a score without a pattern, the same for every placement.
inline float ScoreOf(Position position, int64_t step) {
  return static_cast<float>((static_cast<uint32_t>(position) * 2654435761u >> 8) % 1000) +
         static_cast<float>(static_cast<uint32_t>(step * 40503u + position * 97u) % 500);
}

// Generates `num_tokens` tokens after a prompt of 100 tokens, with the sinks, the window and the
// interval of the paper. Calls `after` after each decision.
template <typename After>
Group Generate(Placement* placement, int num_tokens, const After& after) {
  Group group;
  for (int i = 0; i < 100; ++i) group.Append(TokenKind::kGiven, 0);
  for (int i = 0; i < num_tokens; ++i) {
    group.Append(TokenKind::kGenerated, 0);
    if (!placement->Due(group.Input(), group.positions.size())) continue;
    for (size_t row = 0; row < group.scores.size(); ++row) {
      group.scores[row] = ScoreOf(group.positions[row], group.generated_tokens);
    }
    group.Place(placement);
    after(group);
  }
  return group;
}

inline Group Generate(const TierSetting& spec, int num_tokens) {
  return Generate(MakeHierarchy(spec, 4, 128, 64).get(), num_tokens, [](const Group&) {});
}

}  // namespace ebb

#endif  // EBB_POLICY_GROUP_FOR_TEST_H_

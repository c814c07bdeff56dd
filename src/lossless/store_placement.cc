#include "src/lossless/store_placement.h"

#include <string>
#include <vector>

#include "src/attention/rows.h"
#include "src/policy/placements.h"

namespace ebb {
namespace {

class StorePlacement final : public StatelessPlacement {
 public:
  std::string Name() const override { return "store"; }
  bool NeedsScores() const override { return false; }
  // Returns whether the end of T1 has changed. After a roll-back, decode steps notice the change
  // because they pass the end of each page. A chunk of a prompt may end where the last one did with
  // other rows before it, so prefill steps are always due.
  bool Due(const PlacementInput& input, size_t) const override {
    return input.step_kind == StepKind::kPrefill || EndOfT1(input) != settled_;
  }
  void Place(const PlacementInput& input, std::vector<Move>* moves) override {
    const Position end = EndOfT1(input);
    for (size_t row = 0; row < input.positions.size(); ++row) {
      if (input.positions[row] >= end) break;
      if (input.tiers[row] == Tier::kT1) continue;
      moves->push_back({.row = static_cast<uint32_t>(row), .to = Tier::kT1});
    }
    if (moves->empty()) settled_ = end;
  }

 private:
  // Returns the position up to which rows belong in T1. Rows of a verifying step stay in memory,
  // since they may still be rolled back.
  static Position EndOfT1(const PlacementInput& input) {
    constexpr auto kPage = static_cast<Position>(kRowsPerPage);
    const Position unverified = input.step_kind == StepKind::kDecode ? input.new_tokens : 0;
    return (input.next_position - unverified) / kPage * kPage;
  }

  // Holds the end of T1 once all rows before it were found there. Moves can fail, and are then
  // repeated.
  Position settled_ = 0;
};

}  // namespace

std::unique_ptr<Placement> MakeStorePlacement() { return std::make_unique<StorePlacement>(); }

}  // namespace ebb

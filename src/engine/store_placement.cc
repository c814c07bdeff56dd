#include "src/engine/store_placement.h"

#include <algorithm>
#include <string>
#include <vector>

#include "ebb/lossless.h"
#include "src/attention/rows.h"
#include "src/policy/placements.h"

namespace ebb {
namespace {

// Stay in memory: what may still be rolled back.
constexpr Position kNewest = kMostDrafted;

class StorePlacement final : public StatelessPlacement {
 public:
  std::string Name() const override { return "store"; }
  bool NeedsScores() const override { return false; }
  bool Due(const PlacementInput& input, size_t) const override {
    return EndOfT1(input.next_position) != settled_;
  }
  void Place(const PlacementInput& input, std::vector<Move>* moves) override {
    const Position end = EndOfT1(input.next_position);
    for (size_t row = 0; row < input.positions.size(); ++row) {
      if (input.positions[row] >= end) break;
      if (input.tiers[row] == Tier::kT1) continue;
      moves->push_back({.row = static_cast<uint32_t>(row), .to = Tier::kT1});
    }
    if (moves->empty()) settled_ = end;
  }

 private:
  static Position EndOfT1(Position next) {
    constexpr auto kPage = static_cast<Position>(kRowsPerPage);
    return std::max(next - kNewest, 0) / kPage * kPage;
  }

  // The end of T1 when all before it was found there: moves can fail, and are asked for again.
  Position settled_ = 0;
};

}  // namespace

std::unique_ptr<Placement> MakeStorePlacement() { return std::make_unique<StorePlacement>(); }

}  // namespace ebb

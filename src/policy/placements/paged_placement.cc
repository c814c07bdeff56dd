// Places rows for selective reading of T1 (T1Read::kSelect): the first and the newest positions
// (kNewestBesideSelectedT1) stay in T0, and all rows in between go to T1 in blocks of 64 positions,
// so that a page of T1 is a page of the selector. Nothing is evicted or compressed. The T0 share of
// the rows in T1 is a cache of pages (src/rows/t1_page_cache.h), which this placement does not
// manage.
#include <fmt/format.h>

#include "src/policy/placements.h"
#include "src/policy/tier_plan.h"

namespace ebb {
namespace {

class PagedPlacement final : public StatelessPlacement {
 public:
  explicit PagedPlacement(bool has_cap) : has_cap_(has_cap) {}

  std::string Name() const override {
    return fmt::format("paged(first={},newest={})", kOldBesideT1.first, kOldBesideT1.newest - 1);
  }
  bool NeedsScores() const override { return false; }
  bool SetT0Share(double /*share*/) override { return !has_cap_; }

  bool Due(const PlacementInput& input, size_t /*num_rows*/) const override {
    return input.step_kind == StepKind::kPrefill ||
           kOldBesideT1.EndAfter(input.next_position) >
               kOldBesideT1.EndAfter(input.next_position - input.new_tokens);
  }

  void Place(const PlacementInput& input, std::vector<Move>* moves) override {
    const Position end = kOldBesideT1.EndAfter(input.next_position);
    for (size_t row = 0; row < input.positions.size(); ++row) {
      const Tier to = kOldBesideT1.IsOld(input.positions[row], end) ? Tier::kT1 : Tier::kT0;
      const Tier now = input.tiers.empty() ? Tier::kT0 : input.tiers[row];
      if (to != now) moves->push_back({.row = static_cast<uint32_t>(row), .to = to});
    }
  }

 private:
  const bool has_cap_;  // on T0, which leaves no share to choose
};

}  // namespace

Result<std::unique_ptr<Placement>> MakePagedPlacement(const PlacementOptions& options) {
  return std::unique_ptr<Placement>(
      std::make_unique<PagedPlacement>(options.tiers.engine.t0_cap_bytes > 0));
}

}  // namespace ebb

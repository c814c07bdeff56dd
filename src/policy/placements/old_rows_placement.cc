// Compresses old rows by position (T2Rows::kOld): the first and the newest positions
// (kNewestBesideT2) stay in T0, and all rows in between, those of prompts too, go to T2. Rows are
// compressed in pages of 64 positions, when a generated token completes a page and at the end of a
// prompt's chunk. Results therefore depend neither on how a chunk is divided into steps nor on
// other sessions. Within a prompt the rows of whole chunks are compressed, the newest ones too, so
// that another prompt with the same beginning can reuse them (prefix caching) in exactly the state
// that reading that prompt itself would have produced.
#include <fmt/format.h>

#include "src/policy/placements.h"
#include "src/policy/tier_plan.h"

namespace ebb {
namespace {

class OldRowsPlacement final : public StatelessPlacement {
 public:
  explicit OldRowsPlacement(CompressedType type) : type_(type) {}

  std::string Name() const override {
    return fmt::format("old_rows(t2={},first={},newest={})", CompressedTypeName(type_), kFirstInT0,
                       kNewestAboveT2);
  }
  bool NeedsScores() const override { return false; }
  // A share changes nothing: every row that is not compressed is in T0.
  bool SetT0Share(double /*share*/) override { return true; }

  bool Due(const PlacementInput& input, size_t /*num_rows*/) const override {
    return input.step_kind == StepKind::kPrefill ||
           EndOfOldRows(input.next_position, kNewestAboveT2) >
               EndOfOldRows(input.next_position - input.new_tokens, kNewestAboveT2);
  }

  void Place(const PlacementInput& input, std::vector<Move>* moves) override {
    // Between steps, rows return from T1 but none are compressed, because a prompt's chunk may be
    // half read.
    const Position end = input.new_tokens > 0 ? EndOfRowsToCompress(input) : 0;
    for (size_t row = 0; row < input.positions.size(); ++row) {
      const Tier now = input.tiers.empty() ? Tier::kT0 : input.tiers[row];
      // After a roll-back, compressed rows may be among the newest positions; they stay compressed.
      if (now == Tier::kT2) continue;
      const Tier to = IsOldRow(input.positions[row], end) ? Tier::kT2 : Tier::kT0;
      if (to != now) moves->push_back({.row = static_cast<uint32_t>(row), .to = to});
    }
  }

  std::string Explain(const PlacementInput& input, size_t row) const override {
    const Position position = input.positions[row];
    if (position < kFirstInT0) return fmt::format("one of the first {} tokens: T0", kFirstInT0);
    const bool is_compressed = !input.tiers.empty() && input.tiers[row] == Tier::kT2;
    if (is_compressed || IsOldRow(position, EndOfRowsToCompress(input))) {
      return fmt::format("an old token: T2, as {}", CompressedTypeName(type_));
    }
    return fmt::format("one of the newest {} to {} tokens, which are compressed in pages of {}: T0",
                       kNewestBesideT2.least, kNewestBesideT2.most, kFirstInT0);
  }

 private:
  static Position EndOfRowsToCompress(const PlacementInput& input) {
    if (input.tokens_to_come == 0) return EndOfOldRows(input.next_position, kNewestAboveT2);
    return input.next_position / kFirstInT0 * kFirstInT0;
  }

  const CompressedType type_;
};

}  // namespace

Result<std::unique_ptr<Placement>> MakeOldRowsPlacement(const PlacementOptions& options) {
  return std::unique_ptr<Placement>(
      std::make_unique<OldRowsPlacement>(options.tiers.engine.t2_type.value_or(kDefaultT2Type)));
}

}  // namespace ebb

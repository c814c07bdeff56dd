// Compresses old rows by position (T2Rows::kOld): the first and the newest positions
// (OldBesideT2()) stay in T0, and all rows in between, those of prompts too, go to T2. Rows are
// compressed in blocks of positions, when a generated token completes a block and at the end of a
// prompt's chunk. Results therefore depend neither on how a chunk is divided into steps nor on
// other sessions.
//
// Within a prompt the rows of whole chunks are compressed, the newest ones too, so that another
// prompt with the same beginning can reuse them (prefix caching) in exactly the state that reading
// that prompt itself would have produced. If a retention may still hide the newest rows
// (Placement::DecidedAfter()), the newest rows stay in T0 within prompts too.
#include <fmt/format.h>

#include "src/policy/placements.h"
#include "src/policy/tier_plan.h"

namespace ebb {
namespace {

class OldRowsPlacement final : public StatelessPlacement {
 public:
  OldRowsPlacement(CompressedType type, const OldPositions& old, bool keeps_newest)
      : type_(type), old_(old), keeps_newest_(keeps_newest) {}

  std::string Name() const override {
    return fmt::format("old_rows(t2={},first={},newest={})", CompressedTypeName(type_), old_.first,
                       old_.newest - 1);
  }
  bool NeedsScores() const override { return false; }
  // A share changes nothing: every row that is not compressed is in T0.
  bool SetT0Share(double /*share*/) override { return true; }

  bool Due(const PlacementInput& input, size_t /*num_rows*/) const override {
    return input.step_kind == StepKind::kPrefill ||
           old_.EndAfter(input.next_position) >
               old_.EndAfter(input.next_position - input.new_tokens);
  }

  void Place(const PlacementInput& input, std::vector<Move>* moves) override {
    // Between steps, rows return from T1 but none are compressed, because a prompt's chunk may be
    // half read.
    const Position end = input.new_tokens > 0 ? EndOfRowsToCompress(input) : 0;
    for (size_t row = 0; row < input.positions.size(); ++row) {
      const Tier now = input.tiers.empty() ? Tier::kT0 : input.tiers[row];
      // After a roll-back, compressed rows may be among the newest positions; they stay compressed.
      if (now == Tier::kT2) continue;
      const Tier to = old_.IsOld(input.positions[row], end) ? Tier::kT2 : Tier::kT0;
      if (to != now) moves->push_back({.row = static_cast<uint32_t>(row), .to = to});
    }
  }

  std::string Explain(const PlacementInput& input, size_t row) const override {
    const Position position = input.positions[row];
    if (position < old_.first) return fmt::format("one of the first {} tokens: T0", old_.first);
    const bool is_compressed = !input.tiers.empty() && input.tiers[row] == Tier::kT2;
    if (is_compressed || old_.IsOld(position, EndOfRowsToCompress(input))) {
      return fmt::format("an old token: T2, as {}", CompressedTypeName(type_));
    }
    return fmt::format("one of the newest {} to {} tokens, which are compressed in pages of {}: T0",
                       old_.newest, old_.newest - 1 + old_.block, old_.block);
  }

 private:
  [[nodiscard]] Position EndOfRowsToCompress(const PlacementInput& input) const {
    const bool is_within_prompt = input.tokens_to_come > 0 && !keeps_newest_;
    if (!is_within_prompt) return old_.EndAfter(input.next_position);
    return input.next_position / old_.block * old_.block;
  }

  const CompressedType type_;
  const OldPositions old_;
  const bool keeps_newest_;  // within prompts too
};

}  // namespace

Result<std::unique_ptr<Placement>> MakeOldRowsPlacement(const PlacementOptions& options) {
  const auto& [engine, shares] = options.tiers;
  if (shares.t2_first < 0 || shares.t2_newest < 1) {
    return InvalidArgument("tiers.t2_rows",
                           fmt::format("first={} and newest={}: expected at least 0 and 1",
                                       shares.t2_first, shares.t2_newest));
  }
  return std::unique_ptr<Placement>(std::make_unique<OldRowsPlacement>(
      engine.t2_type.value_or(kDefaultT2Type), OldBesideT2(shares, options.decided_after),
      options.decided_after > 0));
}

}  // namespace ebb

#include "src/sequence/sequence_file.h"

#include <fmt/format.h>

#include <algorithm>

#include "src/sequence/sequence.h"

namespace ebb {

void SequenceFile::SaveTokens(StateWriter* to) const {
  sequence_.prompt_.Save(to);
  const std::optional<StepKind> refused = sequence_.health_.refused();
  to->Number<uint8_t>(refused.has_value() ? 1 + static_cast<uint8_t>(*refused) : 0);
  sequence_.tokens_.Save(to);
}

void SequenceFile::SaveKeyPlaces(StateWriter* to) const {
  sequence_.rope_.Save(to);
  sequence_.unrotated_keys_.Save(to);
}

void SequenceFile::SavePlaces(StateWriter* to) const {
  SaveKeyPlaces(to);
  sequence_.roll_back_.Save(to);
}

Status SequenceFile::SavePolicy(StateWriter* to) const {
  sequence_.signals_.Save(to);
  return sequence_.settler_.SaveState(to);
}

Status SequenceFile::LoadTokens(StateReader* from) {
  Sequence& s = sequence_;
  s.prompt_.Load(from);
  const auto refused_kind = from->Number<uint8_t>();
  if (refused_kind > 2) from->Fail(fmt::format("a step of kind {}", refused_kind));
  if (refused_kind > 0) s.health_.Refuse(static_cast<StepKind>(refused_kind - 1));
  s.tokens_.Load(from);
  if (const Status status = s.CheckTokens(s.tokens()); !status.ok()) from->Fail(status.message());
  if (from->ok()) s.prompt_.CheckLoaded(s.tokens_, from);
  return from->status();
}

Status SequenceFile::LoadKeyPlaces(StateReader* from) {
  Sequence& s = sequence_;
  s.rope_.Load(s.cache_.layout().num_groups(), s.next(), from);
  s.unrotated_keys_.Load(s.cache_, s.next(), from);
  return from->status();
}

Status SequenceFile::LoadPlaces(StateReader* from) {
  EBB_RETURN_IF_ERROR(LoadKeyPlaces(from));
  sequence_.roll_back_.Load(sequence_.next(), from);
  return from->status();
}

Status SequenceFile::LoadPolicy(StateReader* from) {
  sequence_.signals_.Load(from);
  sequence_.settler_.BeginLedger(sequence_.next());
  return sequence_.settler_.LoadState(from);
}

Status SequenceFile::ForkFrom(Sequence* other) {
  Sequence& s = sequence_;
  EBB_RETURN_IF_ERROR(other->health_.CheckUnbroken());
  const SequenceFile from_other(other);
  StateWriter tokens, places, policy;
  from_other.SaveTokens(&tokens);
  from_other.SaveKeyPlaces(&places);
  EBB_RETURN_IF_ERROR(from_other.SavePolicy(&policy));
  EBB_RETURN_IF_ERROR(s.cache_.ForkFrom(&other->cache_));
  const auto load = [this](const StateWriter& state, auto part) {
    StateReader from(state.bytes(), "fork");
    EBB_RETURN_IF_ERROR((this->*part)(&from));
    return from.End();
  };
  EBB_RETURN_IF_ERROR(load(tokens, &SequenceFile::LoadTokens));
  EBB_RETURN_IF_ERROR(load(places, &SequenceFile::LoadKeyPlaces));
  s.roll_back_.TakeFrom(other->roll_back_, s.next());
  EBB_RETURN_IF_ERROR(load(policy, &SequenceFile::LoadPolicy));
  s.prompt_.TakeFrom(other->prompt_);
  s.t0_share_ = other->t0_share_;
  if (!s.t0_share_.has_value()) return OkStatus();
  (void)s.policy_.placement->SetT0Share(*s.t0_share_);
  s.cache_.SetCachedT1({.share = *s.t0_share_});
  return OkStatus();
}

Status Sequence::ForkFrom(Sequence* other) { return SequenceFile(this).ForkFrom(other); }

Status SequenceFile::CheckWindows() const {
  const SequenceCache& cache = sequence_.cache_;
  for (int group = 0; group < cache.layout().num_groups(); ++group) {
    const int window = cache.layout().WindowOf(group);
    if (window == 0) continue;
    const auto rows = cache.positions(group);
    for (const Position end : sequence_.roll_back_.windows().positions()) {
      const Position seen = std::min(window - 1, end);
      const auto found =
          std::ranges::lower_bound(rows, end) - std::ranges::lower_bound(rows, end - seen);
      if (found != seen) {
        return Corrupt(
            fmt::format("{} of the {} rows in a window before token {}", found, seen, end));
      }
    }
  }
  return OkStatus();
}

Status SequenceFile::CheckPlaces() const {
  EBB_RETURN_IF_ERROR(CheckWindows());
  const SequenceCache& cache = sequence_.cache_;
  const auto num_rows = static_cast<Position>(cache.tables().max_rows());
  const Position places = sequence_.rope_.Next(sequence_.next());
  if (places < num_rows) return Corrupt("more rows than places");
  const bool has_below = cache.page_bytes(Tier::kT1) != 0 || cache.page_bytes(Tier::kT2) != 0;
  if (sequence_.RotatesKeys() && has_below) {
    return Corrupt("rows in T1 or T2, whose keys cannot be re-rotated");
  }
  // If keys may be re-rotated, they can move together, so only the number of rows has to fit into
  // the context.
  const Position needed = sequence_.RotatesKeys() ? num_rows : places;
  const int context = sequence_.options().context;
  if (needed <= context) return OkStatus();
  return InvalidArgument(fmt::format(
      "a session longer than the context: expected at most {} tokens, found {}", context, needed));
}

}  // namespace ebb

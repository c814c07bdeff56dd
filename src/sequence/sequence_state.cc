// The part of a session's file that a sequence fills; see docs/dev/formats.md.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "src/sequence/sequence.h"

namespace ebb {

void Sequence::SaveTokens(StateWriter* to) const {
  to->Number<uint8_t>(first_prompt_over_ ? 1 : 0);
  to->Number<uint64_t>(first_prompt_.num_tokens);
  to->Number<Position>(first_prompt_.end);
  const std::optional<StepKind> refused = health_.refused();
  to->Number<uint8_t>(refused.has_value() ? 1 + static_cast<uint8_t>(*refused) : 0);
  to->Numbers<Token>(tokens_);
  std::vector<uint8_t> kinds_as_bytes;
  for (const TokenKind kind : kinds_) kinds_as_bytes.push_back(static_cast<uint8_t>(kind));
  to->Numbers<uint8_t>(kinds_as_bytes);
}

void Sequence::SaveKeyPlaces(StateWriter* to) const {
  rope_.Save(to);
  unrotated_keys_.Save(to);
}

void Sequence::SavePlaces(StateWriter* to) const {
  SaveKeyPlaces(to);
  state_.Save(to);
  window_checkpoints_.Save(to);
}

Status Sequence::SavePolicy(StateWriter* to) const {
  signals_.Save(to);
  return settler_.SaveState(to);
}

Status Sequence::LoadTokens(StateReader* from) {
  first_prompt_over_ = from->Number<uint8_t>() != 0;
  first_prompt_ = {.num_tokens = from->Number<uint64_t>(), .end = from->Number<Position>()};
  const auto refused_kind = from->Number<uint8_t>();
  if (refused_kind > 2) from->Fail(fmt::format("a step of kind {}", refused_kind));
  if (refused_kind > 0) health_.Refuse(static_cast<StepKind>(refused_kind - 1));
  tokens_ = from->Numbers<Token>();
  const auto kinds_as_bytes = from->Numbers<uint8_t>();
  if (!CheckTokens(tokens_).ok()) from->Fail(CheckTokens(tokens_).message());
  if (tokens_.size() > std::numeric_limits<Position>::max() ||
      kinds_as_bytes.size() != tokens_.size()) {
    from->Fail("as many kinds as tokens were expected");
  }
  for (const uint8_t kind : kinds_as_bytes) {
    if (kind > 1) from->Fail(fmt::format("a token of kind {}", kind));
    kinds_.push_back(static_cast<TokenKind>(kind));
  }
  EBB_RETURN_IF_ERROR(from->status());
  const auto generated = std::ranges::find(kinds_, TokenKind::kGenerated);
  first_generated_ =
      generated == kinds_.end() ? -1 : static_cast<Position>(generated - kinds_.begin());
  generated_tokens_ = std::ranges::count(kinds_, TokenKind::kGenerated);
  const auto given = first_generated_ < 0 ? tokens_.size() : static_cast<size_t>(first_generated_);
  if (first_prompt_.end < 0 || static_cast<size_t>(first_prompt_.end) > given ||
      first_prompt_.num_tokens < static_cast<size_t>(first_prompt_.end)) {
    from->Fail(fmt::format("{} of {} tokens of the first prompt, {} given tokens",
                           first_prompt_.end, first_prompt_.num_tokens, given));
    return from->status();
  }
  // Older files say otherwise of a sequence that began by decoding.
  if (generated_tokens_ > 0) first_prompt_over_ = true;
  return OkStatus();
}

Status Sequence::LoadKeyPlaces(StateReader* from) {
  rope_.Load(cache_.layout().num_groups(), next(), from);
  unrotated_keys_.Load(cache_, next(), from);
  return from->status();
}

Status Sequence::LoadPlaces(StateReader* from) {
  EBB_RETURN_IF_ERROR(LoadKeyPlaces(from));
  state_.Load(from);
  if (state_.exists() && from->status().ok() && state_.position() != next()) {
    from->Fail(fmt::format("a recurrent state of {} tokens for {}", state_.position(), next()));
  }
  window_checkpoints_.Load(next(), from);
  return from->status();
}

Status Sequence::LoadPolicy(StateReader* from) {
  signals_.Load(from);
  settler_.BeginLedger(next());
  return settler_.LoadState(from);
}

Status Sequence::ForkFrom(Sequence* other) {
  EBB_RETURN_IF_ERROR(other->health_.CheckUnbroken());
  StateWriter tokens, places, policy;
  other->SaveTokens(&tokens);
  other->SaveKeyPlaces(&places);
  EBB_RETURN_IF_ERROR(other->SavePolicy(&policy));
  EBB_RETURN_IF_ERROR(cache_.ForkFrom(&other->cache_));
  const auto load = [this](const StateWriter& state, auto part) {
    StateReader from(state.bytes(), "fork");
    EBB_RETURN_IF_ERROR((this->*part)(&from));
    return from.End();
  };
  EBB_RETURN_IF_ERROR(load(tokens, &Sequence::LoadTokens));
  EBB_RETURN_IF_ERROR(load(places, &Sequence::LoadKeyPlaces));
  state_.TakeFrom(other->state_, next());
  window_checkpoints_ = other->window_checkpoints_;
  EBB_RETURN_IF_ERROR(load(policy, &Sequence::LoadPolicy));
  first_prompt_ = other->first_prompt_;
  t0_share_ = other->t0_share_;
  if (!t0_share_.has_value()) return OkStatus();
  (void)policy_.placement->SetT0Share(*t0_share_);
  cache_.SetCachedT1({.share = *t0_share_});
  return OkStatus();
}

Status Sequence::CheckPlaces() const {
  for (int group = 0; group < cache_.layout().num_groups(); ++group) {
    const int window = cache_.layout().WindowOf(group);
    if (window == 0) continue;
    const auto rows = cache_.positions(group);
    for (const Position end : window_checkpoints_.positions()) {
      const Position seen = std::min(window - 1, end);
      const auto found =
          std::ranges::lower_bound(rows, end) - std::ranges::lower_bound(rows, end - seen);
      if (found != seen) {
        return Corrupt(
            fmt::format("{} of the {} rows in a window before token {}", found, seen, end));
      }
    }
  }
  const auto num_rows = static_cast<Position>(cache_.tables().max_rows());
  if (rope_.Next(next()) < num_rows) return Corrupt("more rows than places");
  const bool has_below = cache_.page_bytes(Tier::kT1) != 0 || cache_.page_bytes(Tier::kT2) != 0;
  if (RotatesKeys() && has_below) {
    return Corrupt("rows in T1 or T2, whose keys cannot be re-rotated");
  }
  // Keys that may be rotated again find room where rows do.
  const Position needed = RotatesKeys() ? num_rows : rope_.Next(next());
  if (needed <= options_.context) return OkStatus();
  return InvalidArgument(
      fmt::format("a session longer than the context: expected at most {} tokens, found {}",
                  options_.context, needed));
}

}  // namespace ebb

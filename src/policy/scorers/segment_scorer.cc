#include "src/policy/scorers/segment_scorer.h"

#include <algorithm>
#include <cassert>
#include <functional>
#include <optional>

namespace ebb {
namespace {

constexpr float kBelow1 = 0.99999f;
constexpr float kNoMass = -1.0f;  // in place of a head's density

// kHeadsPerPart is the number of heads that one part processes; less mass than kFloatsWorthThreads
// is not worth waking threads for.
constexpr int kHeadsPerPart = 16;
constexpr size_t kFloatsWorthThreads = size_t{1} << 16;

}  // namespace

SegmentScorer::SegmentScorer(const ScorerContext& context, int tau)
    : ColumnScorer(context),
      run_parts_(context.run_parts),
      segments_(this, num_groups(), Segments(tau)) {}

void SegmentScorer::InitRows(int group, std::span<const Position> positions) {
  std::ranges::fill(rooms_[group].last(positions.size()), 1.0f);
}

// Reads the mass of all query heads, megabytes for a long thought. Each part computes the densities
// of some heads, and adds the mass of all heads for some rows.
float SegmentScorer::TakeMass(int group, const GroupSignals& signals) {
  const int num_heads = signals.num_mass_heads;
  densities_.resize(num_heads);
  const auto num_rows = static_cast<size_t>(signals.num_rows);
  assert(scores_.num_rows(group) == num_rows);
  const int num_parts = (num_heads + kHeadsPerPart - 1) / kHeadsPerPart;
  const auto share = [&](size_t total, int part) { return total * part / num_parts; };
  const auto take = [&](int part) {
    TakeMassOfRows(group, signals, {share(num_rows, part), share(num_rows, part + 1)});
    const size_t end = share(num_heads, part + 1);
    for (size_t head = share(num_heads, part); head < end; ++head) {
      const std::span<const float> mass = MassOfHead(signals, static_cast<int>(head));
      // Heads of a layer with a NaN have no mass at all, and must not lower the mean density.
      const bool none = std::ranges::none_of(mass, [](float m) { return m > 0; });
      densities_[head] = none ? kNoMass : Density(mass);
    }
  };
  if (run_parts_ && num_parts > 1 && signals.mass.size() >= kFloatsWorthThreads) {
    run_parts_(num_parts, std::ref(take));
  } else {
    for (int part = 0; part < num_parts; ++part) take(part);
  }
  float sum = 0;
  int num_with_mass = 0;
  for (const float density : densities_) {
    if (density == kNoMass) continue;
    sum += density;
    ++num_with_mass;
  }
  return sum / static_cast<float>(std::max(1, num_with_mass));
}

// Rolls the segments back to `end`. Segments that are open again give room to all of their
// surviving rows, as they did when they were open before.
void SegmentScorer::TakeBack(int group, Position end) {
  Segments& segments = segments_[group];
  if (segments.num_tokens() <= end) return;
  const int closed_before = segments.num_closed();
  segments.TruncateTo(end);
  // A surviving row always belongs to a surviving segment, except in states that an older version
  // saved or that are forged.
  const auto last = static_cast<float>(std::max(0, segments.size() - 1));
  const auto first_open = static_cast<float>(segments.num_closed());
  const std::span<float> ids = ids_[group], has_room = rooms_[group];
  for (size_t row = 0; row < ids.size(); ++row) {
    ids[row] = std::min(ids[row], last);
    if (ids[row] >= first_open) has_room[row] = 1;
  }
  if (segments.num_closed() < closed_before) Reopen(group, segments.num_closed());
}

void SegmentScorer::ObserveGroup(int group, const GroupSignals& signals, const StepSignals& step) {
  TakeBack(group, step.first_position);
  Segments& segments = segments_[group];
  std::optional<float> density;
  if (ShowsDecodeMass(signals, step)) {
    density = TakeMass(group, signals);
  }
  const int first_new = segments.num_closed();
  bool closed = false;
  for (float& id : ids_[group].last(step.num_tokens)) {
    id = static_cast<float>(segments.Take(step.kind));
    if (density.has_value()) segments.AddSignal(*density);
    closed = segments.CloseIfFull() || closed;
  }
  if (closed) ChooseRows(group, first_new);
}

std::span<const float> SegmentScorer::Scores(int group) {
  const std::span<float> scores = scores_[group];
  const std::span<const float> ranks = Ranks(group);
  const std::span<const float> rooms = rooms_[group];
  for (size_t i = 0; i < scores.size(); ++i) {
    const float rank = std::min(Squashed(ranks[i]), kBelow1);
    scores[i] = rooms[i] > 0 ? rank : rank - 1.0f;
  }
  return scores;
}

RowRange SegmentScorer::RowsOf(int group, int segment) const {
  const std::span<const float> ids = ids_[group];
  const auto [begin, end] = std::equal_range(ids.begin(), ids.end(), static_cast<float>(segment));
  return {static_cast<size_t>(begin - ids.begin()), static_cast<size_t>(end - ids.begin())};
}

void SegmentScorer::KeepHighest(int group, const RowRange& rows, size_t count) {
  const size_t num_rows = rows.end - rows.begin;
  if (num_rows <= count) return;
  for (const uint32_t row : selection_.First(Ranks(group), {&rows, 1}, num_rows - count)) {
    rooms_[group][row] = 0;
  }
}

void SegmentScorer::CheckLoaded(StateReader* from) const {
  for (int group = 0; group < num_groups(); ++group) {
    const auto num_segments = static_cast<float>(segments_[group].size());
    const auto is_there = [&](float id) { return id >= 0 && id < num_segments; };
    if (!std::ranges::all_of(ids_[group], is_there) || !std::ranges::is_sorted(ids_[group])) {
      from->Fail("rows of segments that are not there");
    }
  }
}

// Adds up the heads of each row in the same order in every part, so that the number of parts
// changes no bit.
void AttentionSegmentScorer::TakeMassOfRows(int group, const GroupSignals& signals, RowRange rows) {
  AddMeanMassOfRows(signals, layout_.QueryHeadsOf(group), rows.begin,
                    attention_[group].subspan(rows.begin, rows.end - rows.begin));
}

}  // namespace ebb

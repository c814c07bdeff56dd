#include "src/policy/scorers/column_scorer.h"

namespace ebb {

void ColumnScorer::Append(int group, std::span<const Position> positions) {
  for (ScorerPart* part : parts_) part->Append(group, positions);
  InitRows(group, positions);
}

void ColumnScorer::Retain(int group, std::span<const uint32_t> kept) {
  for (ScorerPart* part : parts_) part->Retain(group, kept);
}

void ColumnScorer::Prefetch(int group) const {
  for (const ScorerPart* part : parts_) part->Prefetch(group);
}

Status ColumnScorer::SaveState(StateWriter* to) const {
  for (const ScorerPart* part : parts_) EBB_RETURN_IF_ERROR(part->Save(to));
  return OkStatus();
}

Status ColumnScorer::LoadState(StateReader* from) {
  for (ScorerPart* part : parts_) EBB_RETURN_IF_ERROR(part->Load(from));
  for (int group = 0; group < num_groups(); ++group) {
    for (const ScorerPart* part : parts_) {
      if (!part->HasRows(group, scores_.num_rows(group))) {
        from->Fail("columns of different numbers of rows");
      }
    }
  }
  if (from->ok()) CheckLoaded(from);
  return from->status();
}

std::vector<int> ColumnScorer::FirstStreams() const {
  std::vector<int> first;
  for (int group = 0; group < layout_.num_groups(); ++group) {
    first.push_back(layout_.FirstStreamOf(group));
  }
  first.push_back(layout_.num_streams());
  return first;
}

}  // namespace ebb

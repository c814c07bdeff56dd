// Declares ColumnScorer, the base of the built-in scorers. It owns a scorer's state, so that a
// scorer defines only Needs(), Observe() and Scores().
//
// A scorer declares its state as members: Column, GroupNumbers, SavedList, InnerScorer. Each member
// registers itself with the scorer, which appends, retains, saves and loads the members in the
// order of their declaration. That order is the format of a saved state, so changing it breaks old
// states.
#ifndef EBB_POLICY_SCORERS_COLUMN_SCORER_H_
#define EBB_POLICY_SCORERS_COLUMN_SCORER_H_

#include <algorithm>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "ebb/policy.h"
#include "src/policy/mass_totals.h"
#include "src/policy/row_scores.h"
#include "src/policy/score_loops.h"
#include "src/policy/scorers.h"

namespace ebb {

class ColumnScorer;

// ScorerPart is the base of the members that hold a ColumnScorer's state.
class ScorerPart {
 public:
  explicit ScorerPart(ColumnScorer* owner);
  virtual ~ScorerPart() = default;
  ScorerPart(const ScorerPart&) = delete;
  ScorerPart& operator=(const ScorerPart&) = delete;

  // Append(), Retain() and Prefetch() are as in Scorer; a part without numbers for rows ignores
  // them.
  virtual void Append(int /*group*/, std::span<const Position> /*positions*/) {}
  virtual void Retain(int /*group*/, std::span<const uint32_t> /*kept*/) {}
  virtual void Prefetch(int /*group*/) const {}
  [[nodiscard]] virtual Status Save(StateWriter* to) const = 0;
  [[nodiscard]] virtual Status Load(StateReader* from) = 0;
  // Returns whether the part has numbers for exactly `num_rows` rows of the group; true if it has
  // no numbers for rows.
  [[nodiscard]] virtual bool HasRows(int /*group*/, size_t /*num_rows*/) const { return true; }
};

// Column holds `width` numbers for each row; T as in RowValues. A group has one list of rows, or,
// if first_lists is not empty, one list for each of its streams or query heads: first_lists[group]
// to first_lists[group + 1] - 1.
template <typename T>
class Column final : public ScorerPart {
 public:
  explicit Column(ColumnScorer* owner, std::vector<int> first_lists = {}, size_t width = 1);

  [[nodiscard]] std::span<T> operator[](int list) { return values_[list]; }
  [[nodiscard]] std::span<const T> operator[](int list) const { return values_[list]; }
  [[nodiscard]] size_t num_rows(int list) const { return values_.num_rows(list); }
  void SetAllToZero() { values_.SetAllToZero(); }

  void Append(int group, std::span<const Position> positions) override {
    for (int list = Begin(group); list < End(group); ++list) {
      values_.Append(list, positions.size());
    }
  }
  void Retain(int group, std::span<const uint32_t> kept) override {
    for (int list = Begin(group); list < End(group); ++list) values_.Retain(list, kept);
  }
  // Skips columns with many lists: prefetched lists would evict each other from the processor's
  // cache.
  void Prefetch(int group) const override {
    if (first_lists_.empty()) values_.Prefetch(group);
  }
  Status Save(StateWriter* to) const override { return values_.Save(to); }
  Status Load(StateReader* from) override { return values_.Load(from); }
  bool HasRows(int group, size_t num_rows) const override {
    for (int list = Begin(group); list < End(group); ++list) {
      if (values_.num_rows(list) != num_rows) return false;
    }
    return true;
  }

 private:
  [[nodiscard]] int Begin(int group) const {
    return first_lists_.empty() ? group : first_lists_[group];
  }
  [[nodiscard]] int End(int group) const { return Begin(group + 1); }

  const std::vector<int> first_lists_;  // [num_groups + 1], or empty
  RowValues<T> values_;
};

class ColumnScorer : public Scorer {
 public:
  explicit ColumnScorer(const ScorerContext& context)
      : layout_(context.Layout()), num_groups_(context.NumGroups()), scores_(this) {}

  void Append(int group, std::span<const Position> positions) final;
  void Retain(int group, std::span<const uint32_t> kept) override;
  [[nodiscard]] std::span<const float> Scores(int group) override { return scores_[group]; }
  void Prefetch(int group) const final;
  [[nodiscard]] Status SaveState(StateWriter* to) const final;
  [[nodiscard]] Status LoadState(StateReader* from) final;

  [[nodiscard]] int num_groups() const { return num_groups_; }

 protected:
  // Sets the numbers of the group's newest rows, at `positions`; they are zeros before. Called by
  // Append().
  virtual void InitRows(int /*group*/, std::span<const Position> /*positions*/) {}
  // Calls StateReader::Fail() if the loaded state contradicts itself. The columns of a group are
  // known to have the same number of rows.
  virtual void CheckLoaded(StateReader* /*from*/) const {}

  // Returns first_lists for a Column with one list for each stream.
  [[nodiscard]] std::vector<int> FirstStreams() const;

  const AttentionLayout layout_;

 private:
  friend class ScorerPart;
  const int num_groups_;
  std::vector<ScorerPart*> parts_;  // in the order of their declaration

 protected:
  Column<float> scores_;
};

inline ScorerPart::ScorerPart(ColumnScorer* owner) { owner->parts_.push_back(this); }

template <typename T>
Column<T>::Column(ColumnScorer* owner, std::vector<int> first_lists, size_t width)
    : ScorerPart(owner),
      first_lists_(std::move(first_lists)),
      values_(first_lists_.empty() ? owner->num_groups() : first_lists_.back(), width) {}

// Reads a list. Fails the reader if the saved list has another length than `list`.
template <typename T>
Status LoadList(StateReader* from, std::vector<T>* list) {
  const std::vector<T> loaded = from->Numbers<T>();
  if (loaded.size() != list->size()) {
    from->Fail("a list of another length");
  } else {
    *list = loaded;
  }
  return from->status();
}

// GroupNumbers holds a number for each group. Load() rejects numbers below 0.
template <StateNumber T>
class GroupNumbers final : public ScorerPart {
 public:
  explicit GroupNumbers(ColumnScorer* owner, T initial = 0)
      : ScorerPart(owner), numbers_(owner->num_groups(), initial) {}

  [[nodiscard]] T& operator[](int group) { return numbers_[group]; }
  [[nodiscard]] T operator[](int group) const { return numbers_[group]; }

  Status Save(StateWriter* to) const override {
    to->Numbers<T>(numbers_);
    return OkStatus();
  }
  Status Load(StateReader* from) override {
    EBB_RETURN_IF_ERROR(LoadList(from, &numbers_));
    const auto is_count = [](T number) { return number >= 0; };  // NaN is none
    if (!std::ranges::all_of(numbers_, is_count)) from->Fail("a number below 0");
    return from->status();
  }

 private:
  std::vector<T> numbers_;  // [num_groups]
};

// SavedList holds numbers, or objects with Save() and Load(), and saves and loads them with the
// scorer. The constructor sets its length, which a saved list must have too.
template <typename T>
class SavedList final : public ScorerPart {
 public:
  SavedList(ColumnScorer* owner, size_t size, const T& initial = T())
      : ScorerPart(owner), list_(size, initial) {}
  SavedList(ColumnScorer* owner, std::vector<T> list) : ScorerPart(owner), list_(std::move(list)) {}

  [[nodiscard]] T& operator[](size_t i) { return list_[i]; }
  [[nodiscard]] const T& operator[](size_t i) const { return list_[i]; }
  [[nodiscard]] size_t size() const { return list_.size(); }

  Status Save(StateWriter* to) const override {
    if constexpr (StateNumber<T>) {
      to->Numbers<T>(list_);
    } else {
      for (const T& object : list_) object.Save(to);
    }
    return OkStatus();
  }
  Status Load(StateReader* from) override {
    if constexpr (StateNumber<T>) {
      return LoadList(from, &list_);
    } else {
      for (T& object : list_) EBB_RETURN_IF_ERROR(object.Load(from));
      return OkStatus();
    }
  }

 private:
  std::vector<T> list_;
};

// InnerScorer holds another scorer whose scores are part of the owner's. The owner itself must pass
// Observe() and EndFirstPrefill() on.
class InnerScorer final : public ScorerPart {
 public:
  InnerScorer(ColumnScorer* owner, std::unique_ptr<Scorer> scorer)
      : ScorerPart(owner), scorer_(std::move(scorer)) {}

  [[nodiscard]] Scorer* operator->() const { return scorer_.get(); }

  void Append(int group, std::span<const Position> positions) override {
    scorer_->Append(group, positions);
  }
  void Retain(int group, std::span<const uint32_t> kept) override { scorer_->Retain(group, kept); }
  Status Save(StateWriter* to) const override { return scorer_->SaveState(to); }
  Status Load(StateReader* from) override { return scorer_->LoadState(from); }
  bool HasRows(int group, size_t num_rows) const override {
    return scorer_->Scores(group).size() == num_rows;
  }

 private:
  const std::unique_ptr<Scorer> scorer_;
};

}  // namespace ebb

#endif  // EBB_POLICY_SCORERS_COLUMN_SCORER_H_

// Makes placements of Python classes, and built-in placements for scorers in Python.
#include <algorithm>

#include "python_parts.h"

namespace ebb::python {
namespace {

// A built-in placement, which decides nothing once Python code has failed.
class GuardedPlacement final : public Placement {
 public:
  GuardedPlacement(std::unique_ptr<Placement> placement, std::shared_ptr<Failure> failure)
      : placement_(std::move(placement)), failure_(std::move(failure)) {}

  std::string Name() const override { return placement_->Name(); }
  bool NeedsScores() const override { return placement_->NeedsScores(); }
  Status Check(const PlacementInput& input) const override { return placement_->Check(input); }
  bool Due(const PlacementInput& input, size_t num_rows) const override {
    return !failure_->is_set() && placement_->Due(input, num_rows);
  }
  void Place(const PlacementInput& input, std::vector<Move>* moves) override {
    // Scores were asked for just before.
    if (!failure_->is_set()) placement_->Place(input, moves);
  }
  std::string Explain(const PlacementInput& input, size_t row) const override {
    return placement_->Explain(input, row);
  }
  bool SetT0Share(double share) override { return placement_->SetT0Share(share); }
  void FindExpiring(const PlacementInput& input, std::vector<Expiry>* rows) const override {
    if (!failure_->is_set()) placement_->FindExpiring(input, rows);
  }
  int LongestStep() const override { return placement_->LongestStep(); }
  Status SaveState(StateWriter* to) const override { return placement_->SaveState(to); }
  Status LoadState(StateReader* from) override { return placement_->LoadState(from); }

 private:
  const std::unique_ptr<Placement> placement_;
  const std::shared_ptr<Failure> failure_;
};

bool IsNumPyBool(nb::handle value) {
  const nb::object type = nb::getattr(value, "dtype", nb::none());
  return !type.is_none() && std::string_view(nb::repr(type).c_str()) == "dtype('bool')";
}

// Returns the index that an entry of a placement's answer is. A Boolean is none: rows are named,
// not masked.
int64_t RowOf(nb::handle entry) {
  if (nb::isinstance<nb::bool_>(entry) || IsNumPyBool(entry)) {
    throw nb::type_error(
        "place(): expected indices of rows, found a Boolean; numpy.flatnonzero(mask) has the "
        "indices of a mask");
  }
  PyObject* const index = PyNumber_Index(entry.ptr());
  if (index == nullptr) {
    PyErr_Clear();
    throw nb::type_error(
        ("place(): expected indices of rows, found " + std::string(nb::repr(entry).c_str()))
            .c_str());
  }
  return nb::cast<int64_t>(nb::steal(index));
}

class PyPlacement final : public Placement {
 public:
  PyPlacement(nb::object object, bool may_move, std::weak_ptr<SessionHolder> session,
              std::shared_ptr<Failure> failure)
      : object_(std::make_shared<HeldObject>(object)),
        may_move_(may_move),
        session_(std::move(session)),
        failure_(std::move(failure)),
        name_(nb::cast<std::string>(object.attr("name"))),
        needs_scores_(nb::cast<bool>(object.attr("needs_scores"))),
        due_(std::make_shared<HeldObject>(nb::borrow(object.attr("due")))),
        place_(std::make_shared<HeldObject>(nb::borrow(object.attr("place")))) {}

  std::string Name() const override { return name_; }
  bool NeedsScores() const override { return needs_scores_; }

  Status Check(const PlacementInput& input) const override {
    Status status;
    Call(input, [&](nb::handle facts) {
      const nb::object why = object_->get().attr("check")(facts);
      if (!why.is_none()) status = InvalidArgument(nb::cast<std::string>(nb::str(why)));
    });
    return status;
  }

  bool Due(const PlacementInput& input, size_t num_rows) const override {
    bool due = false;
    Call(input, [&](nb::handle facts) {
      const nb::object answer = due_->get()(facts, num_rows);
      if (!nb::isinstance<nb::bool_>(answer) && !IsNumPyBool(answer)) {
        throw nb::type_error(
            ("due(): expected True or False, found " + std::string(nb::repr(answer).c_str()))
                .c_str());
      }
      const int is_true = PyObject_IsTrue(answer.ptr());
      if (is_true < 0) throw nb::python_error();
      due = is_true == 1;
    });
    return due;
  }

  void Place(const PlacementInput& input, std::vector<Move>* moves) override {
    const size_t num_before = moves->size();
    Call(input, [&](nb::handle facts) {
      nb::object answer = place_->get()(facts);
      if (answer.is_none()) return;
      for (nb::handle entry : answer) {
        Move move;
        int64_t row = 0;
        if (nb::isinstance<nb::tuple>(entry)) {
          const auto pair = nb::borrow<nb::tuple>(entry);
          const int64_t tier = pair.size() == 2 ? RowOf(pair[1]) : -1;
          if (tier < 0 || tier >= kNumTiers) {
            throw nb::value_error(
                "place(): expected (row, tier), with a tier 0, 1, 2 or 3 (evicted)");
          }
          row = RowOf(pair[0]);
          move.to = static_cast<Tier>(tier);
        } else {
          row = RowOf(entry);
        }
        if (row < 0 || row >= static_cast<int64_t>(input.positions.size())) {
          throw nb::value_error(("place(): there is no row " + std::to_string(row)).c_str());
        }
        if (move.to != Tier::kT3 && !may_move_) {
          throw nb::value_error(
              "place(): the engine has no tiers besides T0, so rows can only be evicted (tier 3)");
        }
        move.row = static_cast<uint32_t>(row);
        moves->push_back(move);
      }
      std::sort(moves->begin() + num_before, moves->end(),
                [](const Move& a, const Move& b) { return a.row < b.row; });
      for (size_t i = num_before + 1; i < moves->size(); ++i) {
        if ((*moves)[i].row == (*moves)[i - 1].row) throw nb::value_error("place(): a row twice");
      }
    });
    if (failure_->is_set()) moves->resize(num_before);
  }

  Status SaveState(StateWriter*) const override {
    return Unsupported("placement \"" + name_ + "\" is of Python code, which is not saved");
  }

 private:
  template <typename Work>
  void Call(const PlacementInput& input, Work work) const {
    CallPython("placement", name_, session_, failure_.get(), [&](Lease* lease) {
      auto* const shown = new PyFacts{{&input, lease}};
      nb::object facts = nb::cast(shown, nb::rv_policy::take_ownership);
      struct AtEnd {
        PyFacts* facts;
        ~AtEnd() { facts->facts.End(); }
      } at_end{shown};
      work(facts);
    });
  }

  const std::shared_ptr<HeldObject> object_;
  const bool may_move_;
  const std::weak_ptr<SessionHolder> session_;
  const std::shared_ptr<Failure> failure_;
  const std::string name_;
  const bool needs_scores_;
  const std::shared_ptr<HeldObject> due_, place_;
};

}  // namespace

std::unique_ptr<Placement> MakePythonPlacement(nb::object object, bool may_move,
                                               std::weak_ptr<SessionHolder> session,
                                               std::shared_ptr<Failure> failure) {
  return std::make_unique<PyPlacement>(std::move(object), may_move, std::move(session),
                                       std::move(failure));
}

std::unique_ptr<Placement> GuardPlacement(std::unique_ptr<Placement> placement,
                                          std::shared_ptr<Failure> failure) {
  return std::make_unique<GuardedPlacement>(std::move(placement), std::move(failure));
}

}  // namespace ebb::python

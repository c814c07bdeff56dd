// Policies in Python: a scorer and a placement of C++ that ask Python objects.
//
// Nothing that Python code raises leaves a step, which would stay half settled: it becomes the
// session's Failure, after which nothing is decided any more and no row moves.
//
// Views. Arrays that Python code is given show the engine's own memory, without a copy, and are
// valid during the call alone. All views of a call share one owner object (Lease). When the call
// has ended and something still refers to it, Python code has kept a view, or a view of a view:
// that is the session's Failure (ebb.ViewKept). The owner keeps the session, which takes no further
// step, so that what was kept shows memory that is there and no longer changes.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <utility>

#include "bindings.h"

namespace ebb::python {
namespace {

// Kept by views: the session whose memory they show, or copies of that memory.
struct LeaseBase {
  std::shared_ptr<SessionHolder> session;
  std::vector<std::unique_ptr<std::byte[]>> copies;
};

class Lease {
 public:
  explicit Lease(std::shared_ptr<SessionHolder> session)
      : base_(new LeaseBase{std::move(session), {}}),
        owner_(base_, [](void* p) noexcept { delete static_cast<LeaseBase*>(p); }) {}

  // A read-only array over `values`, which strides, in elements, may step over. Where no session
  // keeps the memory it is a view of a copy.
  template <typename T>
  nb::object View(std::span<const T> values, std::initializer_list<size_t> shape,
                  std::initializer_list<int64_t> strides = {}) {
    const T* data = values.data();
    if (base_->session == nullptr && !values.empty()) {
      base_->copies.push_back(std::make_unique<std::byte[]>(values.size_bytes()));
      std::memcpy(base_->copies.back().get(), data, values.size_bytes());
      data = reinterpret_cast<const T*>(base_->copies.back().get());
    }
    return nb::cast(nb::ndarray<nb::numpy, const T>(
        data, shape.size(), shape.begin(), owner_, strides.size() > 0 ? strides.begin() : nullptr));
  }
  template <typename T>
  nb::object View(std::span<const T> values) {
    return View(values, {values.size()});
  }

  // Whether no view is left. Garbage that refers to one is collected first.
  [[nodiscard]] bool IsReturned() const {
    if (Py_REFCNT(owner_.ptr()) == 1) return true;
    nb::module_::import_("gc").attr("collect")();
    return Py_REFCNT(owner_.ptr()) == 1;
  }

 private:
  LeaseBase* const base_;
  const nb::capsule owner_;
};

// Something of a step that Python code reads by name while the step lasts.
template <typename T>
class Borrowed {
 public:
  Borrowed(const T* value, Lease* lease) : value_(value), lease_(lease) {}
  [[nodiscard]] const T& operator*() const {
    if (value_ != nullptr) return *value_;
    nb::object type = nb::module_::import_("ebb.errors").attr("ViewExpired");
    PyErr_SetString(type.ptr(), "it belongs to a step that is over; read it during the step");
    throw nb::python_error();
  }
  const T* operator->() const { return &**this; }
  [[nodiscard]] Lease* lease() const { return lease_; }
  void End() {
    value_ = nullptr;
    lease_ = nullptr;
  }

 private:
  const T* value_;
  Lease* lease_;
};

struct StepFacts {
  const StepSignals* step = nullptr;
  std::span<const GroupSignals> groups;
  const ModelShape* shape = nullptr;
};

// ebb.Step and ebb.Facts.
struct PyStep {
  Borrowed<StepFacts> facts;
};
struct PyFacts {
  Borrowed<PlacementInput> facts;
};

// Layer and kv head of the first stream of a group, and how many streams it has.
struct GroupPlace {
  int first_layer = 0;
  int num_layers = 1;
  int kv_head = -1;  // -1: all
};

GroupPlace PlaceOf(const ModelShape& shape, Granularity granularity, int group) {
  if (granularity == Granularity::kToken) return {0, shape.num_layers, -1};
  if (granularity == Granularity::kLayer) return {group, 1, -1};
  for (int layer = 0; layer < shape.num_layers; ++layer) {
    if (group < shape.NumKvHeads(layer)) return {layer, 1, group};
    group -= shape.NumKvHeads(layer);
  }
  return {};
}

class PyScorer final : public Scorer {
 public:
  PyScorer(nb::object object, const ModelShape& shape, Granularity granularity, uint64_t seed,
           std::weak_ptr<SessionHolder> session, std::shared_ptr<Failure> failure)
      : object_(std::make_shared<HeldObject>(object)),
        shape_(shape),
        granularity_(granularity),
        session_(std::move(session)),
        failure_(std::move(failure)),
        positions_(shape.NumGroups(granularity)) {
    const int num_groups = shape.NumGroups(granularity);
    for (int group = 0; group < num_groups; ++group) {
      places_.push_back(PlaceOf(shape, granularity, group));
    }
    object.attr("_begin")(nb::cast(shape), std::string(GranularityName(granularity)), num_groups,
                          seed);
    name_ = nb::cast<std::string>(object.attr("name"));
    needs_ = NeedsOf(object.attr("needs"));
    compares_keys_ = nb::cast<bool>(object.attr("compares_keys"));
    ignores_prompts_ = nb::cast<bool>(object.attr("ignores_prompts"));
    observe_ = Method("observe");
    scores_of_ = Method("scores");
    append_ = Method("append");
    retain_ = Method("retain");
  }

  std::string Name() const override { return name_; }
  SignalNeeds Needs() const override { return needs_; }
  bool ComparesKeys() const override { return compares_keys_; }
  bool IgnoresPrompts() const override { return ignores_prompts_; }

  void Append(int group, std::span<const Position> positions) override {
    auto& rows = positions_[group];
    rows.insert(rows.end(), positions.begin(), positions.end());
    Call([&](Lease*) { append_->get()(group, CopyOf(positions)); });
  }

  void Observe(std::span<const GroupSignals> groups, const StepSignals& step) override {
    Call([&](Lease* lease) {
      const StepFacts facts = {&step, groups, &shape_};
      auto* const shown = new PyStep{{&facts, lease}};
      nb::object py_step = nb::cast(shown, nb::rv_policy::take_ownership);
      nb::object self = nb::borrow(object_->get());
      self.attr("step") = py_step;
      struct AtEnd {
        PyStep* step;
        ~AtEnd() { step->facts.End(); }
      } at_end{shown};
      for (int group = 0; group < static_cast<int>(groups.size()); ++group) {
        const GroupSignals& signals = groups[group];
        observe_->get()(group, lease->View(std::span<const Position>(positions_[group])),
                        Mass(signals, lease), Vectors(step.keys, step, group, lease),
                        Vectors(step.values, step, group, lease));
      }
      self.attr("step") = nb::none();
    });
  }

  void Retain(int group, std::span<const uint32_t> kept) override {
    auto& rows = positions_[group];
    for (size_t i = 0; i < kept.size(); ++i) rows[i] = rows[kept[i]];
    rows.resize(kept.size());
    Call([&](Lease*) { retain_->get()(group, CopyOf(kept)); });
  }

  void EndFirstPrefill() override {
    Call([&](Lease*) { object_->get().attr("end_first_prefill")(); });
  }

  std::span<const float> Scores(int group) override {
    const size_t num_rows = positions_[group].size();
    // Not into scores_, of which a view may have been kept.
    if (failure_->is_set()) return zeros_ = std::vector<float>(num_rows);
    scores_.assign(num_rows, 0.0f);
    Call([&](Lease*) {
      using Array = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
      const nb::object answer = scores_of_->get()(group);
      Array array;
      if (!nb::try_cast(answer, array)) {
        const nb::object floats =
            nb::module_::import_("numpy").attr("ascontiguousarray")(answer, "float32");
        if (!nb::try_cast(floats, array)) {
          throw nb::value_error((name_ + ": scores(" + std::to_string(group) + ") has the shape " +
                                 nb::repr(floats.attr("shape")).c_str() +
                                 "; expected one number per row: (" + std::to_string(num_rows) +
                                 ",)")
                                    .c_str());
        }
      }
      if (array.size() != num_rows) {
        throw nb::value_error((name_ + ": scores(" + std::to_string(group) + ") has " +
                               std::to_string(array.size()) + " numbers; the group has " +
                               std::to_string(num_rows) + " rows")
                                  .c_str());
      }
      const bool all_finite = std::all_of(array.data(), array.data() + num_rows,
                                          [](float x) { return std::isfinite(x); });
      if (!all_finite) {
        throw nb::value_error(
            (name_ + ": scores(" + std::to_string(group) + ") has numbers that are not finite")
                .c_str());
      }
      std::copy(array.data(), array.data() + num_rows, scores_.begin());
    });
    return scores_;
  }

  Status SaveState(StateWriter* to) const override {
    Status status;
    nb::gil_scoped_acquire gil;
    try {
      const nb::bytes state = nb::cast<nb::bytes>(object_->get().attr("save_state")());
      for (const auto& rows : positions_) to->Numbers<Position>(rows);
      to->Text({state.c_str(), state.size()});
    } catch (nb::python_error& error) {
      if (error.matches(PyExc_NotImplementedError)) {
        return Unsupported("scorer \"" + name_ +
                           "\" has no save_state(), so that its session cannot be saved or forked");
      }
      failure_->Take(error);
      status = Unsupported("save_state() of scorer \"" + name_ + "\" raised: " + error.what());
    } catch (const nb::cast_error&) {
      status = Unsupported("save_state() of scorer \"" + name_ + "\" gave no bytes");
    }
    return status;
  }

  Status LoadState(StateReader* from) override {
    for (auto& rows : positions_) rows = from->Numbers<Position>();
    const std::string state = from->Text();
    EBB_RETURN_IF_ERROR(from->status());
    nb::gil_scoped_acquire gil;
    try {
      object_->get().attr("load_state")(nb::bytes(state.data(), state.size()));
    } catch (nb::python_error& error) {
      from->Fail(std::string("load_state() of scorer \"") + name_ + "\" raised: " + error.what());
    }
    return from->status();
  }

 private:
  static SignalNeeds NeedsOf(nb::handle needs) {
    SignalNeeds result;
    const auto mass = nb::cast<std::string>(needs.attr("mass"));
    if (mass == "none") {
      result.mass = MassNeed::kNone;
    } else if (mass == "sum") {
      result.mass = MassNeed::kSummed;
    } else if (mass == "kv_head") {
      result.mass = MassNeed::kPerKvHead;
    } else if (mass == "query_head") {
      result.mass = MassNeed::kPerQueryHead;
    } else {
      throw nb::value_error("needs.mass: expected none, sum, kv_head or query_head");
    }
    result.mass_in_prefill = nb::cast<bool>(needs.attr("mass_in_prefill"));
    result.num_recent_queries = nb::cast<int>(needs.attr("recent_queries"));
    result.hidden_layers = nb::cast<std::vector<int>>(needs.attr("hidden_layers"));
    result.keys = nb::cast<bool>(needs.attr("keys"));
    result.values = nb::cast<bool>(needs.attr("values"));
    result.keys_before_rope = nb::cast<bool>(needs.attr("keys_before_rope"));
    return result;
  }

  std::shared_ptr<HeldObject> Method(const char* name) const {
    return std::make_shared<HeldObject>(nb::borrow(object_->get().attr(name)));
  }

  // Runs Python code, and nothing once it has failed.
  template <typename Work>
  void Call(Work work) {
    if (failure_->is_set()) return;
    nb::gil_scoped_acquire gil;
    const std::shared_ptr<SessionHolder> session = session_.lock();
    try {
      Lease lease(session);
      work(&lease);
      if (!lease.IsReturned()) {
        failure_->Set("ViewKept", "scorer \"" + name_ +
                                      "\" kept a view of an array beyond its call; keep a copy "
                                      "(numpy.array(view)) instead");
      }
    } catch (nb::python_error& error) {
      failure_->Take(error);
    } catch (const nb::builtin_exception& error) {
      failure_->Set("ScorerError", error.what());
    } catch (const std::exception& error) {
      failure_->Set("ScorerError", "scorer \"" + name_ + "\": " + error.what());
    }
  }

  nb::object Mass(const GroupSignals& signals, Lease* lease) const {
    if (signals.mass.empty()) return nb::none();
    const auto rows = static_cast<size_t>(signals.num_rows);
    if (needs_.mass == MassNeed::kSummed) {
      if (signals.num_mass_heads == 1) return lease->View(signals.mass);
      std::vector<float> sum(rows);
      for (size_t i = 0; i < signals.mass.size(); ++i) sum[i % rows] += signals.mass[i];
      return CopyOf(std::span<const float>(sum));
    }
    return lease->View(signals.mass, {static_cast<size_t>(signals.num_mass_heads), rows});
  }

  // [layers of the group, tokens, kv heads of the group, head_dim]; a tuple of such arrays, one for
  // each layer, where layers have different numbers of kv heads.
  nb::object Vectors(const std::vector<std::span<const float>>& by_layer, const StepSignals& step,
                     int group, Lease* lease) const {
    if (by_layer.empty()) return nb::none();
    const GroupPlace& place = places_[group];
    const auto tokens = static_cast<size_t>(step.num_tokens);
    if (place.num_layers == 1)
      return LayerVectors(by_layer, place.first_layer, place.kv_head, tokens, lease);
    const auto dim = static_cast<size_t>(shape_.head_dim);
    const auto heads = static_cast<size_t>(shape_.NumKvHeads(0));
    const size_t layer_size = tokens * heads * dim;
    bool in_one_piece = true;
    for (int layer = 0; layer < place.num_layers; ++layer) {
      in_one_piece = in_one_piece && by_layer[layer].size() == layer_size &&
                     by_layer[layer].data() == by_layer[0].data() + size_t(layer) * layer_size;
    }
    const auto layers = static_cast<size_t>(place.num_layers);
    if (in_one_piece) {
      return lease->View(std::span(by_layer[0].data(), layers * layer_size),
                         {layers, tokens, heads, dim});
    }
    nb::list list;
    for (int layer = 0; layer < place.num_layers; ++layer) {
      list.append(LayerVectors(by_layer, layer, -1, tokens, lease));
    }
    return nb::tuple(list);
  }

  nb::object LayerVectors(const std::vector<std::span<const float>>& by_layer, int layer,
                          int kv_head, size_t tokens, Lease* lease) const {
    const auto dim = static_cast<size_t>(shape_.head_dim);
    const auto heads = static_cast<size_t>(shape_.NumKvHeads(layer));
    if (kv_head < 0) return lease->View(by_layer[layer], {1, tokens, heads, dim});
    const auto stride = static_cast<int64_t>(heads * dim);
    return lease->View(
        by_layer[layer].subspan(size_t(kv_head) * dim), {1, tokens, 1, dim},
        {stride * static_cast<int64_t>(tokens), stride, static_cast<int64_t>(dim), 1});
  }

  const std::shared_ptr<HeldObject> object_;
  const ModelShape shape_;
  const Granularity granularity_;
  const std::weak_ptr<SessionHolder> session_;
  const std::shared_ptr<Failure> failure_;
  std::string name_;
  SignalNeeds needs_;
  bool compares_keys_ = false;
  bool ignores_prompts_ = false;
  std::shared_ptr<HeldObject> observe_, scores_of_, append_, retain_;
  std::vector<GroupPlace> places_;                // [groups]
  std::vector<std::vector<Position>> positions_;  // [groups][rows]
  std::vector<float> scores_, zeros_;
};

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
    if (failure_->is_set()) return;
    nb::gil_scoped_acquire gil;
    try {
      Lease lease(session_.lock());
      {
        auto* const shown = new PyFacts{{&input, &lease}};
        nb::object facts = nb::cast(shown, nb::rv_policy::take_ownership);
        struct AtEnd {
          PyFacts* facts;
          ~AtEnd() { facts->facts.End(); }
        } at_end{shown};
        work(facts);
      }
      if (!lease.IsReturned()) {
        failure_->Set("ViewKept", "placement \"" + name_ +
                                      "\" kept a view of an array beyond its call; keep a copy "
                                      "(numpy.array(view)) instead");
      }
    } catch (nb::python_error& error) {
      failure_->Take(error);
    } catch (const nb::builtin_exception& error) {
      failure_->Set("ScorerError", error.what());
    } catch (const std::exception& error) {
      failure_->Set("ScorerError", "placement \"" + name_ + "\": " + error.what());
    }
  }

  const std::shared_ptr<HeldObject> object_;
  const bool may_move_;
  const std::weak_ptr<SessionHolder> session_;
  const std::shared_ptr<Failure> failure_;
  const std::string name_;
  const bool needs_scores_;
  const std::shared_ptr<HeldObject> due_, place_;
};

constexpr std::string_view kPythonScorer = "python";

}  // namespace

std::function<Result<Policy>(const PolicyContext&)> MakePythonPolicy(
    PolicySpec spec, PythonParts parts, bool may_move, MakingSlot making,
    std::shared_ptr<Failure> failure) {
  return [=](const PolicyContext& context) -> Result<Policy> {
    nb::gil_scoped_acquire gil;
    std::weak_ptr<SessionHolder> session;
    std::shared_ptr<Failure> fails = failure;
    if (making != nullptr) {
      session = *making;
      if (const auto holder = session.lock()) fails = holder->failure;
    }
    try {
      PolicySpec asked = spec;
      PolicyContext within = context;
      PolicyRegistry registry;
      if (parts.scorer != nullptr) {
        EBB_RETURN_IF_ERROR(registry.Add(
            {.name = std::string(kPythonScorer),
             .description = "a scorer in Python",
             .make_scorer = [&](const PolicyExtension::Context& c) -> std::unique_ptr<Scorer> {
               return std::make_unique<PyScorer>(parts.scorer->get()(), c.shape, c.granularity,
                                                 c.seed, session, fails);
             }}));
        within.registry = &registry;
        asked.scorer = kPythonScorer;
      }
      EBB_ASSIGN_OR_RETURN(Policy policy, MakePolicy(asked, within));
      if (parts.placement != nullptr) {
        nb::object object = parts.placement->get()();
        object.attr("_begin")(nb::cast(context.shape),
                              std::string(GranularityName(policy.granularity)),
                              context.shape.NumGroups(policy.granularity), spec.seed);
        policy.placement = std::make_unique<PyPlacement>(object, may_move, session, fails);
      } else if (policy.placement != nullptr) {
        policy.placement = std::make_unique<GuardedPlacement>(std::move(policy.placement), fails);
      }
      if (parts.scorer != nullptr) policy.name = asked.name + "+scorer=" + policy.scorer->Name();
      policy.identity.reset();
      return policy;
    } catch (nb::python_error& error) {
      fails->Take(error);
      return InvalidArgument("the policy's Python code raised an exception");
    } catch (const std::exception& error) {
      fails->Set("ScorerError", error.what());
      return InvalidArgument(error.what());
    }
  };
}

namespace {

template <typename T>
nb::object FactsArray(const PyFacts& facts, std::span<const T> values) {
  return facts.facts.lease()->View(values);
}

}  // namespace

void BindPolicy(nb::module_& module) {
  nb::class_<ModelShape>(module, "ModelShape",
                         "The sizes of a model that the cache and policies know.")
      .def_ro("num_layers", &ModelShape::num_layers)
      .def_ro("num_q_heads", &ModelShape::num_q_heads, "Query heads of each layer.")
      .def_ro("num_kv_heads", &ModelShape::num_kv_heads,
              "Key-value heads of each layer; where layers differ, the most of any.")
      .def_ro("head_dim", &ModelShape::head_dim, "Elements of a key and of a value.")
      .def_ro("embed_dim", &ModelShape::embed_dim, "Elements of the hidden state.")
      .def_ro("vocab_size", &ModelShape::vocab_size)
      .def_ro("trained_context", &ModelShape::trained_context, "In tokens.")
      .def("kv_heads", &ModelShape::NumKvHeads, nb::arg("layer"), "Key-value heads of a layer.");

  nb::class_<PyStep>(module, "Step",
                     "The step that a scorer observes, as `self.step` during observe(). Its "
                     "properties raise ebb.ViewExpired once the step is over.")
      .def_prop_ro(
          "is_decode", [](const PyStep& s) { return s.facts->step->kind == StepKind::kDecode; },
          "Whether the step reads a generated token rather than given text.")
      .def_prop_ro(
          "first_position", [](const PyStep& s) { return s.facts->step->first_position; },
          "Position of the first new token.")
      .def_prop_ro(
          "num_tokens", [](const PyStep& s) { return s.facts->step->num_tokens; },
          "New tokens of the step.")
      .def(
          "layers_counted",
          [](const PyStep& s, int group) {
            const auto groups = s.facts->groups;
            if (group < 0 || group >= static_cast<int>(groups.size())) throw nb::index_error();
            return groups[group].num_layers_counted;
          },
          nb::arg("group"), "Layers of the group whose attention is finite in this step.")
      .def(
          "recent_queries",
          [](const PyStep& s, int layer) {
            const StepFacts& f = *s.facts;
            if (layer < 0 || layer >= static_cast<int>(f.step->recent_queries.size()))
              throw nb::index_error();
            const auto q = f.step->recent_queries[layer];
            return s.facts.lease()->View(q,
                                         {size_t(f.step->num_recent), size_t(f.shape->num_q_heads),
                                          size_t(f.shape->head_dim)});
          },
          nb::arg("layer"),
          "The last queries of a layer after RoPE, oldest first: float32 [recent, query heads, "
          "head_dim], a view for the time of the call.")
      .def(
          "hidden",
          [](const PyStep& s, int index) {
            const StepFacts& f = *s.facts;
            if (index < 0 || index >= static_cast<int>(f.step->hidden.size()))
              throw nb::index_error();
            const auto h = f.step->hidden[index];
            return s.facts.lease()->View(h,
                                         {size_t(f.step->num_tokens), size_t(f.shape->embed_dim)});
          },
          nb::arg("index"),
          "The output of needs.hidden_layers[index]: float32 [tokens, embed_dim], a view for the "
          "time of the call.");

  nb::class_<PyFacts>(
      module, "Facts",
      "Facts that a placement may use besides the scores. Its properties raise "
      "ebb.ViewExpired once the call is over, and its arrays are views for the time of "
      "the call.")
      .def_prop_ro(
          "group", [](const PyFacts& f) { return f.facts->group; },
          "The group that decides now, from 0.")
      .def_prop_ro(
          "num_groups", [](const PyFacts& f) { return f.facts->num_groups; },
          "Groups of (layer, kv head) pairs that keep the same tokens.")
      .def_prop_ro(
          "positions", [](const PyFacts& f) { return FactsArray(f, f.facts->positions); },
          "int32 [rows]: the rows of the group, ascending.",
          nb::for_getter(nb::sig("def positions(self, /) -> numpy.typing.NDArray[numpy.int32]")))
      .def_prop_ro(
          "tiers",
          [](const PyFacts& f) {
            const auto tiers = f.facts->tiers;
            return FactsArray(
                f, std::span(reinterpret_cast<const uint8_t*>(tiers.data()), tiers.size()));
          },
          "uint8 [rows]: where the rows lie; empty: all in T0.",
          nb::for_getter(nb::sig("def tiers(self, /) -> numpy.typing.NDArray[numpy.uint8]")))
      .def_prop_ro(
          "scores", [](const PyFacts& f) { return FactsArray(f, f.facts->scores); },
          "float32 [rows].",
          nb::for_getter(nb::sig("def scores(self, /) -> numpy.typing.NDArray[numpy.float32]")))
      .def_prop_ro(
          "is_generated",
          [](const PyFacts& f) {
            const auto kinds = f.facts->kinds;
            return FactsArray(
                f, std::span(reinterpret_cast<const uint8_t*>(kinds.data()), kinds.size()));
          },
          "uint8 [next_position], by position: 1 where the token was generated.",
          nb::for_getter(nb::sig("def is_generated(self, /) -> numpy.typing.NDArray[numpy.uint8]")))
      .def_prop_ro(
          "first_generated", [](const PyFacts& f) { return f.facts->first_generated; },
          "Position of the first generated token; next_position while there is none.")
      .def_prop_ro(
          "next_position", [](const PyFacts& f) { return f.facts->next_position; },
          "Tokens so far.")
      .def_prop_ro(
          "generated_tokens", [](const PyFacts& f) { return f.facts->generated_tokens; },
          "Generated tokens so far, with this step's.")
      .def_prop_ro(
          "new_tokens", [](const PyFacts& f) { return f.facts->new_tokens; },
          "Tokens of this step; 0: room is made between steps.")
      .def_prop_ro(
          "is_decode", [](const PyFacts& f) { return f.facts->step_kind == StepKind::kDecode; },
          "Whether the step read a generated token.");

  module.def(
      "policies",
      [] {
        nb::list list;
        for (const PolicyInfo& info : BuiltinPolicies()) {
          nb::dict row;
          row["name"] = std::string(info.name);
          row["description"] = std::string(info.description);
          row["source"] = std::string(info.source);
          row["params"] = std::string(info.params);
          row["granularity"] = std::string(GranularityName(info.granularity));
          row["scorer"] = std::string(info.scorer);
          row["percent_of"] = std::string(info.percent_of);
          list.append(row);
        }
        return list;
      },
      "The built-in policies: a list of dictionaries.");
  module.def(
      "scorers",
      [] {
        nb::list list;
        for (const ScorerInfo& info : BuiltinScorers()) {
          nb::dict row;
          row["name"] = std::string(info.name);
          row["description"] = std::string(info.description);
          row["params"] = std::string(info.params);
          list.append(row);
        }
        return list;
      },
      "The built-in scorers: a list of dictionaries.");
}

}  // namespace ebb::python

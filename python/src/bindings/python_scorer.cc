// Scorers in Python.
#include <algorithm>
#include <cmath>

#include "python_parts.h"

namespace ebb::python {
namespace {

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

  template <typename Work>
  void Call(Work work) {
    CallPython("scorer", name_, session_, failure_.get(), work);
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

}  // namespace

std::unique_ptr<Scorer> MakePythonScorer(nb::object object, const PolicyExtension::Context& context,
                                         std::weak_ptr<SessionHolder> session,
                                         std::shared_ptr<Failure> failure) {
  return std::make_unique<PyScorer>(std::move(object), context.shape, context.granularity,
                                    context.seed, std::move(session), std::move(failure));
}

}  // namespace ebb::python

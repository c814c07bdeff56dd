// Policies with parts in Python, and what Python code sees of a step.
#include <functional>
#include <utility>

#include "python_parts.h"

namespace ebb::python {
namespace {

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
               return MakePythonScorer(parts.scorer->get()(), c, session, fails);
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
        policy.placement = MakePythonPlacement(object, may_move, session, fails);
      } else if (policy.placement != nullptr) {
        policy.placement = GuardPlacement(std::move(policy.placement), fails);
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

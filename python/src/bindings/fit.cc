// Predictions of memory (ebb/fit.h).
#include <algorithm>

#include "bindings.h"
#include "ebb/fit.h"
#include "ebb/setting_fields.h"

namespace ebb::python {
namespace {

// Returns the keyword arguments of ebb.Engine.session() that give these tiers.
nb::dict ArgumentsFor(const std::optional<TierSetting>& tiers) {
  nb::dict dict;
  if (!tiers.has_value()) return dict;
  for (const auto& [option, value] : TierOptions(*tiers)) {
    std::string name(option.substr(2));
    std::ranges::replace(name, '-', '_');
    dict[name.c_str()] = value;
  }
  return dict;
}

void AddBytes(const FitBytes& bytes, nb::dict* dict) {
  (*dict)["memory"] = bytes.Memory();
  (*dict)["weights"] = bytes.weights;
  (*dict)["program"] = bytes.program;
  (*dict)["compute"] = bytes.compute;
  (*dict)["t0"] = bytes.t0;
  (*dict)["t1_memory"] = bytes.t1_memory;
  (*dict)["t1_disk"] = bytes.t1_disk;
  (*dict)["t2"] = bytes.t2;
  (*dict)["tables"] = bytes.tables;
  (*dict)["states"] = bytes.states;
  (*dict)["staging"] = bytes.staging;
  (*dict)["staging_on_host"] = bytes.staging_on_host;
}

nb::dict Plan(const Model& model, const std::string& memory, int prompt_tokens, int max_tokens,
              const nb::dict& options) {
  const EngineOptions engine = ReadEngine(options);
  const SessionOptions session = ReadSession(options);
  const MemoryRequest request = {.memory_bytes = ValueOrRaise(ParseBytes(memory)),
                                 .prompt_tokens = prompt_tokens,
                                 .max_tokens = max_tokens};
  const MemoryPlan plan =
      ValueOrRaise(WithoutGil([&] { return PlanMemory(model, request, engine, session); }));
  nb::dict dict;
  dict["setting"] = plan.setting.name;
  dict["options"] = ArgumentsFor(plan.setting.tiers);
  dict["context"] = plan.context;
  AddBytes(plan.bytes, &dict);
  return dict;
}

nb::list Table(const Model& model, int context, int prompt_tokens, const std::string& kv_type) {
  const FitModel fit_model = ValueOrRaise(WithoutGil([&] { return MeasureFitModel(model); }));
  nb::list rows;
  for (const FitSetting& setting : TypicalSettings(fit_model.shape.head_dim)) {
    FitRequest request;
    request.context = context;
    request.prompt_tokens = prompt_tokens;
    request.kv_type = ValueOrRaise(ParseRowType(kv_type));
    request.tiers = setting.tiers;
    nb::dict dict;
    dict["setting"] = setting.name;
    dict["options"] = ArgumentsFor(setting.tiers);
    AddBytes(ValueOrRaise(FitRequestInto(fit_model, request)), &dict);
    rows.append(dict);
  }
  return rows;
}

}  // namespace

void BindFit(nb::module_& module) {
  module.def("fit", &Plan, nb::arg("model"), nb::arg("memory"), nb::arg("prompt_tokens"),
             nb::arg("max_tokens"), nb::arg("options"));
  module.def("fit_table", &Table, nb::arg("model"), nb::arg("context"), nb::arg("prompt_tokens"),
             nb::arg("kv_type"));
}

}  // namespace ebb::python

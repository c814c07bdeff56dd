#include "lab/eval/setting_description.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <type_traits>

#include "ebb/setting_fields.h"

namespace ebb {
namespace {

using Json = nlohmann::ordered_json;

Json Value(const std::string& text) { return text; }
Json Value(const std::map<std::string, std::string>& texts) { return texts; }
Json Value(const Budget& budget) {
  return budget.unit == Budget::Unit::kNone ? "" : FormatBudget(budget);
}
Json Value(Granularity granularity) { return GranularityName(granularity); }
Json Value(T1Place place) { return T1PlaceName(place); }
Json Value(CompressedType type) { return CompressedTypeName(type); }
Json Value(RowType type) { return RowTypeName(type); }
Json Value(T1Mode mode) { return T1ModeName(mode); }
Json Value(DeviceAttention attention) { return DeviceAttentionName(attention); }
Json Value(LosslessOptions::Verify verify) { return VerifyName(verify); }
template <typename T>
requires std::is_arithmetic_v<T> Json Value(T number) { return number; }
template <typename T>
requires std::is_enum_v<T> Json Value(T choice) { return static_cast<int>(choice); }
template <typename T>
Json Value(const std::optional<T>& value) {
  return value.has_value() ? Value(*value) : Json();
}

Json TierFields(const std::optional<TierSetting>& tiers) {
  if (!tiers.has_value()) return {};
  Json fields = Json::object();
  VisitTierFields(*tiers, [&](std::string_view name, const auto& field) {
    fields[std::string(name)] = Value(field);
  });
  return fields;
}

// Returns the options of an engine and of its sessions that can change results, except the policy
// and the tiers. Names are those of the options of the command line.
Json RunFields(const EngineOptions& engine, const SessionOptions& session) {
  const auto& [threads, kv_type, kv_cap_bytes, tiers, device, t1_mode, allow_inexact, rates_file,
               checks_file, metrics_folder, prefill_chunk, max_stall_seconds, draft_model,
               draft_compressed_type, policies, attention] = engine;
  const auto& [kind, name, device_attention, memory_bytes] = device;
  const auto& [policy, make_policy, foresight, context, past_context, extra_signals, on_signals,
               lossless, speculation, least_guesses, most_guesses, guesses_inexactly,
               t0_floor_bytes, explained, ledger, step_costs] = session;
  return {{"kv-type", Value(kv_type)},
          {"kv-cap", kv_cap_bytes},
          {"prefill-chunk", prefill_chunk},
          {"device", name},
          {"device-attention", Value(device_attention)},
          {"device-memory", Value(memory_bytes)},
          {"context", context},
          {"past-context", Value(past_context)}};
}

Json LosslessFields(const std::optional<LosslessOptions>& lossless) {
  if (!lossless.has_value()) return {};
  const auto& [verify, draft_min, draft_max, looks_up] = *lossless;
  return {{"verify", Value(verify)},
          {"draft_min", draft_min},
          {"draft_max", draft_max},
          {"looks_up", looks_up}};
}

Json Fields(const EvalSetting& setting) {
  Json fields = Json::object();
  VisitPolicyFields(setting.session.policy, [&](std::string_view name, const auto& field) {
    fields[std::string(name)] = Value(field);
  });
  fields["tiers"] = TierFields(TiersOf(setting.engine, setting.session));
  // An engine may have tiers that this session does not use, as the T1 of a lossless one.
  std::optional<TierSetting> of_engine;
  if (setting.engine.tiers.has_value()) of_engine = TierSetting{.engine = *setting.engine.tiers};
  fields["engine_tiers"] = TierFields(of_engine);
  fields.update(RunFields(setting.engine, setting.session));
  fields["t1-mode"] = Value(setting.engine.t1_mode);
  fields["allow-inexact"] = setting.engine.allow_inexact;
  fields["lossless"] = LosslessFields(setting.session.lossless);
  fields["code"] = setting.code;
  return fields;
}

void Append(std::string_view text, std::string* label) {
  if (text.empty()) return;
  if (!label->empty()) label->append(" ");
  label->append(text);
}

std::string TextOf(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

// Names the inexact mode in which a setting attends to T1's rows in another order than the cache's;
// empty if the order is the cache's.
std::string_view InexactLabel(const EvalSetting& setting) {
  const EngineOptions& engine = setting.engine;
  if (engine.device.kind == DeviceKind::kCpu || !TiersOf(engine, setting.session).has_value())
    return "";
  if (engine.t1_mode == T1Mode::kCompute) return "t1-mode=compute";
  return engine.t1_mode == T1Mode::kAuto && engine.allow_inexact ? "allow-inexact" : "";
}

// Returns whether `value` is the place that T1 has if no option selects one.
bool IsUsualT1(std::string_view value, const TierSetting& tiers, const DeviceSpec& device) {
  if (CompressesOldRows(tiers.shares)) return value == T1PlaceName(T1Place::kNone);
  return value == T1PlaceName(DefaultT1(device));
}

// Names how the tiers place rows, such as "t0=50% evict=5%". T0's share changes no answer, but
// experiments vary it to show just that. Returns whether the policy's scores choose rows that are
// evicted or compressed.
bool AppendTiers(TierSetting tiers, const DeviceSpec& device, std::string* label) {
  tiers.engine.t1_path.clear();
  bool evicts = false, compresses = false;
  for (const auto& [option, value] : TierOptions(tiers)) {
    evicts = evicts || option == "--evict";
    compresses = compresses || option == "--t2";
    if (option == "--t1" && IsUsualT1(value, tiers, device)) continue;
    Append(option == "--evict-of" ? "of " + value : fmt::format("{}={}", option.substr(2), value),
           label);
  }
  if (CompressesOldRows(tiers.shares)) return evicts;
  if (!evicts) Append("evict=0%", label);
  return evicts || compresses;
}

// Names the place of the T1 that keeps the rows of a lossless session, unless it is the default.
void AppendStore(const EngineOptions& engine, std::string* label) {
  if (!engine.tiers.has_value()) return;
  const T1Place usual = DefaultT1(engine.device);
  const T1Place place = engine.tiers->t1.value_or(usual);
  if (place != usual) Append(fmt::format("t1={}", T1PlaceName(place)), label);
}

// Fills in the labels of a setting whose session has the policy `made`.
void NameSetting(const std::string& made, const EvalRunOptions& run, EvalSetting* setting) {
  const PolicySpec& policy = setting->session.policy;
  if (policy.budget.unit == Budget::Unit::kNone) setting->budget.clear();
  setting->tiers = InexactLabel(*setting);
  const bool is_lossless = setting->session.lossless.has_value();
  const std::optional<TierSetting> tiers = TiersOf(setting->engine, setting->session);
  if (tiers.has_value()) {
    const bool chooses = AppendTiers(*tiers, setting->engine.device, &setting->tiers);
    // Tiers that evict or compress by score hold no full cache: the scorer names them.
    if (chooses && setting->policy == "full") {
      setting->policy = policy.scorer.empty() ? made : policy.scorer;
    }
  } else if (is_lossless) {
    AppendStore(setting->engine, &setting->tiers);
  }
  if (is_lossless) {
    const LosslessOptions& lossless = *setting->session.lossless;
    Append(fmt::format("lossless={} drafts={}", VerifyName(lossless.verify), lossless.draft_max),
           &setting->tiers);
  }
  setting->options.clear();
  VisitPolicyFields(policy, [&](std::string_view name, const auto& field) {
    if (name == "name" || name == "params" || name == "budget" || name == "seed") return;
    const Json value = Value(field);
    if (value.is_null() || value == "") return;
    Append(fmt::format("{}={}", name, TextOf(value)), &setting->options);
  });
  const Json usual = RunFields(run.engine, run.session);
  const Json own = RunFields(setting->engine, setting->session);
  for (const auto& [name, value] : own.items()) {
    if (usual[name] != value) Append(fmt::format("{}={}", name, TextOf(value)), &setting->options);
  }
  if (!setting->code.empty()) Append("python=" + setting->code, &setting->options);
}

Status OpenSetting(const std::shared_ptr<const Model>& model, const EvalRunOptions& run,
                   EvalSetting* setting, std::string* instructions) {
  const int width = run.evaluation.batch;
  if (width != 0) EBB_RETURN_IF_ERROR(CheckBatch(*setting, width));
  const auto& lossless = setting->session.lossless;
  if (lossless.has_value() && lossless->draft_min != lossless->draft_max) {
    return InvalidArgument(
        "draft_min and draft_max must be the same number: between two numbers "
        "the length follows measured times, which do not repeat");
  }
  EBB_ASSIGN_OR_RETURN(const auto engine, Engine::Create(model, setting->engine));
  EBB_ASSIGN_OR_RETURN(const auto session, engine->OpenSession(setting->session));
  NameSetting(session->policy().name, run, setting);
  if (instructions->empty()) *instructions = engine->attention_name();
  return OkStatus();
}

// Adds a hash of their fields to labels that two settings share, since options of tiers that have
// no effect are in no label. Seeds are in no label either: answers that differ in them alone belong
// together.
void TellApart(std::vector<EvalSetting>* settings) {
  std::map<std::string, std::string> fields_of;  // by labels
  for (EvalSetting& setting : *settings) {
    Json fields = Fields(setting);
    fields.erase("seed");
    const std::string text = fields.dump();
    const std::string labels =
        Json{setting.policy, setting.budget, setting.tiers, setting.options}.dump();
    if (fields_of.emplace(labels, text).first->second == text) continue;
    Append(fmt::format("#{:06x}", XXH3_64bits(text.data(), text.size()) >> 40), &setting.options);
  }
}

}  // namespace

Json DescribeSetting(const EvalSetting& setting) {
  return {{"policy", setting.policy},   {"budget", setting.budget}, {"tiers", setting.tiers},
          {"options", setting.options}, {"seed", setting.seed},     {"fields", Fields(setting)}};
}

Result<SettingsOfRun> PrepareSettings(const std::shared_ptr<const Model>& model,
                                      std::vector<EvalSetting> settings,
                                      const EvalRunOptions& run) {
  SettingsOfRun prepared;
  std::vector<Json> known;
  for (EvalSetting& setting : settings) {
    EBB_ASSIGN_OR_RETURN(setting.session.policy,
                         DropUnusedOptions(std::move(setting.session.policy)));
    setting.session.policy.seed = setting.seed;
    Json fields = Fields(setting);
    if (std::ranges::find(known, fields) != known.end()) continue;
    known.push_back(std::move(fields));
    const Status opened = OpenSetting(model, run, &setting, &prepared.instructions);
    if (!opened.ok()) {
      return Status(opened.code(), fmt::format("policy {}{}{}: {}", setting.policy,
                                               setting.budget.empty() ? "" : " at ", setting.budget,
                                               opened.Text()));
    }
    prepared.settings.push_back(std::move(setting));
  }
  TellApart(&prepared.settings);
  return prepared;
}

}  // namespace ebb

// Options: from a dictionary of Python's to those of the library, by the library's own parsers.
#include "bindings.h"
#include "ebb/setting_fields.h"

namespace ebb::python {

namespace {

// Returns whether a value of `read` names Quest, which needs no tiers.
bool IsQuest(std::string_view text) { return text == "quest" || text.starts_with("quest:"); }

}  // namespace

PythonTiers ReadTiers(const nb::dict& options) {
  TierSetting tiers;
  const auto read = [&](const char* key, Status (*parse)(std::string_view, TierSetting*)) {
    const auto text = Get<std::string>(options, key);
    if (text.has_value()) RaiseIfError(parse(*text, &tiers));
    return text.has_value();
  };
  const std::string kv_type = Get<std::string>(options, "kv_type").value_or("");
  const std::optional<CompressedType> compressed = CompressedKvType(kv_type);
  for (const char* key : {"t0", "t1", "t2"}) {
    if (!compressed.has_value() || !Get<std::string>(options, key).has_value()) continue;
    const std::string tier = std::string("T") + key[1];
    Raise(InvalidArgument("kv_type '" + kv_type + "' and " + key + " both place the rows of " +
                          tier + "; give one"));
  }
  if (compressed.has_value()) {
    RaiseIfError(ParseT1("none", &tiers));
    RaiseIfError(ParseT2("old:" + std::string(CompressedTypeName(*compressed)), &tiers));
  }
  const bool has_t1 = read("t1", ParseT1) || compressed.has_value();
  bool places_rows = compressed.has_value();
  const std::optional<std::string> rows = Get<std::string>(options, "read");
  const bool reads_tiers = rows.has_value() && !IsQuest(*rows) && *rows != "all";
  if (reads_tiers) RaiseIfError(ParseT1Read(*rows, &tiers));
  places_rows = places_rows || reads_tiers;
  for (const bool set : {read("t0", ParseT0), read("t1_read", ParseT1Read), read("t2", ParseT2),
                         read("evict", ParseEvict), read("evict_of", ParseEvictOf)}) {
    places_rows = places_rows || set;
  }
  if (tiers.shares.t0_share.has_value()) RaiseIfError(CheckT0Share(tiers.shares));
  // A place of T1 alone makes tiers too, but it does not place the rows of a lossless draft.
  const bool is_lossless = Get<bool>(options, "lossless").value_or(false);
  PythonTiers read_tiers;
  if (has_t1 || places_rows || is_lossless) read_tiers.engine = tiers.engine;
  if (places_rows || (has_t1 && !is_lossless)) read_tiers.shares = tiers.shares;
  return read_tiers;
}

PolicySpec ReadPolicy(const nb::dict& options) {
  PolicySpec spec;
  if (const auto policy = Get<std::string>(options, "policy"))
    RaiseIfError(ParsePolicy(*policy, &spec));
  if (options.contains("scorer") && nb::isinstance<nb::str>(options["scorer"])) {
    spec.scorer = nb::cast<std::string>(options["scorer"]);
  }
  if (const auto budget = Get<std::string>(options, "budget")) {
    spec.budget = ValueOrRaise(ParseBudget(*budget));
  }
  if (const auto rows = Get<std::string>(options, "read"); rows.has_value() && IsQuest(*rows)) {
    spec.read = *rows;
  }
  spec.sinks = Get<int>(options, "sinks");
  spec.window = Get<int>(options, "window");
  spec.interval = Get<int>(options, "interval");
  if (const auto granularity = Get<std::string>(options, "granularity")) {
    spec.granularity = ValueOrRaise(ParseGranularity(*granularity));
  }
  spec.seed = Get<uint64_t>(options, "seed").value_or(0);
  return spec;
}

PythonParts ReadParts(const nb::dict& options) {
  PythonParts parts;
  const auto factory = [&](const char* key) -> Held {
    if (!options.contains(key)) return nullptr;
    nb::object value = options[key];
    if (value.is_none() || nb::isinstance<nb::str>(value)) return nullptr;
    return std::make_shared<HeldObject>(value);
  };
  parts.scorer = factory("scorer");
  parts.placement = factory("placement");
  return parts;
}

SessionOptions ReadSession(const nb::dict& options) {
  SessionOptions session;
  session.policy = ReadPolicy(options);
  session.policy.tiers = ReadTiers(options).shares;
  session.context = Get<int>(options, "context").value_or(0);
  session.speculation =
      ValueOrRaise(ParseSpeculation(Get<std::string>(options, "speculate").value_or("off")));
  if (const auto past = Get<std::string>(options, "past_context")) {
    if (*past != "refuse" && *past != "rerotate") {
      Raise(InvalidArgument("past_context", "expected refuse or rerotate"));
    }
    session.past_context = *past == "rerotate" ? PastContext::kReRotate : PastContext::kRefuse;
  }
  if (Get<bool>(options, "lossless").value_or(false)) {
    session.lossless.emplace();
    if (const auto verify = Get<std::string>(options, "verify")) {
      session.lossless->verify = ValueOrRaise(ParseVerify(*verify));
    }
    if (const auto most = Get<int>(options, "draft_max")) session.lossless->draft_max = *most;
    if (const auto least = Get<int>(options, "draft_min")) session.lossless->draft_min = *least;
  }
  if (Get<bool>(options, "ledger").value_or(false)) session.ledger = SessionOptions::Record::kYes;
  return session;
}

EngineOptions ReadEngine(const nb::dict& options) {
  EngineOptions engine;
  engine.threads = Get<int>(options, "threads").value_or(0);
  engine.tiers = ReadTiers(options).engine;
  if (const auto type = Get<std::string>(options, "kv_type");
      type.has_value() && !CompressedKvType(*type).has_value()) {
    engine.kv_type = ValueOrRaise(ParseRowType(*type));
  }
  if (const auto cap = Get<std::string>(options, "kv_cap")) {
    engine.kv_cap_bytes = ValueOrRaise(ParseBytes(*cap));
  }
  if (const auto device = Get<std::string>(options, "device")) {
    engine.device = ValueOrRaise(ParseDevice(*device));
  }
  if (const auto chunk = Get<int>(options, "prefill_chunk")) engine.prefill_chunk = *chunk;
  if (const auto type = Get<std::string>(options, "draft_kv_type")) {
    engine.draft_compressed_type = CompressedKvType(*type);
    if (!engine.draft_compressed_type.has_value()) {
      Raise(InvalidArgument("draft_kv_type", "expected q8, q4, q3 or q2"));
    }
  }
  return engine;
}

SamplingOptions ReadSampling(const nb::dict& options) {
  SamplingOptions sampling;
  const auto set = [&]<typename T>(const char* key, T* to) {
    if (const auto value = Get<T>(options, key)) *to = *value;
  };
  set("temperature", &sampling.temperature);
  set("top_k", &sampling.top_k);
  set("top_p", &sampling.top_p);
  set("min_p", &sampling.min_p);
  set("repeat_penalty", &sampling.repeat_penalty);
  set("repeat_last_n", &sampling.repeat_last_n);
  set("presence_penalty", &sampling.presence_penalty);
  set("frequency_penalty", &sampling.frequency_penalty);
  set("dynatemp_range", &sampling.dynatemp_range);
  set("dynatemp_exponent", &sampling.dynatemp_exponent);
  set("typical_p", &sampling.typical_p);
  set("top_n_sigma", &sampling.top_n_sigma);
  set("xtc_probability", &sampling.xtc_probability);
  set("xtc_threshold", &sampling.xtc_threshold);
  set("dry_multiplier", &sampling.dry_multiplier);
  set("dry_base", &sampling.dry_base);
  set("dry_allowed_length", &sampling.dry_allowed_length);
  set("dry_penalty_last_n", &sampling.dry_penalty_last_n);
  set("dry_sequence_breakers", &sampling.dry_sequence_breakers);
  set("mirostat", &sampling.mirostat);
  set("mirostat_tau", &sampling.mirostat_tau);
  set("mirostat_eta", &sampling.mirostat_eta);
  if (const auto samplers = Get<std::string>(options, "samplers"); !samplers.value_or("").empty()) {
    sampling.samplers = ValueOrRaise(ParseSamplerStages(*samplers));
  }
  set("seed", &sampling.seed);
  set("grammar", &sampling.grammar);
  return sampling;
}

AnswerRules AnswerRulesOrRaise(std::string_view name) {
  for (const AnswerRules rules :
       {AnswerRules::kCascade, AnswerRules::kLastMark, AnswerRules::kBoxedOnly}) {
    if (name == AnswerRulesName(rules)) return rules;
  }
  Raise(InvalidArgument("answer_rules",
                        "expected cascade, last or boxed, found \"" + std::string(name) + "\""));
}

EvalTaskRequest ReadTask(const nb::dict& options) {
  const auto rules = Get<std::string>(options, "answer_rules");
  return {.task = Get<std::string>(options, "task").value_or("pebble"),
          .problems = Get<int>(options, "problems").value_or(200),
          .seed = Get<uint64_t>(options, "seed").value_or(0),
          .prompt_preset = Get<std::string>(options, "prompt_preset").value_or("plain"),
          .answer_rules = rules ? std::optional(AnswerRulesOrRaise(*rules)) : std::nullopt,
          .max_tokens = Get<int>(options, "max_tokens").value_or(0),
          .judge_name = Get<std::string>(options, "judge_code").value_or("")};
}

int ReadWorkers(const nb::dict& options) {
  const int workers = Get<int>(options, "workers").value_or(0);
  return workers > 0 ? workers : AvailableProcessors().threads;
}

}  // namespace ebb::python

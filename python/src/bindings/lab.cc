// Evaluations: the library's own (ebb/lab/eval.h), with policies in Python beside the built-in
// ones. Settings get the names that `ebb-lab eval` gives them, so that results of both are put
// together.
#include "ebb/lab/eval.h"

#include <condition_variable>
#include <cstdio>
#include <set>
#include <thread>

#include "bindings.h"
#include "ebb/lab/answers.h"
#include "ebb/lab/eval_task.h"
#include "ebb/lab/pebble.h"

namespace ebb::python {
namespace {

std::string General(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", value);
  return text;
}

std::string TiersLabel(const TierSpec& tiers) {
  if (CompressesOldRows(tiers)) return "t2=old:" + std::string(CompressedTypeName(tiers.t2_type));
  std::string label = tiers.t0_cap_bytes > 0 ? "t0=" + std::to_string(tiers.t0_cap_bytes) + "B"
                                             : "t0=" + General(tiers.t0_share * 100) + "%";
  if (tiers.t1_cap_bytes > 0) label += " t1=" + std::to_string(tiers.t1_cap_bytes) + "B";
  if (tiers.t2_share > 0) {
    label += " t2=" + General(tiers.t2_share * 100) +
             "%:" + std::string(CompressedTypeName(tiers.t2_type));
  }
  label += " evict=" + General(tiers.evict_share * 100) + "%";
  if (tiers.evict_beyond_caps) label += " or caps";
  if (tiers.evict_of == EvictOf::kAlive) label += " of alive";
  return label;
}

std::string OptionsLabel(const PolicySpec& policy) {
  std::string label;
  const auto add = [&](const char* key, const std::string& value) {
    if (policy.params.contains(key)) return;
    if (!label.empty()) label += " ";
    label += std::string(key) + "=" + value;
  };
  if (!policy.scorer.empty()) add("scorer", policy.scorer);
  if (policy.sinks) add("sinks", std::to_string(*policy.sinks));
  if (policy.window) add("window", std::to_string(*policy.window));
  if (policy.interval) add("interval", std::to_string(*policy.interval));
  if (policy.granularity) add("granularity", std::string(GranularityName(*policy.granularity)));
  return label;
}

// {"policy": "h2o", "budget": "25%", "window": 16, ...}; "scorer" and "placement" may be Python's,
// and "name" is then what results are named by.
EvalSetting ReadSetting(const nb::dict& dict, const std::shared_ptr<Failure>& failure) {
  ExplicitOptions given;
  EvalSetting setting;
  setting.engine = ReadEngine(dict);
  setting.session = ReadSession(dict, &given);
  if (setting.session.lossless.has_value() && !dict.contains("draft_max")) {
    setting.session.lossless->draft_min = setting.session.lossless->draft_max = 8;
  }
  given.policy = true;
  ApplyDefaults(given, &setting.engine, &setting.session);
  PolicySpec& spec = setting.session.policy;
  spec = ValueOrRaise(DropUnusedOptions(std::move(spec)));
  setting.policy = Get<std::string>(dict, "policy").value_or("full");
  if (spec.budget.unit != Budget::Unit::kNone) {
    setting.budget = Get<std::string>(dict, "budget").value_or("");
  }
  setting.options = OptionsLabel(spec);
  setting.seed = spec.seed;
  if (spec.tiers.has_value()) setting.tiers = TiersLabel(*spec.tiers);
  if (const auto& lossless = setting.session.lossless) {
    if (!setting.tiers.empty()) setting.tiers += " ";
    setting.tiers += "lossless=" + std::string(VerifyName(lossless->verify)) +
                     " drafts=" + std::to_string(lossless->draft_max);
  }
  if (const PythonParts parts = ReadParts(dict); !parts.empty()) {
    setting.session.make_policy =
        MakePythonPolicy(spec, parts, spec.tiers.has_value(), nullptr, failure);
    if (const auto name = Get<std::string>(dict, "name")) {
      setting.options += std::string(setting.options.empty() ? "" : " ") + "python=" + *name;
    }
  }
  return setting;
}

EvalQuestion AsQuestion(const EvalProblem& problem, const TaskPrompt& prompt, AnswerRules rules) {
  return {.id = problem.id,
          .question = FormatPrompt(prompt, problem),
          .max_tokens = prompt.max_new_tokens,
          .judge = [problem, rules](std::string_view text, std::string_view answer) {
            const AnswerFormat format = {
                .kind = problem.kind, .rules = rules, .options = problem.options};
            return JudgeAnswer(answer.empty() ? text : answer, problem.reference, format);
          }};
}

std::vector<EvalQuestion> ReadTask(const std::string& task, int num_problems, uint64_t seed,
                                   const std::string& preset_name, int max_tokens) {
  std::vector<EvalQuestion> questions;
  if (task == "pebble") {
    questions = PebbleProblems(seed, num_problems);
  } else {
    EvalTaskSource source = ValueOrRaise(ParseEvalTaskSource(task));
    source.shuffle_seed = seed;
    const EvalTask file = ValueOrRaise(ReadEvalTask(source));
    const PromptPreset* const preset = ValueOrRaise(FindPromptPreset(preset_name));
    for (const EvalProblem& problem : file.problems) {
      if (num_problems > 0 && static_cast<int>(questions.size()) == num_problems) break;
      questions.push_back(AsQuestion(problem, preset->Of(file.format), preset->rules));
    }
  }
  if (max_tokens > 0) {
    for (EvalQuestion& question : questions) question.max_tokens = max_tokens;
  }
  return questions;
}

// A line of `ebb-lab eval`'s results.jsonl, its fields in the same order, and the seconds behind
// them.
nb::dict DictOf(const EvalAnswer& answer, const EvalSetting& setting, const EvalQuestion& problem) {
  nb::dict line;
  const auto text = [](std::string_view bytes) {
    return nb::steal<nb::str>(
        PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()), "replace"));
  };
  line["setting"] = answer.setting;
  line["problem"] = answer.problem;
  line["id"] = text(problem.id);
  line["policy"] = setting.policy;
  line["budget"] = setting.budget;
  line["tiers"] = setting.tiers;
  line["options"] = setting.options;
  line["seed"] = setting.seed;
  line["correct"] = answer.judgement.verdict == Verdict::kRight;
  line["outcome"] = std::string(VerdictName(answer.judgement.verdict));
  line["extracted"] = text(answer.judgement.extraction.answer);
  line["rule"] = std::string(ExtractionRuleName(answer.judgement.extraction.rule));
  line["prompt_tokens"] = answer.prompt_tokens;
  line["generated_tokens"] = answer.generated_tokens;
  line["finish_reason"] = answer.finish_reason;
  line["peak_kv_bytes"] = answer.peak_kv_bytes;
  line["peak_tokens"] = answer.peak_tokens;
  line["kv_reads"] = answer.kv_reads;
  line["rows_evicted"] = answer.rows_evicted;
  line["text"] = text(answer.text);
  if (answer.lossless.has_value()) {
    line["drafted"] = answer.lossless->drafted;
    line["accepted"] = answer.lossless->accepted;
    line["verify_steps"] = answer.lossless->verify_steps;
    line["bytes_read_per_token"] = static_cast<double>(answer.lossless->bytes_read) /
                                   std::max<double>(answer.decode_steps, 1.0);
  }
  if (!answer.error.empty()) line["error"] = text(answer.error);
  line["seconds"] = answer.seconds;
  return line;
}

// Runs `work` on a thread of its own, while this one runs signals' handlers.
void RunInterruptibly(const std::function<void()>& work, std::atomic<bool>* cancel) {
  std::mutex mutex;
  std::condition_variable ended;
  bool is_over = false;
  std::thread thread([&] {
    work();
    const std::lock_guard lock(mutex);
    is_over = true;
    ended.notify_one();
  });
  std::optional<nb::python_error> raised;
  while (true) {
    bool over = false;
    {
      nb::gil_scoped_release release;
      std::unique_lock lock(mutex);
      over = ended.wait_for(lock, std::chrono::milliseconds(50), [&] { return is_over; });
    }
    if (over) break;
    if (!raised.has_value() && PyErr_CheckSignals() != 0) {
      raised.emplace();
      *cancel = true;
    }
  }
  {
    nb::gil_scoped_release release;
    thread.join();
  }
  if (raised.has_value()) throw std::move(*raised);
}

nb::list Evaluate(std::shared_ptr<Model> model, const nb::list& settings, const nb::dict& options,
                  nb::object on_answer) {
  const auto failure = std::make_shared<Failure>();
  std::vector<EvalSetting> grid;
  // Settings that differ in what a policy does not take are one.
  std::set<std::vector<std::string>> names;
  for (nb::handle given : settings) {
    const auto dict = nb::cast<nb::dict>(given);
    EvalSetting setting = ReadSetting(dict, failure);
    std::vector<std::string> name = {setting.policy, setting.budget, setting.tiers, setting.options,
                                     std::to_string(setting.seed)};
    for (const Held& part : {ReadParts(dict).scorer, ReadParts(dict).placement}) {
      name.push_back(
          part == nullptr ? "" : std::to_string(reinterpret_cast<uintptr_t>(part->get().ptr())));
    }
    if (names.insert(std::move(name)).second) grid.push_back(std::move(setting));
  }
  const std::vector<EvalQuestion> questions = ReadTask(
      Get<std::string>(options, "task").value_or("pebble"),
      Get<int>(options, "problems").value_or(200), Get<uint64_t>(options, "seed").value_or(0),
      Get<std::string>(options, "prompt_preset").value_or("plain"),
      Get<int>(options, "max_tokens").value_or(0));
  // A policy or a budget that is refused is refused before anything runs.
  for (const EvalSetting& setting : grid) {
    Status status = WithoutGil([&] {
      auto engine = Engine::Create(model, setting.engine);
      return engine.ok() ? (*engine)->OpenSession(setting.session).status() : engine.status();
    });
    failure->RaiseIfSet();
    RaiseIfError(status);
  }
  EvaluationOptions evaluation;
  evaluation.sampling = ReadSampling(options);
  evaluation.sampling.temperature = Get<float>(options, "temperature").value_or(0.0f);
  if (Get<std::string>(options, "prompt_style").value_or("chat") == "raw") {
    evaluation.prompt_style = PromptStyle::kRaw;
  }
  const int workers = Get<int>(options, "workers").value_or(0);
  evaluation.workers = workers > 0 ? workers : AvailableProcessors().threads;
  evaluation.batch = Get<int>(options, "batch").value_or(0);
  std::atomic<bool> cancel = false;
  evaluation.cancel = &cancel;
  nb::list lines;
  evaluation.on_answer = [&](const EvalAnswer& answer) -> Status {
    if (failure->is_set()) return Cancelled("a policy's Python code raised an exception");
    nb::gil_scoped_acquire gil;
    try {
      nb::dict line = DictOf(answer, grid[answer.setting], questions[answer.problem]);
      lines.append(line);
      if (!on_answer.is_none()) on_answer(line);
    } catch (nb::python_error& error) {
      failure->Take(error);
      return Cancelled("on_answer raised an exception");
    }
    return OkStatus();
  };
  Status status;
  RunInterruptibly([&] { status = RunEvaluation(model, questions, grid, evaluation); }, &cancel);
  failure->RaiseIfSet();
  RaiseIfError(status);
  return lines;
}

}  // namespace

void BindLab(nb::module_& module) {
  module.def("evaluate", &Evaluate, nb::arg("model"), nb::arg("settings"), nb::arg("options"),
             nb::arg("on_answer").none());
  module.def("pebble_problem", [](uint64_t seed, uint64_t number) {
    const PebbleProblem problem = MakePebbleProblem(seed, number);
    return nb::make_tuple(problem.Question(), problem.answer,
                          std::string(PebbleFamilyName(problem.family)));
  });
  module.def("is_randomized", [](const nb::dict& options) {
    return ValueOrRaise(IsRandomized(ReadPolicy(options)));
  });
}

}  // namespace ebb::python

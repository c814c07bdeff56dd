// Evaluations: the laboratory's own runs (ebb/lab/eval_run.h), with policies, prompts and judges in
// Python as well as the built-in ones.
#include "bindings.h"
#include "ebb/lab/answers.h"
#include "ebb/lab/eval_task.h"
#include "ebb/lab/pebble.h"
#include "ebb/setting_fields.h"
#include "run_interruptibly.h"

namespace ebb::python {
namespace {

// {"policy": "h2o", "budget": "25%", "window": 16, ...}. "scorer" and "placement" may be Python's;
// "code" then identifies them, and "label" is the policy's name in results.
EvalSetting ReadSetting(const nb::dict& dict, const std::shared_ptr<Failure>& failure) {
  EvalSetting setting;
  setting.engine = ReadEngine(dict);
  setting.session = ReadSession(dict);
  if (auto& lossless = setting.session.lossless; lossless.has_value()) {
    constexpr int kDrafts = 8;  // also the default of `ebb-lab eval`
    const auto most = Get<int>(dict, "draft_max"), least = Get<int>(dict, "draft_min");
    lossless->draft_max = most.value_or(least.value_or(kDrafts));
    lossless->draft_min = least.value_or(lossless->draft_max);
  }
  PolicySpec& spec = setting.session.policy;
  setting.policy = Get<std::string>(dict, "policy").value_or("full");
  setting.budget = Get<std::string>(dict, "budget").value_or("");
  setting.seed = spec.seed;
  if (const PythonParts parts = ReadParts(dict); !parts.empty()) {
    // The policy that Python code is part of is made of the options that it takes.
    spec = ValueOrRaise(DropUnusedOptions(std::move(spec)));
    setting.session.make_policy =
        MakePythonPolicy(spec, parts, spec.tiers.has_value(), nullptr, failure);
    setting.policy = Get<std::string>(dict, "label").value_or(setting.policy);
    setting.code = Get<std::string>(dict, "code").value_or("");
  }
  return setting;
}

// An ebb.Problem. REQUIRES: the GIL.
nb::object ProblemOf(const EvalProblem& problem) {
  return nb::module_::import_("ebb.lab").attr("Problem")(TextOf(problem.id), TextOf(problem.Text()),
                                                         TextOf(problem.reference),
                                                         std::string(AnswerKindName(problem.kind)));
}

// Makes the question of a problem, and judges its answers, by Python code if there is any. An
// exception that this code raises becomes `failure`, and ends the run.
void Customize(nb::handle prompt, nb::handle judge, const std::shared_ptr<Failure>& failure,
               EvalTaskRequest* request) {
  if (!prompt.is_none()) {
    request->prompt = [prompt, failure](const EvalProblem& problem) -> Result<std::string> {
      nb::gil_scoped_acquire gil;
      try {
        return nb::cast<std::string>(nb::str(prompt(ProblemOf(problem))));
      } catch (nb::python_error& error) {
        failure->Take(error);
        return InvalidArgument("prompt() raised an exception");
      }
    };
  }
  if (!judge.is_none()) {
    request->judge = [judge, failure](const EvalProblem& problem, std::string_view text,
                                      std::string_view answer) -> Judgement {
      nb::gil_scoped_acquire gil;
      try {
        const auto [outcome, extracted] = nb::cast<std::pair<std::string, std::string>>(
            judge(ProblemOf(problem), TextOf(text), TextOf(answer)));
        for (const Verdict verdict :
             {Verdict::kRight, Verdict::kWrong, Verdict::kNoAnswer, Verdict::kEmpty}) {
          if (outcome == VerdictName(verdict)) {
            return {.verdict = verdict, .extraction = {.answer = extracted}};
          }
        }
      } catch (nb::python_error& error) {
        failure->Take(error);
      }
      return {};
    };
  }
}

EvaluationOptions ReadEvaluation(const nb::dict& options, const std::atomic<bool>* cancel) {
  EvaluationOptions evaluation;
  evaluation.sampling = ReadSampling(options);
  evaluation.sampling.temperature = Get<float>(options, "temperature").value_or(0.0f);
  const auto style = Get<std::string>(options, "prompt_style").value_or("chat");
  if (style != "chat" && style != "raw") {
    Raise(InvalidArgument("prompt_style", "expected chat or raw, found \"" + style + "\""));
  }
  evaluation.prompt_style = style == "raw" ? PromptStyle::kRaw : PromptStyle::kChat;
  evaluation.workers = ReadWorkers(options);
  evaluation.batch = Get<int>(options, "batch").value_or(0);
  RaiseIfError(ParseShard(Get<std::string>(options, "shard").value_or("0/1"), &evaluation));
  evaluation.cancel = cancel;
  return evaluation;
}

// Runs an evaluation. on_result(line, seconds, done, total, was_there) receives each answer as a
// line of results.jsonl, on_note(text) sentences for the user.
void Evaluate(std::shared_ptr<Model> model, const nb::list& settings, const nb::dict& options,
              nb::object on_result, nb::object on_note, nb::object prompt, nb::object judge) {
  const auto failure = std::make_shared<Failure>();
  std::vector<EvalSetting> grid;
  for (nb::handle given : settings) {
    grid.push_back(ReadSetting(nb::cast<nb::dict>(given), failure));
  }
  std::atomic<bool> cancel = false;
  EvalRunOptions run = {.task = ReadTask(options),
                        .evaluation = ReadEvaluation(options, &cancel),
                        .out = Get<std::string>(options, "out").value_or(""),
                        .resume = Get<bool>(options, "resume").value_or(false),
                        .any_version = Get<bool>(options, "any_version").value_or(false)};
  if (Get<bool>(options, "dequantize").value_or(false)) run.model.weights = WeightMode::kDequantize;
  Customize(prompt, judge, failure, &run.task);
  run.check = [&] {
    return failure->is_set() ? Cancelled("Python code raised an exception") : OkStatus();
  };
  run.on_note = [&](const std::string& note) {
    nb::gil_scoped_acquire gil;
    try {
      on_note(TextOf(note));
    } catch (nb::python_error& error) {
      failure->Take(error);
    }
  };
  run.on_result = [&](const ResultOfRun& result) -> Status {
    nb::gil_scoped_acquire gil;
    try {
      on_result(TextOf(result.line), result.seconds, result.done, result.total, result.was_there);
    } catch (nb::python_error& error) {
      failure->Take(error);
      return Cancelled("on_answer raised an exception");
    }
    return OkStatus();
  };
  Status status;
  RunInterruptibly([&] { status = RunEvaluationInFolder(model, std::move(grid), run); }, &cancel);
  failure->RaiseIfSet();
  RaiseIfError(status);
}

nb::tuple Judge(const std::string& text, const std::string& reference, const std::string& kind,
                const std::vector<std::string>& options, std::string_view rules) {
  AnswerKind parsed = AnswerKind::kNumber;
  bool is_known = false;
  for (const AnswerKind one :
       {AnswerKind::kNumber, AnswerKind::kMath, AnswerKind::kOption, AnswerKind::kWord}) {
    if (kind != AnswerKindName(one)) continue;
    parsed = one;
    is_known = true;
  }
  if (!is_known) {
    Raise(InvalidArgument("kind",
                          "expected number, formula, option or word, found \"" + kind + "\""));
  }
  const Judgement judgement = JudgeAnswer(
      text, reference, {.kind = parsed, .rules = AnswerRulesOrRaise(rules), .options = options});
  return nb::make_tuple(std::string(VerdictName(judgement.verdict)),
                        TextOf(judgement.extraction.answer),
                        std::string(ExtractionRuleName(judgement.extraction.rule)));
}

}  // namespace

void BindLab(nb::module_& module) {
  module.def("evaluate", &Evaluate, nb::arg("model"), nb::arg("settings"), nb::arg("options"),
             nb::arg("on_result"), nb::arg("on_note"), nb::arg("prompt").none(),
             nb::arg("judge").none());
  module.def("judge", &Judge, nb::arg("text"), nb::arg("reference"), nb::arg("kind"),
             nb::arg("options"), nb::arg("rules"));
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

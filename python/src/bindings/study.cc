// Binds the studies other than evaluations: fidelity and importance (ebb/lab), and probabilities of
// given text.
#include <utility>

#include "bindings.h"
#include "ebb/lab/fidelity.h"
#include "ebb/lab/importance.h"
#include "run_interruptibly.h"

namespace ebb::python {
namespace {

nb::tuple TupleOf(const Estimate& estimate) {
  return nb::make_tuple(estimate.value, estimate.interval.low, estimate.interval.high);
}

// Compares a setting with the full cache on a text of tokens, which is cut into windows.
nb::dict MeasureFidelityOf(PythonEngine& engine, const std::vector<Token>& text,
                           const nb::dict& dict, int window_tokens, int prompt_tokens, int windows,
                           uint64_t seed) {
  const auto failure = std::make_shared<Failure>();
  if (prompt_tokens < 1 || window_tokens <= prompt_tokens + 1) {
    Raise(InvalidArgument("window_tokens", "expected more than the tokens of its prompt"));
  }
  ebb::FidelityOptions fidelity;
  fidelity.setting = ReadSession(dict);
  EngineOptions engine_options = engine.engine->options();
  if (const PythonParts parts = ReadParts(dict); !parts.empty()) {
    fidelity.setting.make_policy = MakePythonPolicy(
        fidelity.setting.policy, parts, engine_options.tiers.has_value(), nullptr, failure);
  }
  fidelity.prompt_tokens = prompt_tokens;
  fidelity.seed = seed;
  std::atomic<bool> cancel = false;
  fidelity.cancel = &cancel;
  Result<FidelityReport> report = Status();
  EngineTurn::Hold turn(engine.turn);
  RunInterruptibly(
      [&] {
        const auto prefix =
            engine.model->Tokenize("", Model::AddBos::kAsModelSays, Model::Specials::kAsText);
        if (!prefix.ok()) {
          report = prefix.status();
          return;
        }
        auto cut = CutWindows(text, *prefix, window_tokens, prompt_tokens);
        if (windows > 0 && cut.size() > static_cast<size_t>(windows)) {
          cut.resize(static_cast<size_t>(windows));
        }
        report = MeasureFidelity(*engine.engine, cut, fidelity);
      },
      &cancel);
  failure->RaiseIfSet();
  const FidelityReport value = ValueOrRaise(std::move(report));
  nb::dict result;
  result["mean_kl"] = TupleOf(value.mean_kl);
  result["max_kl"] = value.max_kl;
  result["max_logit_difference"] = value.max_logit_difference;
  result["top1"] = TupleOf(value.top1);
  result["perplexity"] = TupleOf(value.perplexity);
  result["perplexity_full"] = TupleOf(value.perplexity_full);
  result["tokens"] = value.tokens;
  result["not_finite"] = value.not_finite;
  result["windows"] = value.windows;
  result["kv_bytes"] = value.kv_bytes;
  result["policy_bytes"] = value.policy_bytes;
  return result;
}

nb::dict DictOf(const ImportanceResult& result, const EvalQuestion& problem) {
  nb::dict line;
  line["problem"] = result.problem;
  line["id"] = problem.id;
  line["outcome"] = std::string(LabelOutcomeName(result.label.outcome));
  if (result.label.outcome != LabelOutcome::kLabelled) return line;
  const ImportanceLabels& labels = result.label.labels;
  line["thought_begin"] = labels.thought_begin;
  line["boundary"] = labels.boundary;
  line["windows"] = labels.num_windows;
  line["important_windows"] = labels.num_important_windows;
  line["tokens"] = CopyOf(std::span<const Token>(labels.tokens));
  line["important"] = CopyOf(std::span<const uint8_t>(labels.important));
  return line;
}

// Returns the labels of each problem, and the correlations of each signal with them.
nb::tuple StudyImportanceOf(std::shared_ptr<Model> model, const nb::dict& options) {
  const EvalQuestions task = ValueOrRaise(ReadEvalQuestions(ReadTask(options)));
  std::atomic<bool> cancel = false;
  ImportanceStudy study;
  std::vector<ImportanceResult> results;
  ImportanceOptions importance;
  importance.occlusion = {.window = Get<int>(options, "window").value_or(32),
                          .stride = Get<int>(options, "stride").value_or(16),
                          .answer_tokens = Get<int>(options, "answer_tokens").value_or(512),
                          .boundary = Get<std::string>(options, "boundary").value_or(""),
                          .cancel = &cancel};
  importance.engine = ReadEngine(options);
  importance.workers = ReadWorkers(options);
  importance.on_result = [&](const ImportanceResult& result) {
    if (result.label.outcome == LabelOutcome::kLabelled) {
      study.Add(result.label.labels, result.signals);
    }
    results.push_back(result);
    return OkStatus();
  };
  Status status;
  RunInterruptibly([&] { status = StudyImportance(model, task.questions, importance); }, &cancel);
  RaiseIfError(status);
  nb::list labels, signals;
  for (const ImportanceResult& result : results) {
    labels.append(DictOf(result, task.questions[result.problem]));
  }
  for (const SignalCorrelation& signal : study.Correlations()) {
    nb::dict line;
    line["signal"] = signal.name;
    line["within"] = signal.within;
    line["half_width"] = signal.half_width;
    line["thoughts"] = signal.thoughts;
    line["pooled"] = signal.pooled;
    line["tokens"] = signal.tokens;
    line["trend"] = signal.trend;
    signals.append(line);
  }
  return nb::make_tuple(labels, signals);
}

}  // namespace

void BindStudy(nb::module_& module) {
  module.def("fidelity", &MeasureFidelityOf, nb::arg("engine"), nb::arg("text"), nb::arg("options"),
             nb::arg("window_tokens"), nb::arg("prompt_tokens"), nb::arg("windows"),
             nb::arg("seed"));
  module.def("importance", &StudyImportanceOf, nb::arg("model"), nb::arg("options"));
}

}  // namespace ebb::python

#include <atomic>
#include <thread>
#include <utility>
#include <vector>

#include "ebb/lab/importance.h"
#include "lab/eval/in_order.h"

namespace ebb {
namespace {

Result<ImportanceResult> StudyOne(Engine* engine, std::span<const EvalQuestion> problems,
                                  size_t problem, const OcclusionOptions& occlusion) {
  ImportanceResult result = {.problem = problem};
  EBB_ASSIGN_OR_RETURN(result.label, LabelByOcclusion(engine, problems[problem], occlusion));
  if (result.label.outcome == LabelOutcome::kLabelled) {
    EBB_ASSIGN_OR_RETURN(result.signals, ReadSignals(engine, result.label.labels));
  }
  return result;
}

}  // namespace

Status StudyImportance(const std::shared_ptr<const Model>& model,
                       std::span<const EvalQuestion> problems, const ImportanceOptions& options) {
  InOrder<ImportanceResult> results(0, kMostAhead, options.on_result);
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    EngineOptions engine_options = options.engine;
    engine_options.threads = 1;
    auto engine = Engine::Create(model, engine_options);
    Status status = engine.status();
    while (status.ok() && !results.stopped()) {
      const size_t problem = next.fetch_add(1);
      if (problem >= problems.size()) return;
      results.WaitForTurn(problem);
      if (results.stopped()) return;
      Result<ImportanceResult> result =
          StudyOne(engine->get(), problems, problem, options.occlusion);
      status = result.status();
      if (status.ok()) results.Put(problem, *std::move(result));
    }
    if (!status.ok()) results.Stop(status);
  };
  {
    std::vector<std::jthread> workers;
    for (int i = 0; i < options.workers; ++i) workers.emplace_back(work);
  }
  return results.status();
}

}  // namespace ebb

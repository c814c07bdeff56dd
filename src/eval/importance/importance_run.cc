#include <atomic>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "ebb/importance.h"

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

// Hands results on in order; the first error stays.
class InOrder {
 public:
  explicit InOrder(const std::function<Status(const ImportanceResult&)>& sink) : sink_(sink) {}

  void Put(Result<ImportanceResult> result) {
    const std::lock_guard lock(mutex_);
    if (!status_.ok()) return;
    if (!result.ok()) {
      status_ = result.status();
      return;
    }
    const size_t problem = result->problem;
    waiting_.emplace(problem, *std::move(result));
    while (status_.ok() && !waiting_.empty() && waiting_.begin()->first == next_) {
      status_ = sink_(waiting_.begin()->second);
      waiting_.erase(waiting_.begin());
      ++next_;
    }
  }
  [[nodiscard]] Status status() {
    const std::lock_guard lock(mutex_);
    return status_;
  }

 private:
  std::mutex mutex_;
  const std::function<Status(const ImportanceResult&)>& sink_;
  size_t next_ = 0;  // guarded by mutex_, as all below
  std::map<size_t, ImportanceResult> waiting_;
  Status status_;
};

}  // namespace

Status StudyImportance(const std::shared_ptr<const Model>& model,
                       std::span<const EvalQuestion> problems, const ImportanceOptions& options) {
  InOrder results(options.on_result);
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    EngineOptions engine_options = options.engine;
    engine_options.threads = 1;
    auto engine = Engine::Create(model, engine_options);
    if (!engine.ok()) return results.Put(engine.status());
    while (results.status().ok()) {
      const size_t problem = next.fetch_add(1);
      if (problem >= problems.size()) return;
      results.Put(StudyOne(engine->get(), problems, problem, options.occlusion));
    }
  };
  {
    std::vector<std::jthread> workers;
    for (int i = 0; i < options.workers; ++i) workers.emplace_back(work);
  }
  return results.status();
}

}  // namespace ebb

#include <fmt/format.h>

#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "apps/common/report.h"
#include "apps/common/terminal/interrupt.h"
#include "apps/common/terminal/progress.h"
#include "apps/common/terminal/say.h"
#include "apps/lab/commands.h"
#include "apps/lab/eval/counts.h"
#include "apps/lab/eval/grid.h"
#include "apps/lab/eval/task.h"
#include "apps/lab/lab_options.h"
#include "ebb/lab/eval_run.h"

namespace ebb::cli {
namespace {

// Returns an error if every answer ended in an error. Single ones count as wrong, but figures of
// nothing else would mean nothing.
Status CheckThatAnyAnswered(std::span<const Json> lines) {
  if (lines.empty()) return OkStatus();
  for (const Json& line : lines) {
    if (!line.contains("error")) return OkStatus();
  }
  return OutOfMemory(fmt::format("all {} answers ended in an error; the first: {}", lines.size(),
                                 lines[0]["error"].get<std::string>()));
}

EvalRunOptions RunOptions(const CliOptions& options) {
  const EvalInput& eval = options.Of<EvalInput>();
  EvalRunOptions run = {.task = TaskRequest(options),
                        .model = options.model,
                        .engine = options.engine,
                        .session = options.session,
                        .out = eval.out,
                        .resume = eval.resume,
                        .any_version = eval.any_version};
  run.evaluation.sampling.temperature = eval.temperature;
  run.evaluation.sampling.top_k = eval.top_k;
  run.evaluation.sampling.top_p = eval.top_p;
  run.evaluation.sampling.min_p = eval.min_p;
  run.evaluation.prompt_style = eval.prompt_style;
  run.evaluation.workers = NumWorkers(eval);
  run.evaluation.batch = eval.batch;
  run.evaluation.cancel = InstallInterruptHandler();
  run.on_note = [](const std::string& note) { Say("ebb-lab: note: {}\n", note); };
  return run;
}

}  // namespace

Status RunEval(const CliOptions& options) {
  const EvalInput& eval = options.Of<EvalInput>();
  if (eval.out.empty()) return InvalidArgument("--out FOLDER: where are the results to go?");
  if (eval.samples > 1 && eval.temperature == 0) {
    return InvalidArgument("--samples above 1 gives the same answer again without --temp");
  }
  EvalRunOptions run = RunOptions(options);
  const Status shard = ParseShard(eval.shard, &run.evaluation);
  if (!shard.ok()) return InvalidArgument(fmt::format("--shard: {}", shard.message()));
  EBB_ASSIGN_OR_RETURN(std::vector<EvalSetting> settings, MakeGrid(options));
  EBB_ASSIGN_OR_RETURN(const auto model, OpenTaskModel(options));
  std::vector<Json> results;
  {
    std::optional<ProgressBar> bar;
    run.on_result = [&](const ResultOfRun& result) -> Status {
      if (!bar.has_value()) {
        bar.emplace("answering", "answers", static_cast<int64_t>(result.total),
                    options.quiet ? ProgressBar::Display::kOff : ProgressBar::Display::kAuto);
      }
      results.push_back(Json::parse(result.line));
      bar->Update(static_cast<int64_t>(result.done));
      return OkStatus();
    };
    EBB_RETURN_IF_ERROR(RunEvaluationInFolder(model, std::move(settings), run));
  }
  EBB_RETURN_IF_ERROR(WriteCounts(results, options));
  return CheckThatAnyAnswered(results);
}

}  // namespace ebb::cli

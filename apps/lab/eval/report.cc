// `ebb-lab report`: merges shards of one evaluation, or evaluations of several settings.
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "apps/common/report.h"
#include "apps/common/terminal/output.h"
#include "apps/common/terminal/say.h"
#include "apps/lab/commands.h"
#include "apps/lab/eval/eval_options.h"
#include "apps/lab/eval/files.h"
#include "apps/lab/eval/runs.h"
#include "apps/lab/eval/summary.h"

namespace ebb::cli {
namespace {

Status WriteLines(const std::string& path, const std::vector<Json>& lines) {
  std::string text;
  for (const Json& line : lines)
    text += line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  return WriteFile(path, text);
}

Status MakeFolder(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  return error ? IoError(fmt::format("cannot make {}: {}", folder, error.message())) : OkStatus();
}

// A report of the same questions is overwritten. Answers of another run are not, nor those of a run
// that is put together here.
Status CheckIsOurs(const EvalInput& eval, const Json& manifest) {
  std::error_code error;
  for (const std::string& folder : eval.folders) {
    if (std::filesystem::equivalent(folder, eval.out, error)) {
      return InvalidArgument(fmt::format(
          "--out {}: its answers are put together here; choose another folder", eval.out));
    }
  }
  const std::string grid = fmt::format("{}/{}", eval.out, kGridFile);
  if (!std::filesystem::exists(grid, error)) return OkStatus();
  EBB_ASSIGN_OR_RETURN(const Json there, ReadManifest(grid));
  const std::string key = DifferingKey(manifest, there, KeysOfParts());
  if (key.empty()) return OkStatus();
  return InvalidArgument(fmt::format(
      "{} holds another run, whose \"{}\" differs; choose another --out", eval.out, key));
}

Status Merge(std::vector<EvalRun> runs, const CliOptions& options) {
  const EvalInput& eval = options.Of<EvalInput>();
  EBB_ASSIGN_OR_RETURN(const EvalRun run, MergeRuns(std::move(runs)));
  if (run.results.size() < NumAsked(run) && !options.quiet) {
    Say("{} of {} answers are missing: of shards, or of runs that did not end\n",
        NumAsked(run) - run.results.size(), NumAsked(run));
  }
  EBB_ASSIGN_OR_RETURN(Json summary, Summarize(run.results));
  if (!eval.against.empty()) EBB_RETURN_IF_ERROR(AddAgainst(eval.against, &summary));
  EBB_RETURN_IF_ERROR(MakeFolder(eval.out));
  EBB_RETURN_IF_ERROR(CheckIsOurs(eval, run.manifest));
  const auto path = [&](std::string_view name) { return fmt::format("{}/{}", eval.out, name); };
  EBB_RETURN_IF_ERROR(WriteFile(path(kGridFile), run.manifest.dump(2) + "\n"));
  EBB_RETURN_IF_ERROR(WriteLines(path(kResultsFile), run.results));
  EBB_RETURN_IF_ERROR(WriteLines(path(kTimesFile), run.times));
  return WriteSummaries(eval.out, summary, run.results, run.times, options);
}

Status Report(const CliOptions& options) {
  const EvalInput& eval = options.Of<EvalInput>();
  if (eval.folders.empty()) return InvalidArgument("expected folders that `ebb-lab eval` wrote");
  if (eval.out.empty()) return InvalidArgument("--out FOLDER: where is the report to go?");
  std::vector<EvalRun> runs;
  for (const std::string& folder : eval.folders) {
    EBB_ASSIGN_OR_RETURN(runs.emplace_back(), ReadEvalRun(folder));
  }
  return Merge(std::move(runs), options);
}

}  // namespace

ExitCode RunReport(const CliOptions& options) {
  const Status status = Report(options);
  return status.ok() ? ExitCode::kOk : Fail(status);
}

}  // namespace ebb::cli

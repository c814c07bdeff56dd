#include "ebb/lab/eval.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apps/common/interrupt.h"
#include "apps/common/report.h"
#include "apps/common/setup.h"
#include "apps/common/terminal/progress.h"
#include "apps/lab/commands.h"
#include "apps/lab/eval/counts.h"
#include "apps/lab/eval/files.h"
#include "apps/lab/eval/grid.h"
#include "apps/lab/eval/lines.h"
#include "apps/lab/eval/manifest.h"
#include "apps/lab/eval/task.h"
#include "apps/lab/lab_options.h"

namespace ebb::cli {
namespace {

struct Shard {
  size_t index = 0;
  size_t count = 1;
};

Result<Shard> ParseShard(std::string_view text) {
  Shard shard;
  const char* const end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, shard.index);
  const bool has_slash = first.ec == std::errc() && first.ptr != end && *first.ptr == '/';
  const auto second = has_slash ? std::from_chars(first.ptr + 1, end, shard.count) : first;
  if (!has_slash || second.ec != std::errc() || second.ptr != end || shard.index >= shard.count) {
    return InvalidArgument(
        fmt::format("--shard: expected I/N with I from 0 to N - 1, found \"{}\"", text));
  }
  return shard;
}

// Returns the limit of the longest answer, in tokens: the task's own limits if --tokens is 0.
int LongestAnswer(const Task& task) {
  int most = 0;
  for (const EvalQuestion& question : task.questions) most = std::max(most, question.max_tokens);
  return most;
}

// Returns the device's name for the manifest, empty for the processor. Logits differ in their last
// bits between devices, and between kinds of attention on one.
std::string DeviceOf(const DeviceSpec& device) {
  if (device.attention == DeviceAttention::kAuto) return device.name;
  return fmt::format("{}:attention={}", device.name, DeviceAttentionName(device.attention));
}

// Returns everything that determines the results except the machine, so that two runs can be
// compared.
Json Manifest(const CliOptions& options, const Model& model, const Task& task,
              const std::vector<EvalSetting>& settings) {
  const EvalInput& eval = options.Of<EvalInput>();
  const bool re_rotates = options.session.past_context == PastContext::kReRotate;
  Json manifest = {{"format", 2},
                   {"task", eval.task},
                   {"problems", task.questions.size()},
                   {"task_fingerprint", fmt::format("{:016x}", task.fingerprint)},
                   {"seed", options.seed},
                   {"model", model.description()},
                   {"model_fingerprint", model.fingerprint()},
                   {"model_compression", model.trained_compression()},
                   {"model_window", model.eviction_window()},
                   {"model_shift", model.eviction_shift()},
                   {"weights", options.model.weights == WeightMode::kDequantize ? "f32" : "file"},
                   {"rope_scaling", static_cast<int>(options.model.rope_scaling)},
                   {"rope_factor", options.model.rope_factor},
                   {"context", options.session.context},
                   {"past_context", re_rotates ? "rerotate" : "refuse"},
                   {"kv_cap_bytes", options.engine.kv_cap_bytes},
                   {"kv_type", RowTypeName(options.engine.kv_type)},
                   {"device", DeviceOf(options.engine.device)},
                   {"prompt_preset", eval.prompt},
                   {"prompt_style", eval.prompt_style == PromptStyle::kChat ? "chat" : "raw"},
                   {"prompts_fingerprint", fmt::format("{:016x}", task.prompts_fingerprint)},
                   {"judge", kJudgeNumber},
                   {"temperature", eval.temperature},
                   {"top_k", eval.top_k},
                   {"top_p", eval.top_p},
                   {"min_p", eval.min_p},
                   {"tokens", eval.max_tokens},
                   {"answer_tokens", LongestAnswer(task)},
                   {"shard", eval.shard},
                   {"batch", eval.batch},
                   {"settings", Json::array()}};
  for (const EvalSetting& setting : settings) manifest["settings"].push_back(SettingJson(setting));
  return manifest;
}

// Writes the manifest into the folder, or checks with --resume that the run that is there has the
// same one. Errors: InvalidArgument if the folder holds another run, or a run and --resume is
// missing.
Status ClaimFolder(const EvalInput& eval, const Json& manifest) {
  std::error_code error;
  std::filesystem::create_directories(eval.out, error);
  if (error) return IoError(fmt::format("cannot make {}: {}", eval.out, error.message()));
  const std::string path = fmt::format("{}/{}", eval.out, kGridFile);
  if (!std::filesystem::exists(path)) return WriteFile(path, manifest.dump(2) + "\n");
  if (!eval.resume) {
    return InvalidArgument(fmt::format(
        "{} holds a run already; go on with it by --resume, or choose another --out", eval.out));
  }
  EBB_ASSIGN_OR_RETURN(const Json there, ReadManifest(path));
  const std::string key = DifferingKey(manifest, there);
  if (key.empty()) return OkStatus();
  return InvalidArgument(
      fmt::format("{} holds another run: its \"{}\" differs; choose another --out", eval.out, key));
}

// Checks that the lines are answers to this run's questions in their order and without gaps, so
// that the run can continue after the last one.
Status CheckResumed(const std::vector<Json>& lines, size_t num_problems, const Shard& shard,
                    const std::string& path) {
  size_t i = 0;
  for (size_t setting = 0; i < lines.size(); ++setting) {
    for (size_t problem = shard.index; problem < num_problems && i < lines.size();
         problem += shard.count, ++i) {
      if (lines[i]["setting"] == setting && lines[i]["problem"] == problem) continue;
      return Corrupt(
          fmt::format("{}, line {}: expected the answer to problem {} of setting {}; answers put "
                      "together with gaps cannot be gone on with",
                      path, i + 1, problem, setting));
    }
  }
  return OkStatus();
}

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

class Evaluation {
 public:
  explicit Evaluation(const CliOptions& options)
      : options_(options), eval_(options.Of<EvalInput>()) {}

  Status Run() {
    const std::atomic<bool>* cancel = InstallInterruptHandler();
    EBB_RETURN_IF_ERROR(Prepare());
    EBB_RETURN_IF_ERROR(ClaimFolder(eval_, manifest_));
    EBB_RETURN_IF_ERROR(OpenFiles());
    EvaluationOptions evaluation;
    evaluation.sampling.temperature = eval_.temperature;
    evaluation.sampling.top_k = eval_.top_k;
    evaluation.sampling.top_p = eval_.top_p;
    evaluation.sampling.min_p = eval_.min_p;
    evaluation.prompt_style = eval_.prompt_style;
    evaluation.workers = NumWorkers(eval_);
    evaluation.batch = eval_.batch;
    evaluation.first_unit = results_->lines().size();
    evaluation.shard = shard_.index;
    evaluation.num_shards = shard_.count;
    evaluation.cancel = cancel;
    const size_t num_units =
        NumUnits(settings_.size(), problems_.size(), shard_.index, shard_.count);
    {
      ProgressBar bar("answering", "answers", static_cast<int64_t>(num_units),
                      options_.quiet ? ProgressBar::Display::kOff : ProgressBar::Display::kAuto);
      evaluation.on_answer = [&](const EvalAnswer& answer) -> Status {
        EBB_RETURN_IF_ERROR(Keep(answer));
        bar.Update(static_cast<int64_t>(results_->lines().size()));
        return OkStatus();
      };
      EBB_RETURN_IF_ERROR(RunEvaluation(model_, problems_, settings_, evaluation));
    }
    EBB_RETURN_IF_ERROR(WriteCounts(results_->lines(), options_));
    return CheckThatAnyAnswered(results_->lines());
  }

 private:
  Status Prepare() {
    if (eval_.out.empty()) return InvalidArgument("--out FOLDER: where are the results to go?");
    if (eval_.samples > 1 && eval_.temperature == 0) {
      return InvalidArgument("--samples above 1 gives the same answer again without --temp");
    }
    EBB_ASSIGN_OR_RETURN(shard_, ParseShard(eval_.shard));
    EBB_ASSIGN_OR_RETURN(settings_, MakeGrid(options_));
    EBB_ASSIGN_OR_RETURN(Task task, ReadTask(eval_, options_.seed));
    problems_ = task.questions;
    if (shard_.index >= problems_.size()) {
      return InvalidArgument(fmt::format("--shard {} has no problems: there are {} in all",
                                         eval_.shard, problems_.size()));
    }
    EBB_ASSIGN_OR_RETURN(model_, OpenTaskModel(options_));
    // Opening a session for each setting finds a wrong policy or budget before anything is written.
    for (const EvalSetting& setting : settings_) {
      if (eval_.batch != 0) EBB_RETURN_IF_ERROR(CheckBatch(setting, eval_.batch));
      EBB_ASSIGN_OR_RETURN(const auto engine, Engine::Create(model_, setting.engine));
      const Status opened = engine->OpenSession(setting.session).status();
      if (opened.ok()) continue;
      return Status(opened.code(), fmt::format("policy {}{}{}: {}", setting.policy,
                                               setting.budget.empty() ? "" : " at ", setting.budget,
                                               opened.Text()));
    }
    manifest_ = Manifest(options_, *model_, task, settings_);
    return OkStatus();
  }

  Status OpenFiles() {
    const std::string path = fmt::format("{}/{}", eval_.out, kResultsFile);
    const std::string times_path = fmt::format("{}/{}", eval_.out, kTimesFile);
    EBB_ASSIGN_OR_RETURN(results_, LineFile::Open(path));
    EBB_ASSIGN_OR_RETURN(times_, LineFile::Open(times_path));
    EBB_RETURN_IF_ERROR(
        CheckResultLines(results_->lines(), {settings_.size(), problems_.size()}, path));
    EBB_RETURN_IF_ERROR(CheckResumed(results_->lines(), problems_.size(), shard_, path));
    EBB_RETURN_IF_ERROR(CheckTimeLines(times_->lines(), times_path));
    // The process may have been killed between writing the two lines of an answer; the longer file
    // is cut to the shorter one.
    const size_t done = std::min(results_->lines().size(), times_->lines().size());
    EBB_RETURN_IF_ERROR(results_->Truncate(done));
    return times_->Truncate(done);
  }

  Status Keep(const EvalAnswer& answer) {
    EBB_RETURN_IF_ERROR(
        results_->Append(ResultLine(answer, settings_[answer.setting], problems_[answer.problem])));
    return times_->Append(TimeLine(answer));
  }

  const CliOptions& options_;
  const EvalInput& eval_;
  Shard shard_;
  std::vector<EvalSetting> settings_;
  std::vector<EvalQuestion> problems_;
  std::shared_ptr<const Model> model_;
  Json manifest_;
  std::unique_ptr<LineFile> results_;
  std::unique_ptr<LineFile> times_;
};

}  // namespace

Status RunEval(const CliOptions& options) { return Evaluation(options).Run(); }

}  // namespace ebb::cli

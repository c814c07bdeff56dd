#include <algorithm>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "ebb/generate.h"
#include "src/cli/bench_report.h"
#include "src/cli/commands.h"
#include "src/cli/fit_memory.h"
#include "src/cli/profile_figures.h"
#include "src/cli/profile_prompts.h"
#include "src/cli/profile_report.h"
#include "src/cli/profile_run.h"
#include "src/cli/profile_transfers.h"
#include "src/cli/progress.h"
#include "src/cli/setup.h"
#include "src/cli/turn.h"

namespace ebb::cli {
namespace {

class Profile {
 public:
  explicit Profile(const CliOptions& options)
      : options_(options), cancel_(InstallInterruptHandler()) {}
  Status Run();

 private:
  Status Open();
  Status ProfilePrompt(size_t index, ProgressBar* bar);
  Status Transfers();
  Status Write();
  [[nodiscard]] std::string Text() const;

  CliOptions options_;
  const std::atomic<bool>* const cancel_;
  std::shared_ptr<const Model> model_;
  std::vector<TurnInput> inputs_;
  std::unique_ptr<Engine> engine_;
  std::vector<ProfiledRun> runs_;
  std::vector<Transfer> transfers_;
  std::string transfers_skipped_;  // why there are none
  Json record_;
};

ProgressBar::Display DisplayFor(const CliOptions& options) {
  return options.quiet ? ProgressBar::Display::kOff : ProgressBar::Display::kAuto;
}

// Before hours of work: whether what they end in can be written. An older report stays for now.
Status CheckWritable(const std::string& path) {
  if (path.empty() || std::ofstream(path, std::ios::app).good()) return OkStatus();
  return IoError(fmt::format("cannot write {}", path));
}

Status Profile::Run() {
  EBB_RETURN_IF_ERROR(CheckWritable(options_.profile.html_file));
  EBB_RETURN_IF_ERROR(Open());
  const MachineWatch watch;
  {
    const bool counts_tokens = options_.max_tokens > 0;
    const auto prompts = static_cast<int64_t>(inputs_.size());
    ProgressBar bar("profiling", counts_tokens ? "tokens" : "prompts",
                    counts_tokens ? prompts * options_.max_tokens : prompts, DisplayFor(options_));
    for (size_t i = 0; i < inputs_.size(); ++i) EBB_RETURN_IF_ERROR(ProfilePrompt(i, &bar));
  }
  EBB_RETURN_IF_ERROR(Transfers());
  record_["others_share"] = watch.OthersShare();
  WarnOfOthers(watch.OthersShare());
  return Write();
}

Status Profile::Open() {
  EBB_ASSIGN_OR_RETURN(const std::vector<std::string> prompts, ReadProfilePrompts(options_));
  EBB_ASSIGN_OR_RETURN(model_, OpenModel(options_));
  size_t longest = 0;
  for (const std::string& prompt : prompts) {
    EBB_ASSIGN_OR_RETURN(TurnInput input, PromptInput(*model_, options_, prompt));
    longest = std::max(longest, input.tokens.size());
    inputs_.push_back(std::move(input));
  }
  EBB_RETURN_IF_ERROR(FitGenerationIntoMemory(*model_, static_cast<int>(longest), &options_));
  EBB_ASSIGN_OR_RETURN(engine_, Engine::Create(model_, options_.engine));
  return OkStatus();
}

Status Profile::ProfilePrompt(size_t index, ProgressBar* bar) {
  const TurnInput& input = inputs_[index];
  RunRecorder recorder;
  SessionOptions session_options = options_.session;
  recorder.Ask(&session_options);
  EBB_ASSIGN_OR_RETURN(const auto session, OpenSession(*engine_, session_options));
  recorder.Bind(*session);
  if (index == 0) {
    const Policy& policy = session->policy();
    record_["scorer"] = policy.scorer->Name();
    record_["placement"] = policy.placement == nullptr ? "none" : policy.placement->Name();
    AddEngineFields(options_, *engine_, *session, &record_);
  }
  SamplingOptions sampling = options_.sampling;
  sampling.seed += index;
  EBB_ASSIGN_OR_RETURN(const auto sampler, Sampler::Create(*model_, sampling));
  PrefillOptions prefill;
  prefill.cancel = cancel_;
  EBB_RETURN_IF_ERROR(session->Prefill(input.tokens, prefill));
  GenerateOptions generate = GenerateOptionsFor(options_, input.prompt);
  generate.cancel = cancel_;
  const auto done = static_cast<int64_t>(index);
  int64_t tokens = 0;
  generate.on_token = [&](Token) {
    ++tokens;
    bar->Update(options_.max_tokens > 0 ? done * options_.max_tokens + tokens : done);
    recorder.OnToken();
  };
  ProfiledRun& run = recorder.run();
  run.prompt_tokens = static_cast<int>(input.tokens.size());
  run.result = Generate(*session, *sampler, generate);
  if (run.result.finish_reason == FinishReason::kCancelled) return Cancelled("interrupted");
  if (run.result.finish_reason == FinishReason::kError) return run.result.error;
  recorder.Finish();
  runs_.push_back(std::move(run));
  return OkStatus();
}

Status Profile::Transfers() {
  std::vector<Tier> tiers;
  if (const auto& spec = engine_->options().tiers; spec.has_value()) {
    if (spec->t1 != T1Place::kNone) tiers.push_back(Tier::kT1);
    if (spec->t2_share > 0) tiers.push_back(Tier::kT2);
  }
  const int most = options_.profile.transfer_tokens;
  if (tiers.empty()) {
    transfers_skipped_ = "No tier below T0 was asked for (--t0, --t1, --t2): nothing can move.";
  } else if (most == 0) {
    transfers_skipped_ = "Not measured: --transfer-tokens 0.";
  }
  if (!transfers_skipped_.empty()) return OkStatus();
  const auto longest =
      std::ranges::max_element(runs_, {}, [](const auto& run) { return run.tokens.size(); });
  // Half of the context: measuring takes steps.
  const int count = std::min(most, model_->shape().trained_context / 2) + kTransferStay;
  std::vector<Token> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(longest->tokens[i % longest->tokens.size()]);
  Result<std::vector<Transfer>> measured = MeasureTransfers(*engine_, tokens, tiers, cancel_);
  if (measured.ok()) {
    transfers_ = *std::move(measured);
  } else if (measured.status().code() == StatusCode::kResourceExhausted) {
    transfers_skipped_ = "Not measured: " + measured.status().message();
  } else {
    return measured.status();
  }
  return OkStatus();
}

std::string Profile::Text() const {
  const Json& figures = record_["figures"];
  const double step = figures["cost"]["mean_step_seconds"].get<double>();
  std::string text = fmt::format(
      "prompts                  {}, {} decode steps of {:.3g} ms\n"
      "top 20 % of the tokens   {:.1f} % of all attention\n"
      "bottom half              {:.1f} %\n"
      "adjacent steps           share {:.1f} % of their important rows\n"
      "a step's time           ",
      runs_.size(), figures["cost"]["steps"].get<int64_t>(), step * 1000,
      100 * figures["importance"]["top_20_percent"]["mean"].get<double>(),
      100 * figures["importance"]["bottom_50_percent"]["mean"].get<double>(),
      100 * figures["overlap"]["mean"].get<double>());
  for (const auto& [part, seconds] : figures["cost"]["mean_seconds"].items()) {
    const double share = step > 0 ? seconds.get<double>() / step : 0;
    text += fmt::format(" {} {:.1f} %", part, 100 * share);
  }
  return text;
}

Status Profile::Write() {
  record_["runs"] = RunRecords(runs_);
  record_["figures"] = {{"importance", ImportanceFigure(runs_)},
                        {"position", PositionFigure(runs_)},
                        {"overlap", OverlapFigure(runs_)},
                        {"tiers", TierFigure(runs_)},
                        {"cost", CostFigure(runs_)},
                        {"transfers", TransferFigure(transfers_, runs_)}};
  if (!transfers_skipped_.empty()) {
    record_["figures"]["transfers"]["skipped"] = transfers_skipped_;
  }
  const std::string& path = options_.profile.html_file;
  if (!path.empty()) {
    std::ofstream file(path, std::ios::binary);
    file << ProfilePage(record_);
    file.close();
    if (!file) return IoError(fmt::format("cannot write {}", path));
    if (!options_.quiet) fmt::print(stderr, "[report: {}]\n", path);
  }
  return WriteRecord(options_, record_, Text());
}

}  // namespace

ExitCode RunProfile(const CliOptions& options) {
  const Status status = Profile(options).Run();
  return status.ok() ? ExitCode::kOk : Fail(status);
}

}  // namespace ebb::cli

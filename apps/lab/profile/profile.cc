#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "apps/common/memory.h"
#include "apps/common/prompt.h"
#include "apps/common/report.h"
#include "apps/common/setup.h"
#include "apps/common/terminal/interrupt.h"
#include "apps/common/terminal/output.h"
#include "apps/common/terminal/progress.h"
#include "apps/lab/commands.h"
#include "apps/lab/lab_options.h"
#include "apps/lab/profile/figures.h"
#include "apps/lab/profile/prompts.h"
#include "apps/lab/profile/run.h"
#include "apps/lab/profile/transfers.h"
#include "apps/lab/profile/why.h"
#include "ebb/generate.h"
#include "src/base/text/size_text.h"

namespace ebb::cli {
namespace {

// Returns a share as a percentage; "-" if it was not measured (null).
std::string Percent(const Json& share) {
  return share.is_null() ? "-" : fmt::format("{:.1f} %", 100 * share.get<double>());
}

class Profile {
 public:
  explicit Profile(const CliOptions& options)
      : options_(options), cancel_(InstallInterruptHandler()) {}
  Status Run();

 private:
  Status Open();
  Status ProfilePrompt(size_t index, ProgressBar* bar);  // an error names the prompt's index
  Status MeasurePrompt(size_t index, ProgressBar* bar);
  Status Transfers();
  Status Write();
  [[nodiscard]] std::string Text() const;

  CliOptions options_;
  const std::atomic<bool>* const cancel_;
  std::shared_ptr<const Model> model_;
  std::vector<Turn> turns_;
  std::unique_ptr<Engine> engine_;
  std::vector<ProfiledRun> runs_;
  int groups_per_layer_ = 0;  // 0: one group spans all layers
  std::vector<Transfer> transfers_;
  std::string transfers_skipped_;  // why transfers were not measured; empty: they were
  Json record_;
};

ProgressBar::Display DisplayFor(const CliOptions& options) {
  return options.quiet ? ProgressBar::Display::kOff : ProgressBar::Display::kAuto;
}

// Checks that a prompt fits into the context, before hours of work. Errors: ContextFull.
Status CheckLength(const CliOptions& options, const Model& model, size_t index, size_t tokens) {
  const int context =
      options.session.context > 0 ? options.session.context : model.shape().trained_context;
  if (options.session.past_context != PastContext::kRefuse ||
      tokens <= static_cast<size_t>(context)) {
    return OkStatus();
  }
  return ContextFull(fmt::format("prompt {} has {} tokens: more than the context of {}", index + 1,
                                 tokens, context));
}

Status Profile::Run() {
  EBB_RETURN_IF_ERROR(Open());
  const MachineWatch watch;
  Status end;
  {
    const bool counts_tokens = options_.max_tokens > 0;
    const auto prompts = static_cast<int64_t>(turns_.size());
    ProgressBar bar("profiling", counts_tokens ? "tokens" : "prompts",
                    counts_tokens ? prompts * options_.max_tokens : prompts, DisplayFor(options_));
    for (size_t i = 0; i < turns_.size() && end.ok(); ++i) end = ProfilePrompt(i, &bar);
  }
  if (runs_.empty()) return end;
  // After an error or interruption, the profile of the prompts measured so far is still written.
  if (end.ok()) end = Transfers();
  if (!end.ok()) {
    record_["ended_early"] = end.Text();
    if (transfers_.empty()) transfers_skipped_ = "Not measured: the profile ended early.";
  }
  record_["others_share"] = watch.OthersShare();
  WarnOfOthers(watch.OthersShare());
  const Status written = Write();
  return end.ok() ? written : end;
}

Status Profile::ProfilePrompt(size_t index, ProgressBar* bar) {
  const Status status = MeasurePrompt(index, bar);
  if (status.ok() || status.code() == StatusCode::kCancelled || turns_.size() == 1) return status;
  return status.WithPrefix(fmt::format("prompt {}", index + 1));
}

Status Profile::Open() {
  EBB_ASSIGN_OR_RETURN(const std::vector<std::string> prompts, ReadProfilePrompts(options_));
  EBB_ASSIGN_OR_RETURN(model_, OpenModel(options_));
  size_t longest = 0;
  for (const std::string& prompt : prompts) {
    EBB_ASSIGN_OR_RETURN(Turn turn, PromptTurn(*model_, options_, prompt));
    EBB_RETURN_IF_ERROR(CheckLength(options_, *model_, turns_.size(), turn.tokens.size()));
    longest = std::max(longest, turn.tokens.size());
    turns_.push_back(std::move(turn));
  }
  EBB_RETURN_IF_ERROR(FitGenerationIntoMemory(*model_, static_cast<int>(longest), &options_));
  EBB_ASSIGN_OR_RETURN(engine_, Engine::Create(model_, options_.engine));
  return OkStatus();
}

Status Profile::MeasurePrompt(size_t index, ProgressBar* bar) {
  const Turn& turn = turns_[index];
  RunRecorder recorder;
  SessionOptions session_options = options_.session;
  recorder.Ask(&session_options);
  session_options.explained = options_.Of<ProfileInput>().why;
  EBB_ASSIGN_OR_RETURN(const auto session, engine_->OpenSession(session_options));
  recorder.Bind(*session);
  const ModelShape& shape = engine_->model().shape();
  if (!shape.kv_heads_by_layer.empty() && session->policy().granularity == Granularity::kHead) {
    return Unsupported(
        "a profile shows as many groups in each layer: not at granularity head where layers differ "
        "in their kv heads");
  }
  groups_per_layer_ = shape.NumGroups(session->policy().granularity) / shape.num_layers;
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
  EBB_RETURN_IF_ERROR(session->Prefill(turn.tokens, prefill).status);
  GenerateOptions generate = GenerateOptionsFor(options_, turn);
  generate.cancel = cancel_;
  const auto done = static_cast<int64_t>(index);
  int64_t tokens = 0;
  generate.on_token = [&](Token) {
    ++tokens;
    bar->Update(options_.max_tokens > 0 ? done * options_.max_tokens + tokens : done);
    recorder.OnToken();
  };
  ProfiledRun& run = recorder.run();
  run.prompt_tokens = static_cast<int>(turn.tokens.size());
  run.result = Generate(*session, *sampler, generate);
  if (run.result.finish_reason == FinishReason::kCancelled) return Cancelled("interrupted");
  if (run.result.finish_reason == FinishReason::kError) return run.result.error;
  recorder.Finish();
  const std::span<const Explanation> explanations = session->explanations();
  run.explanations.assign(explanations.begin(), explanations.end());
  const Status limit = run.result.error;  // the context or a cap ended the answer
  runs_.push_back(std::move(run));
  return limit;
}

Status Profile::Transfers() {
  std::vector<Tier> tiers;
  if (const auto& spec = engine_->options().tiers; spec.has_value()) {
    if (spec->t1 != T1Place::kNone) tiers.push_back(Tier::kT1);
    if (spec->t2_type.has_value()) tiers.push_back(Tier::kT2);
  }
  const int most = options_.Of<ProfileInput>().transfer_tokens;
  if (tiers.empty()) {
    transfers_skipped_ = "No tier below T0 was asked for (--t0, --t1, --t2): nothing can move.";
  } else if (most == 0) {
    transfers_skipped_ = "Not measured: --transfer-tokens 0.";
  }
  if (!transfers_skipped_.empty()) return OkStatus();
  const auto longest =
      std::ranges::max_element(runs_, {}, [](const auto& run) { return run.tokens.size(); });
  // Uses at most half of the context, because each measured move also appends a token.
  const int count = std::min(most, model_->shape().trained_context / 2) + kTransferStay;
  std::vector<Token> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(longest->tokens[i % longest->tokens.size()]);
  Result<std::vector<Transfer>> measured = MeasureTransfers(*engine_, tokens, tiers, cancel_);
  if (measured.ok()) {
    transfers_ = *std::move(measured);
  } else if (IsLimit(measured.status().code())) {
    transfers_skipped_ = "Not measured: " + measured.status().Text();
  } else {
    return measured.status();
  }
  return OkStatus();
}

// Returns the rows and the memory of each tier at the end of a run: "T0 4410 rows, 1.1 MiB; ...".
std::string TiersText(const ProfiledRun& run) {
  std::string text;
  for (const Tier tier : {Tier::kT0, Tier::kT1, Tier::kT2}) {
    const TierAccounting& of_tier = run.cache.tiers[static_cast<size_t>(tier)];
    if (of_tier.rows == 0 && tier != Tier::kT0) continue;
    text += fmt::format("{}{} {} rows, {}", text.empty() ? "" : "; ", TierName(tier), of_tier.rows,
                        SizeText(of_tier.page_bytes));
  }
  if (run.cache.rows_evicted == 0) return text;
  return text + fmt::format("; {} rows evicted", run.cache.rows_evicted);
}

std::string Profile::Text() const {
  const Json& figures = record_["figures"];
  const double step = figures["cost"]["mean_step_seconds"].get<double>();
  std::string text = fmt::format(
      "prompts                  {}, {} decode steps of {:.3g} ms\n"
      "top 20 % of the tokens   {} of all attention\n"
      "bottom half              {}\n"
      "adjacent steps           share {} of their important tokens\n"
      "a step's time           ",
      runs_.size(), figures["cost"]["steps"].get<int64_t>(), step * 1000,
      Percent(figures["importance"]["top_20_percent"]["mean"]),
      Percent(figures["importance"]["bottom_50_percent"]["mean"]),
      Percent(figures["overlap"]["mean"]));
  for (const auto& [part, seconds] : figures["cost"]["mean_seconds"].items()) {
    text += fmt::format(" {} {}", part, Percent(step > 0 ? seconds.get<double>() / step : 0));
  }
  for (size_t i = 0; i < runs_.size(); ++i) {
    const std::string of_prompt = runs_.size() > 1 ? fmt::format("prompt {}: ", i + 1) : "";
    text += fmt::format("\ntiers at the end         {}{}", of_prompt, TiersText(runs_[i]));
    const SelectionAccounting& selection = runs_[i].cache.selection;
    if (selection.rows_unread == 0) continue;
    text += fmt::format("\nselective reading        {}{}", of_prompt, SelectionText(selection));
  }
  if (options_.Of<ProfileInput>().why.has_value()) {
    for (const ProfiledRun& run : runs_) {
      text += "\n" + WhyText(run, *options_.Of<ProfileInput>().why, groups_per_layer_);
    }
  }
  return text;
}

Status Profile::Write() {
  record_["runs"] = RunRecords(runs_);
  if (options_.Of<ProfileInput>().why.has_value()) {
    for (size_t i = 0; i < runs_.size(); ++i) {
      record_["runs"][i]["why"] = WhyRecord(runs_[i], groups_per_layer_);
    }
  }
  record_["figures"] = {{"importance", ImportanceFigure(runs_)},
                        {"position", PositionFigure(runs_)},
                        {"overlap", OverlapFigure(runs_)},
                        {"top_half", TopHalfFigure(runs_)},
                        {"recurrence", RecurrenceFigure(runs_)},
                        {"retained", RetainedFigure(runs_, groups_per_layer_)},
                        {"tiers", TierFigure(runs_)},
                        {"cost", CostFigure(runs_)},
                        {"transfers", TransferFigure(transfers_, runs_)}};
  if (!transfers_skipped_.empty()) {
    record_["figures"]["transfers"]["skipped"] = transfers_skipped_;
  }
  return WriteRecord(options_, record_, Text());
}

}  // namespace

Status RunProfile(const CliOptions& options) { return Profile(options).Run(); }

}  // namespace ebb::cli

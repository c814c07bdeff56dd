#include "ebb/lab/fidelity.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "apps/common/memory.h"
#include "apps/common/report.h"
#include "apps/common/setup.h"
#include "apps/common/terminal/interrupt.h"
#include "apps/common/terminal/progress.h"
#include "apps/common/terminal/say.h"
#include "apps/lab/commands.h"
#include "apps/lab/fidelity/forgetting_report.h"
#include "apps/lab/lab_options.h"
#include "ebb/generate.h"
#include "ebb/lab/foresight.h"

namespace ebb::cli {
namespace {

using Windows = std::vector<std::vector<Token>>;

// kQuestions are the questions whose answers are the text without --text, one question per window.
constexpr std::array<std::string_view, 4> kQuestions = {
    "Explain step by step how the Moon causes the tides, and check each step with numbers.",
    "A farmer has 17 fields of different sizes. Think aloud about how to share them fairly.",
    "Tell the history of the sea trade between three invented cities, in many chapters.",
    "Describe how a mechanical clock works, part by part, and what can go wrong with each part."};

ProgressBar::Display DisplayFor(const CliOptions& options) {
  return options.quiet ? ProgressBar::Display::kOff : ProgressBar::Display::kAuto;
}

// Returns a question together with the full cache's greedy answer.
Result<std::vector<Token>> OwnText(std::string_view question, size_t num_tokens,
                                   const CliOptions& options, const std::atomic<bool>* cancel,
                                   Engine* engine) {
  const Model& model = engine->model();
  const ChatMessage message = {.role = "user", .content = std::string(question)};
  const auto chat = model.FormatChat({&message, 1}, Model::Thinking::kModelDefault);
  // If the model has no chat template, the question itself is the prompt.
  EBB_ASSIGN_OR_RETURN(std::vector<Token> tokens,
                       model.TokenizePrompt(chat.ok() ? *chat : ChatPrompt{.text = message.content},
                                            Model::AddBos::kAsModelSays));
  tokens.resize(std::min(tokens.size(), num_tokens));
  SessionOptions session_options;
  session_options.context = options.session.context;
  EBB_ASSIGN_OR_RETURN(const auto session, engine->OpenSession(session_options));
  SamplingOptions greedy;
  greedy.temperature = 0;
  EBB_ASSIGN_OR_RETURN(const auto sampler, Sampler::Create(model, greedy));
  PrefillOptions prefill;
  prefill.cancel = cancel;
  EBB_RETURN_IF_ERROR(session->Prefill(tokens, prefill).status);
  ProgressBar bar("writing the text", "tokens", static_cast<int64_t>(num_tokens),
                  DisplayFor(options));
  GenerateOptions generate;
  generate.max_tokens = static_cast<int>(num_tokens - tokens.size());
  generate.on_end = GenerateOptions::OnEnd::kIgnore;
  generate.cancel = cancel;
  generate.on_token = [&](Token token) {
    tokens.push_back(token);
    bar.Update(static_cast<int64_t>(tokens.size()));
  };
  const GenerateResult result = Generate(*session, *sampler, generate);
  if (result.finish_reason == FinishReason::kLength) return tokens;
  if (result.finish_reason == FinishReason::kCancelled) return Cancelled("interrupted");
  return result.error;
}

// Generates the windows if --text was not given. Omits a last window that would end within its
// prompt, as CutWindows() does.
Result<Windows> OwnWindows(const CliOptions& options, int prompt_tokens,
                           const std::atomic<bool>* cancel, Engine* engine) {
  const FidelityInput& o = options.Of<FidelityInput>();
  const size_t window_tokens = o.window_tokens;
  const size_t total = o.tokens > 0 ? static_cast<size_t>(o.tokens)
                                    : window_tokens * static_cast<size_t>(std::max(o.windows, 1));
  size_t windows = (total + window_tokens - 1) / window_tokens;
  if (o.windows > 0) windows = std::min<size_t>(windows, o.windows);
  if (windows > kQuestions.size()) {
    return InvalidArgument(
        fmt::format("the model's own text has at most {} windows of {} tokens; give a longer one "
                    "with --text",
                    kQuestions.size(), window_tokens));
  }
  Windows texts;
  for (size_t i = 0; i < windows; ++i) {
    const size_t num_tokens = std::min(window_tokens, total - i * window_tokens);
    if (num_tokens <= static_cast<size_t>(prompt_tokens)) break;
    EBB_ASSIGN_OR_RETURN(texts.emplace_back(),
                         OwnText(kQuestions[i], num_tokens, options, cancel, engine));
  }
  return texts;
}

Result<Windows> FileWindows(const CliOptions& options, int prompt_tokens, const Model& model) {
  const FidelityInput& o = options.Of<FidelityInput>();
  std::ifstream file(o.text_file, std::ios::binary);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  const std::string text = bytes.str();
  if (!file.is_open() || file.bad() || std::filesystem::is_directory(o.text_file)) {
    return InvalidArgument(fmt::format("cannot read {}", o.text_file));
  }
  // Reads special tokens as text, because a file that contains "<|im_start|>" writes about it and
  // begins no turn.
  EBB_ASSIGN_OR_RETURN(std::vector<Token> tokens,
                       model.Tokenize(text, Model::AddBos::kNo, Model::Specials::kAsText));
  if (o.tokens > 0) tokens.resize(std::min<size_t>(tokens.size(), o.tokens));
  EBB_ASSIGN_OR_RETURN(const std::vector<Token> prefix,
                       model.Tokenize("", Model::AddBos::kAsModelSays, Model::Specials::kAsText));
  Windows windows = CutWindows(tokens, prefix, o.window_tokens, prompt_tokens);
  if (o.windows > 0 && windows.size() > static_cast<size_t>(o.windows)) windows.resize(o.windows);
  return windows;
}

Json IntervalJson(const Estimate& estimate) {
  return Json::array({estimate.interval.low, estimate.interval.high});
}

std::string EstimateText(const Estimate& estimate) {
  return fmt::format("{:.5g} ({:.5g} - {:.5g})", estimate.value, estimate.interval.low,
                     estimate.interval.high);
}

Status Report(const CliOptions& options, const Engine& engine, const Session& setting,
              const FidelityReport& report) {
  const std::string& file = options.Of<FidelityInput>().text_file;
  const Json text = file.empty() ? Json() : Json(file);  // null: the model generated the text
  Json record = {{"mean_kl", report.mean_kl.value},
                 {"max_kl", report.max_kl},
                 {"max_logit_difference", report.max_logit_difference},
                 {"top1", report.top1.value},
                 {"tokens", report.tokens},
                 {"perplexity", report.perplexity.value},
                 {"perplexity_full", report.perplexity_full.value},
                 {"kv_bytes", std::llround(report.kv_bytes)},
                 {"policy_bytes", report.policy_bytes},
                 {"intervals",
                  {{"mean_kl", IntervalJson(report.mean_kl)},
                   {"top1", IntervalJson(report.top1)},
                   {"perplexity", IntervalJson(report.perplexity)},
                   {"perplexity_full", IntervalJson(report.perplexity_full)}}},
                 {"not_finite", report.not_finite},
                 {"windows", report.windows},
                 {"window_tokens", options.Of<FidelityInput>().window_tokens},
                 {"prompt_tokens", options.Of<FidelityInput>().prompt_tokens},
                 {"text", text}};
  if (report.forgetting.has_value()) record["forgetting"] = ToJson(*report.forgetting);
  AddEngineFields(options, engine, setting, &record);
  if (report.not_finite > 0) {
    Say("ebb: warning: {} of {} steps had logits or a KL that were not finite\n", report.not_finite,
        report.tokens);
  }
  return WriteRecord(
      options, record,
      fmt::format("{} against the full cache, {} tokens, intervals of 95 %\n"
                  "mean KL          {}\nmax KL           {:.5g}\nmax logit diff.  {:.5g}\ntop-1 "
                  "agreement  {}\n"
                  "perplexity       {}\n  of the full    {}",
                  setting.policy().name, report.tokens, EstimateText(report.mean_kl), report.max_kl,
                  report.max_logit_difference, EstimateText(report.top1),
                  EstimateText(report.perplexity), EstimateText(report.perplexity_full)) +
          (report.forgetting.has_value() ? ToText(*report.forgetting) : ""));
}

// Returns the options with the tiers that --memory chooses for one window. The full cache for
// comparison takes memory in addition.
Result<CliOptions> Fitted(const Model& model, int prompt_tokens, const CliOptions& options) {
  CliOptions fitted = options;
  fitted.session.context = options.Of<FidelityInput>().window_tokens;
  EBB_RETURN_IF_ERROR(FitIntoMemory(model, {.prompt_tokens = prompt_tokens}, &fitted));
  fitted.session.context = options.session.context;
  return fitted;
}

Status Run(const CliOptions& given) {
  ebb::FidelityOptions fidelity;
  fidelity.seed = given.seed;
  fidelity.prompt_tokens = given.Of<FidelityInput>().prompt_tokens;
  if (fidelity.prompt_tokens >= given.Of<FidelityInput>().window_tokens) {
    return InvalidArgument(
        fmt::format("--prompt-tokens: expected fewer than the {} of --window-tokens, found {}",
                    given.Of<FidelityInput>().window_tokens, fidelity.prompt_tokens));
  }
  fidelity.cancel = InstallInterruptHandler();
  EBB_ASSIGN_OR_RETURN(const auto model, OpenModel(given));
  EBB_ASSIGN_OR_RETURN(const CliOptions options, Fitted(*model, fidelity.prompt_tokens, given));
  fidelity.setting = options.session;
  if (options.Of<FidelityInput>().forgetting)
    fidelity.forgetting = FidelityOptions::Forgetting::kMeasure;
  // Opens the session before the text is generated, so that a wrong policy fails at once. A policy
  // that reads future attention gets an empty record here.
  const ReplayedAttention not_yet;
  CliOptions to_open = options;
  to_open.session.foresight = &not_yet;
  EBB_ASSIGN_OR_RETURN(const Setup setup, OpenSetup(model, to_open));
  if (options.Of<FidelityInput>().window_tokens > setup.session->context()) {
    return InvalidArgument(fmt::format(
        "a window of {} tokens does not fit the context of {}; choose less with --window-tokens",
        options.Of<FidelityInput>().window_tokens, setup.session->context()));
  }
  Windows windows;
  if (options.Of<FidelityInput>().text_file.empty()) {
    EBB_ASSIGN_OR_RETURN(
        windows, OwnWindows(options, fidelity.prompt_tokens, fidelity.cancel, setup.engine.get()));
  } else {
    EBB_ASSIGN_OR_RETURN(windows, FileWindows(options, fidelity.prompt_tokens, *setup.model));
  }
  int64_t steps = 0;
  for (const auto& window : windows) {
    steps += static_cast<int64_t>(window.size()) - fidelity.prompt_tokens;
  }
  FidelityReport report;
  {
    ProgressBar bar("comparing", "tokens", steps, DisplayFor(options));
    fidelity.progress = [&](int64_t done) { bar.Update(done); };
    EBB_ASSIGN_OR_RETURN(report, MeasureFidelity(*setup.engine, windows, fidelity));
  }
  return Report(options, *setup.engine, *setup.session, report);
}

}  // namespace

Status RunFidelity(const CliOptions& options) { return Run(options); }

}  // namespace ebb::cli

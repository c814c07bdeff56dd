#include "ebb/lab/importance.h"
#include "ebb/lab/run_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "apps/common/report.h"
#include "apps/common/setup.h"
#include "apps/common/terminal/interrupt.h"
#include "apps/common/terminal/progress.h"
#include "apps/lab/commands.h"
#include "apps/lab/eval/task.h"
#include "apps/lab/lab_options.h"
#include "ebb/lab/statistics.h"

namespace ebb::cli {
namespace {

constexpr std::string_view kLabelsFile = "labels.jsonl";
constexpr std::string_view kImportanceFile = "importance.json";

// Returns the number, or null if it is not finite, because JSON has no NaN.
Json Number(double value) { return std::isfinite(value) ? Json(value) : Json(); }

Json Numbers(const std::vector<double>& values) {
  Json list = Json::array();
  for (const double value : values) list.push_back(Number(value));
  return list;
}

Json LabelLine(const ImportanceResult& result, const EvalQuestion& problem) {
  Json line = {{"problem", result.problem},
               {"id", problem.id},
               {"outcome", LabelOutcomeName(result.label.outcome)}};
  if (result.label.outcome != LabelOutcome::kLabelled) return line;
  const ImportanceLabels& labels = result.label.labels;
  std::string important;
  for (const uint8_t is_important : labels.important) important += is_important != 0 ? '1' : '0';
  line["thought_begin"] = labels.thought_begin;
  line["boundary"] = labels.boundary;
  line["windows"] = labels.num_windows;
  line["important_windows"] = labels.num_important_windows;
  line["tokens"] = labels.tokens;
  line["important"] = important;
  return line;
}

// Returns whether a signal has this smoothing, the last word of its name ("hidden_3 rolling").
bool IsOf(const SignalCorrelation& c, Smoothing smoothing) {
  return c.name.ends_with(fmt::format(" {}", SmoothingName(smoothing)));
}

// Returns, by layer, how importance correlates with the change of the hidden state, smoothed over
// the last 64 tokens.
std::vector<double> HiddenCorrelations(const std::vector<SignalCorrelation>& all) {
  std::vector<double> by_layer;
  for (const SignalCorrelation& c : all) {
    if (c.name.starts_with("hidden_") && IsOf(c, Smoothing::kRolling)) by_layer.push_back(c.within);
  }
  return by_layer;
}

struct Bands {
  std::optional<LayerBand> a, b;
};
Bands FindBands(const std::vector<SignalCorrelation>& all) {
  std::vector<double> by_layer = HiddenCorrelations(all);
  Bands bands = {.a = BestBand(by_layer), .b = std::nullopt};
  for (double& correlation : by_layer) correlation = -correlation;
  bands.b = BestBand(by_layer);
  return bands;
}

Json BandJson(const std::optional<LayerBand>& band) {
  return band ? Json{band->first, band->last} : Json();
}

// Returns a policy with these bands, such as "band_adaptive:a_first=1,a_last=2,b_first=3,b_last=3";
// empty if a band is missing.
std::string PolicyOf(const Bands& bands) {
  if (!bands.a || !bands.b) return "";
  return fmt::format("band_adaptive:a_first={},a_last={},b_first={},b_last={}", bands.a->first,
                     bands.a->last, bands.b->first, bands.b->last);
}

// Returns how many thoughts have both important and unimportant tokens, without which no
// correlation is defined.
int64_t ToldThoughts(const std::vector<SignalCorrelation>& all) {
  int64_t most = 0;
  for (const SignalCorrelation& c : all) most = std::max(most, c.thoughts);
  return most;
}

class Importance {
 public:
  explicit Importance(const CliOptions& options)
      : options_(options), eval_(options.Of<EvalInput>()) {}

  Status Run() {
    if (eval_.out.empty()) return InvalidArgument("--out FOLDER: where are the labels to go?");
    ImportanceOptions study;
    study.occlusion = {.window = options_.Of<ImportanceInput>().window,
                       .stride = options_.Of<ImportanceInput>().stride,
                       .answer_tokens = options_.Of<ImportanceInput>().answer_tokens,
                       .boundary = options_.Of<ImportanceInput>().boundary,
                       .prompt_style = eval_.prompt_style,
                       .cancel = InstallInterruptHandler()};
    study.engine = options_.engine;
    study.workers = NumWorkers(eval_);
    EBB_ASSIGN_OR_RETURN(EvalQuestions task, ReadEvalQuestions(TaskRequest(options_)));
    problems_ = std::move(task.questions);
    EBB_ASSIGN_OR_RETURN(model_, OpenTaskModel(options_));
    EBB_RETURN_IF_ERROR(OpenFile());
    {
      ProgressBar bar("occluding", "problems", static_cast<int64_t>(problems_.size()),
                      options_.quiet ? ProgressBar::Display::kOff : ProgressBar::Display::kAuto);
      study.on_result = [&](const ImportanceResult& result) -> Status {
        bar.Update(static_cast<int64_t>(result.problem) + 1);
        return Keep(result);
      };
      EBB_RETURN_IF_ERROR(StudyImportance(model_, problems_, study));
    }
    const Json record = Record();
    EBB_RETURN_IF_ERROR(
        WriteFile(fmt::format("{}/{}", eval_.out, kImportanceFile), record.dump(1) + "\n"));
    return WriteRecord(options_, record, Text());
  }

 private:
  // Creates the file of labels. Errors: InvalidArgument if it exists, so that labels of two runs
  // are never mixed.
  Status OpenFile() {
    std::error_code error;
    std::filesystem::create_directories(eval_.out, error);
    if (error) return IoError(fmt::format("cannot make {}: {}", eval_.out, error.message()));
    const std::string path = fmt::format("{}/{}", eval_.out, kLabelsFile);
    if (std::filesystem::exists(path)) {
      return InvalidArgument(
          fmt::format("{} holds labels already; choose another --out", eval_.out));
    }
    EBB_ASSIGN_OR_RETURN(labels_, LineFile::Open(path));
    return OkStatus();
  }

  Status Keep(const ImportanceResult& result) {
    ++outcomes_[static_cast<size_t>(result.label.outcome)];
    if (result.label.outcome == LabelOutcome::kLabelled) {
      study_.Add(result.label.labels, result.signals);
    }
    return labels_->Append(LabelLine(result, problems_[result.problem]));
  }

  [[nodiscard]] Json Record() const {
    const std::vector<SignalCorrelation> all = study_.Correlations();
    const Bands bands = FindBands(all);
    Json record = {{"task", eval_.task},
                   {"model", model_->description()},
                   {"seed", options_.seed},
                   {"problems", problems_.size()}};
    for (size_t i = 0; i < outcomes_.size(); ++i) {
      record[LabelOutcomeName(static_cast<LabelOutcome>(i))] = outcomes_[i];
    }
    record["occlude"] = options_.Of<ImportanceInput>().window;
    record["stride"] = options_.Of<ImportanceInput>().stride;
    record["boundary"] = options_.Of<ImportanceInput>().boundary;
    record["important_share"] = study_.ImportantShare();
    record["band_a"] = BandJson(bands.a);
    record["band_b"] = BandJson(bands.b);
    record["important_by_place"] = Numbers(study_.ImportanceTrend());
    const auto trends = study_.Trends();
    record["signals"] = Json::array();
    for (size_t i = 0; i < all.size(); ++i) {
      record["signals"].push_back({{"signal", all[i].name},
                                   {"within", Number(all[i].within)},
                                   {"half_width", Number(all[i].half_width)},
                                   {"thoughts", all[i].thoughts},
                                   {"pooled", Number(all[i].pooled)},
                                   {"tokens", all[i].tokens},
                                   {"trend", Number(all[i].trend)},
                                   {"by_place", Numbers(trends[i])}});
    }
    return record;
  }

  [[nodiscard]] std::string Text() const {
    std::string text = fmt::format(
        "{} of {} thoughts labelled ({} wrong, {} without a thought, {} not repeated); {:.1f} % of "
        "their tokens matter\n",
        outcomes_[0], problems_.size(), outcomes_[1], outcomes_[2], outcomes_[3],
        study_.ImportantShare() * 100);
    const std::vector<SignalCorrelation> all = study_.Correlations();
    if (all.empty()) return text;
    text += fmt::format(
        "rank correlation with importance; within: mean over the {} thoughts in which not all is "
        "alike, with its 95 %\n"
        "{:<34}{:>8}{:>8}{:>8}{:>8}   trend: with the position\n",
        ToldThoughts(all), "", "within", "+-", "pooled", "trend");
    for (const SignalCorrelation& c : all) {
      text += fmt::format("{:<34}{:>8.3f}{:>8.3f}{:>8.3f}{:>8.3f}\n", c.name, c.within,
                          c.half_width, c.pooled, c.trend);
    }
    const std::string policy = PolicyOf(FindBands(all));
    if (!policy.empty()) text += fmt::format("bands of layers, for --policy {}\n", policy);
    return text;
  }

  const CliOptions& options_;
  const EvalInput& eval_;
  std::vector<EvalQuestion> problems_;
  std::shared_ptr<const Model> model_;
  std::unique_ptr<LineFile> labels_;
  ImportanceStudy study_;
  std::array<int64_t, 4> outcomes_ = {};
};

}  // namespace

Status RunImportance(const CliOptions& options) { return Importance(options).Run(); }

}  // namespace ebb::cli

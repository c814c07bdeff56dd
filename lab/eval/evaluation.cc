#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "ebb/lab/eval.h"
#include "lab/eval/answer_batch.h"
#include "lab/eval/answering.h"
#include "lab/eval/in_order.h"

namespace ebb {
namespace {

constexpr int kLoopRepeats = 3;
constexpr int kMinLoopTokens = 192;

struct Unit {
  size_t setting = 0;
  size_t problem = 0;
};

Answering::Task TaskOf(Unit unit, std::span<const EvalQuestion> problems,
                       std::span<const EvalSetting> settings) {
  return {.setting = unit.setting,
          .problem = unit.problem,
          .of_setting = &settings[unit.setting],
          .question = &problems[unit.problem]};
}

class Units {
 public:
  Units(size_t num_problems, size_t shard, size_t num_shards)
      : shard_(shard),
        num_shards_(num_shards),
        per_setting_((num_problems + num_shards - 1 - shard) / num_shards) {}

  [[nodiscard]] Unit At(size_t index) const {
    return {index / per_setting_, index % per_setting_ * num_shards_ + shard_};
  }
  [[nodiscard]] size_t per_setting() const { return per_setting_; }

 private:
  size_t shard_;
  size_t num_shards_;
  size_t per_setting_;
};

class Worker {
 public:
  Worker(std::shared_ptr<const Model> model, std::span<const EvalQuestion> problems,
         std::span<const EvalSetting> settings, const EvaluationOptions& options)
      : model_(std::move(model)), problems_(problems), settings_(settings), options_(options) {}

  // Answers one unit. Returns an error if no session can be opened with the setting, because then
  // no problem can be answered; a later failure becomes part of the answer.
  Result<EvalAnswer> Answer(Unit unit) {
    EBB_RETURN_IF_ERROR(OpenEngine(unit.setting));
    EBB_ASSIGN_OR_RETURN(
        const auto answering,
        Answering::Begin(engine_.get(), TaskOf(unit, problems_, settings_), options_));
    while (const std::optional<Token> token = answering->Next()) {
      const auto begin = std::chrono::steady_clock::now();
      const StepOutcome outcome =
          answering->session().Decode(*token, answering->Guesses(), answering->most_guesses());
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
      answering->Appended(outcome, took.count());
    }
    return answering->End();
  }

 private:
  // Opens the setting's engine unless it is open already: the units of a setting are consecutive.
  Status OpenEngine(size_t setting) {
    if (engine_ != nullptr && engine_setting_ == setting) return OkStatus();
    engine_.reset();
    EngineOptions options = settings_[setting].engine;
    options.threads = 1;
    EBB_ASSIGN_OR_RETURN(engine_, Engine::Create(model_, options));
    engine_setting_ = setting;
    return OkStatus();
  }

  std::shared_ptr<const Model> model_;
  std::span<const EvalQuestion> problems_;
  std::span<const EvalSetting> settings_;
  const EvaluationOptions& options_;
  std::unique_ptr<Engine> engine_;  // engine of setting engine_setting_
  size_t engine_setting_ = 0;
};

// Answers all settings in batches, one after the other. If the next setting can use the same
// engine, it continues in the same batch: the last answers of a setting are long, and the free
// places of its batch would step for nothing.
Status AnswerInBatches(const std::shared_ptr<const Model>& model,
                       std::span<const EvalQuestion> problems,
                       std::span<const EvalSetting> settings, const EvaluationOptions& options,
                       const Units& units, size_t num_units, InOrder<EvalAnswer>* answers) {
  for (const EvalSetting& setting : settings) {
    EBB_RETURN_IF_ERROR(CheckBatch(setting, options.batch));
  }
  size_t next = options.first_unit;
  while (next < num_units) {
    const EvalSetting& first = settings[units.At(next).setting];
    EBB_ASSIGN_OR_RETURN(const auto batch,
                         AnswerBatch::Create(model, first, options.batch, options.workers));
    const auto is_here = [&] {
      return next < num_units && ShareAnEngine(first, settings[units.At(next).setting]);
    };
    while (!answers->stopped() && (is_here() || !batch->IsEmpty())) {
      while (is_here() && batch->HasPlace() && answers->IsTurn(next)) {
        EBB_RETURN_IF_ERROR(
            batch->Begin(next, TaskOf(units.At(next), problems, settings), options));
        ++next;
      }
      EBB_RETURN_IF_ERROR(batch->Step(
          [&](size_t unit, EvalAnswer answer) { answers->Put(unit, std::move(answer)); }));
    }
    if (answers->stopped()) break;
  }
  return OkStatus();
}

}  // namespace

bool EndsInLoop(std::span<const Token> tokens, int longest_loop) {
  const int count = static_cast<int>(tokens.size());
  for (int period = 1; period <= longest_loop; ++period) {
    const int length = std::max(kLoopRepeats * period, kMinLoopTokens);
    if (length > count) return false;
    const auto tail = tokens.last(static_cast<size_t>(length));
    if (std::equal(tail.begin() + period, tail.end(), tail.begin())) return true;
  }
  return false;
}

size_t NumUnits(size_t num_settings, size_t num_problems, size_t shard, size_t num_shards) {
  return num_settings * Units(num_problems, shard, num_shards).per_setting();
}

Status RunEvaluation(std::shared_ptr<const Model> model, std::span<const EvalQuestion> problems,
                     std::span<const EvalSetting> settings, const EvaluationOptions& options) {
  const Units units(problems.size(), options.shard, options.num_shards);
  const size_t num_units =
      NumUnits(settings.size(), problems.size(), options.shard, options.num_shards);
  // Each place of a batch may complete several answers while the batch's longest answer is written.
  const size_t most_ahead = std::max(kMostAhead, 4 * static_cast<size_t>(options.batch));
  InOrder<EvalAnswer> answers(options.first_unit, most_ahead, options.on_answer);
  if (options.batch != 0) {
    const Status status =
        AnswerInBatches(model, problems, settings, options, units, num_units, &answers);
    if (!status.ok()) answers.Stop(status);
    return answers.status();
  }
  std::atomic<size_t> next_unit = options.first_unit;
  const auto work = [&] {
    Worker worker(model, problems, settings, options);
    Status status;
    while (status.ok() && !answers.stopped()) {
      const size_t unit = next_unit.fetch_add(1);
      if (unit >= num_units) return;
      answers.WaitForTurn(unit);
      if (answers.stopped()) return;
      Result<EvalAnswer> answer = worker.Answer(units.At(unit));
      status = answer.status();
      if (status.ok()) answers.Put(unit, *std::move(answer));
    }
    if (!status.ok()) answers.Stop(status);
  };
  {
    std::vector<std::jthread> workers;
    for (int i = 0; i < options.workers; ++i) workers.emplace_back(work);
  }
  return answers.status();
}

}  // namespace ebb

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "ebb/eval.h"
#include "src/eval/in_order.h"
#include "src/eval/question_prompt.h"

namespace ebb {
namespace {

constexpr int kLoopRepeats = 3;
constexpr int kMinLoopTokens = 192;
constexpr int kTokensBetweenLoopChecks = 32;

struct Unit {
  size_t setting = 0;
  size_t problem = 0;
};

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

// Follows one answer: what it reads, what it takes, whether it runs in circles.
class Watch {
 public:
  Watch(const ModelShape& shape, const Session& session, int longest_loop,
        const std::atomic<bool>* cancel)
      : session_(session), longest_loop_(longest_loop), cancel_(cancel) {
    heads_ = static_cast<double>(shape.NumStreams());
    // The last chunk of the prompt was there as a whole before any of it went.
    const int64_t rows = NotePeak();
    peak_rows_ = std::max(peak_rows_, rows + session.last_step().rows_evicted);
  }

  void OnToken(Token token) {
    tokens_.push_back(token);
    if (tokens_.size() > 1) CountStep();
    const bool is_due = tokens_.size() % kTokensBetweenLoopChecks == 0;
    looping_ = looping_ || (is_due && EndsInLoop(tokens_, longest_loop_));
    if (looping_ || (cancel_ != nullptr && cancel_->load(std::memory_order_relaxed))) stop = true;
  }

  // After the last step, which no token may have followed.
  void Finish(int decode_steps, EvalAnswer* answer) {
    if (decode_steps > counted_steps_) CountStep();
    answer->peak_kv_bytes = peak_bytes_;
    answer->peak_tokens = static_cast<double>(peak_rows_) / heads_;
    const LosslessReport* const lossless = session_.lossless_report();
    answer->kv_reads =
        static_cast<double>(lossless == nullptr ? rows_read_ : lossless->rows_read) / heads_;
    answer->rows_evicted = session_.accounting().rows_evicted;
    answer->decode_steps = decode_steps;
    if (lossless != nullptr) answer->lossless = *lossless;
  }

  [[nodiscard]] bool looping() const { return looping_; }

  std::atomic<bool> stop = false;

 private:
  int64_t NotePeak() {
    const CacheAccounting accounting = session_.accounting();
    int64_t rows = accounting.newest.rows;
    size_t bytes = accounting.newest.page_bytes;
    for (const TierAccounting& tier : accounting.tiers) {
      rows += tier.rows;
      bytes += tier.page_bytes;
    }
    peak_rows_ = std::max(peak_rows_, rows);
    peak_bytes_ = std::max(peak_bytes_, bytes);
    return rows;
  }

  void CountStep() {
    ++counted_steps_;
    const int64_t alive_after = NotePeak();
    const StepReport& step = session_.last_step();
    // A token that was verified ahead takes no step, and leaves the last one's report.
    const LosslessReport* const lossless = session_.lossless_report();
    const bool took_step = lossless == nullptr || lossless->verify_steps != verify_steps_;
    if (lossless != nullptr) verify_steps_ = lossless->verify_steps;
    const int64_t visible = alive_after + (took_step ? step.rows_evicted : 0);
    rows_read_ += visible - step.rows_unread;
    peak_rows_ = std::max(peak_rows_, visible);
  }

  const Session& session_;
  int longest_loop_;
  const std::atomic<bool>* cancel_;
  double heads_ = 1;
  std::vector<Token> tokens_;
  int counted_steps_ = 0;
  int64_t verify_steps_ = 0;  // so far, of a lossless session
  bool looping_ = false;
  size_t peak_bytes_ = 0;
  int64_t peak_rows_ = 0;
  int64_t rows_read_ = 0;
};

class Worker {
 public:
  Worker(std::shared_ptr<const Model> model, std::span<const EvalQuestion> problems,
         std::span<const EvalSetting> settings, const EvaluationOptions& options)
      : model_(std::move(model)), problems_(problems), settings_(settings), options_(options) {}

  // A setting that cannot be opened is wrong for every problem: an error. What fails later is an
  // answer.
  Result<EvalAnswer> Answer(Unit unit) {
    const auto begin = std::chrono::steady_clock::now();
    EvalAnswer answer = {.setting = unit.setting, .problem = unit.problem};
    const EvalQuestion& problem = problems_[unit.problem];
    const EvalSetting& setting = settings_[unit.setting];
    EBB_RETURN_IF_ERROR(OpenEngine(unit.setting));
    EBB_ASSIGN_OR_RETURN(const ChatPrompt prompt,
                         PromptFor(*model_, problem, options_.prompt_style));
    EBB_ASSIGN_OR_RETURN(
        const std::vector<Token> tokens,
        model_->Tokenize(prompt.text, Model::AddBos::kAsModelSays, Model::Specials::kParse));
    SessionOptions session_options = setting.session;
    session_options.policy.seed = setting.seed;
    session_options.policy.most_tokens = static_cast<int>(tokens.size()) + problem.max_tokens;
    EBB_ASSIGN_OR_RETURN(const auto session, engine_->OpenSession(session_options));
    SamplingOptions sampling = options_.sampling;
    sampling.seed = setting.seed;
    EBB_ASSIGN_OR_RETURN(const auto sampler, Sampler::Create(*model_, sampling));
    answer.prompt_tokens = static_cast<int>(tokens.size());
    PrefillOptions prefill;
    prefill.cancel = options_.cancel;
    const Status read = session->Prefill(tokens, prefill);
    if (read.code() == StatusCode::kCancelled) return read;
    if (read.ok()) {
      EBB_RETURN_IF_ERROR(Write(problem, prompt, session.get(), sampler.get(), &answer));
    } else {
      answer.finish_reason = FinishReasonName(FinishReason::kError);
      answer.error = read.message();
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    answer.seconds = took.count();
    return answer;
  }

 private:
  // Units of one setting follow each other: engines are made once a setting.
  Status OpenEngine(size_t setting) {
    if (engine_ != nullptr && engine_setting_ == setting) return OkStatus();
    engine_.reset();
    EngineOptions options = settings_[setting].engine;
    options.threads = 1;
    EBB_ASSIGN_OR_RETURN(engine_, Engine::Create(model_, options));
    engine_setting_ = setting;
    return OkStatus();
  }

  Status Write(const EvalQuestion& problem, const ChatPrompt& prompt, Session* session,
               Sampler* sampler, EvalAnswer* answer) {
    Watch watch(model_->shape(), *session, options_.longest_loop, options_.cancel);
    GenerateOptions generate;
    generate.max_tokens = problem.max_tokens;
    generate.stops = prompt.stops;
    generate.thinking_start = prompt.thinking_start;
    generate.thinking_end = prompt.thinking_end;
    generate.opens_in_thinking = prompt.opens_in_thinking;
    generate.cancel = &watch.stop;
    std::string after_thought;
    generate.on_text = [&](std::string_view text, TextPart part) {
      if (part == TextPart::kAnswer) after_thought += text;
      return true;
    };
    generate.on_token = [&](Token token) { watch.OnToken(token); };
    GenerateResult result = Generate(*session, *sampler, generate);
    const bool cancelled =
        options_.cancel != nullptr && options_.cancel->load(std::memory_order_relaxed);
    if (cancelled) return Cancelled("interrupted");
    watch.Finish(result.decode_steps, answer);
    answer->generated_tokens = result.generated_tokens;
    answer->finish_reason = watch.looping() ? kLoopReason : FinishReasonName(result.finish_reason);
    if (!watch.looping()) answer->error = result.error.message();
    answer->text = std::move(result.text);
    answer->judgement = problem.judge(answer->text, after_thought);
    return OkStatus();
  }

  std::shared_ptr<const Model> model_;
  std::span<const EvalQuestion> problems_;
  std::span<const EvalSetting> settings_;
  const EvaluationOptions& options_;
  std::unique_ptr<Engine> engine_;  // of engine_setting_
  size_t engine_setting_ = 0;
};

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
  InOrder<EvalAnswer> answers(options.first_unit, options.on_answer);
  std::atomic<size_t> next_unit = options.first_unit;
  const auto work = [&] {
    Worker worker(model, problems, settings, options);
    Status status;
    while (status.ok() && !answers.stopped()) {
      const size_t unit = next_unit.fetch_add(1);
      if (unit >= num_units) return;
      answers.WaitForTurn(unit);
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

#include "lab/eval/answering.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "lab/eval/question_prompt.h"

namespace ebb {
namespace {

constexpr int kTokensBetweenLoopChecks = 32;

bool IsSet(const std::atomic<bool>* flag) {
  return flag != nullptr && flag->load(std::memory_order_relaxed);
}

}  // namespace

AnswerWatch::AnswerWatch(const ModelShape& shape, const Session& session, int longest_loop,
                         const std::atomic<bool>* cancel)
    : session_(session), longest_loop_(longest_loop), cancel_(cancel) {
  heads_ = static_cast<double>(shape.NumStreams());
  // Includes the rows that the last step evicted: the prompt's last chunk was in the cache as a
  // whole before the policy decided.
  const int64_t rows = NotePeak();
  peak_rows_ = std::max(peak_rows_, rows + session.last_step().rows_evicted);
}

void AnswerWatch::OnToken(Token token) {
  tokens_.push_back(token);
  if (tokens_.size() > 1) CountStep();
  const bool is_due = tokens_.size() % kTokensBetweenLoopChecks == 0;
  looping_ = looping_ || (is_due && EndsInLoop(tokens_, longest_loop_));
  if (looping_ || IsSet(cancel_)) stop = true;
}

void AnswerWatch::Finish(int decode_steps, EvalAnswer* answer) {
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

int64_t AnswerWatch::NotePeak() {
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

void AnswerWatch::CountStep() {
  ++counted_steps_;
  const int64_t alive_after = NotePeak();
  const StepReport& step = session_.last_step();
  // A token that was verified ahead takes no step, so that the session still has the report of the
  // step before.
  const LosslessReport* const lossless = session_.lossless_report();
  const bool took_step = lossless == nullptr || lossless->verify_steps != verify_steps_;
  if (lossless != nullptr) verify_steps_ = lossless->verify_steps;
  const int64_t visible = alive_after + (took_step ? step.rows_evicted : 0);
  rows_read_ += visible - step.rows_unread;
  peak_rows_ = std::max(peak_rows_, visible);
}

Result<std::unique_ptr<Answering>> Answering::Begin(Engine* engine, const Task& task,
                                                    const EvaluationOptions& options) {
  std::unique_ptr<Answering> answering(new Answering(task, options));
  const auto begin = std::chrono::steady_clock::now();
  EBB_RETURN_IF_ERROR(answering->Open(engine));
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  answering->answer_.seconds = took.count();
  return answering;
}

Status Answering::Open(Engine* engine) {
  const Model& model = engine->model();
  answer_.setting = task_.setting;
  answer_.problem = task_.problem;
  EBB_ASSIGN_OR_RETURN(const ChatPrompt prompt,
                       PromptFor(model, *task_.question, options_.prompt_style));
  EBB_ASSIGN_OR_RETURN(const std::vector<Token> tokens,
                       model.TokenizePrompt(prompt, Model::AddBos::kAsModelSays));
  SessionOptions session_options = task_.of_setting->session;
  session_options.policy.seed = task_.of_setting->seed;
  session_options.policy.most_tokens = static_cast<int>(tokens.size()) + task_.question->max_tokens;
  EBB_ASSIGN_OR_RETURN(session_, engine->OpenSession(session_options));
  SamplingOptions sampling = options_.sampling;
  sampling.seed = task_.of_setting->seed;
  EBB_ASSIGN_OR_RETURN(sampler_, Sampler::Create(model, sampling));
  answer_.prompt_tokens = static_cast<int>(tokens.size());
  PrefillOptions prefill;
  prefill.cancel = options_.cancel;
  const Status read = session_->Prefill(tokens, prefill).status;
  if (read.code() == StatusCode::kCancelled) return read;
  if (read.ok()) {
    BeginWriting(model, prompt);
  } else {
    answer_.finish_reason = FinishReasonName(FinishReason::kError);
    answer_.error = read.Text();
  }
  return OkStatus();
}

void Answering::BeginWriting(const Model& model, const ChatPrompt& prompt) {
  watch_ = std::make_unique<AnswerWatch>(model.shape(), *session_, options_.longest_loop,
                                         options_.cancel);
  GenerateOptions generate;
  generate.max_tokens = task_.question->max_tokens;
  generate.stops = prompt.stops;
  SetTags(prompt, &generate);
  generate.cancel = &watch_->stop;
  generate.on_text = [this](std::string_view text, TextPart part) {
    if (part == TextPart::kAnswer) after_thought_ += text;
    return true;
  };
  generate.on_token = [this](Token token) { watch_->OnToken(token); };
  generation_ = std::make_unique<Generation>(session_.get(), sampler_.get(), std::move(generate));
}

std::optional<Token> Answering::Next() {
  return generation_ == nullptr ? std::nullopt : generation_->Next();
}

void Answering::Appended(const StepOutcome& outcome, double seconds) {
  answer_.seconds += seconds;
  generation_->Appended(outcome, seconds);
}

Result<EvalAnswer> Answering::End() {
  if (generation_ == nullptr) return std::move(answer_);
  GenerateResult result = generation_->End();
  if (IsSet(options_.cancel)) return Cancelled("interrupted");
  watch_->Finish(result.decode_steps, &answer_);
  answer_.generated_tokens = result.generated_tokens;
  answer_.finish_reason = watch_->looping() ? kLoopReason : FinishReasonName(result.finish_reason);
  if (!watch_->looping()) answer_.error = result.error.Text();
  answer_.text = std::move(result.text);
  answer_.judgement = task_.question->judge(answer_.text, after_thought_);
  return std::move(answer_);
}

}  // namespace ebb

#include "lab/eval/answer_batch.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <tuple>
#include <utility>

namespace ebb {

Status CheckBatch(const EvalSetting& setting, int width) {
  if (width <= 0 || width % 4 != 0) {
    return InvalidArgument("a batch of " + std::to_string(width) +
                           " problems: expected a multiple of 4");
  }
  if (setting.session.lossless.has_value()) {
    return InvalidArgument(
        "lossless settings are not answered in batches, where nothing is drafted");
  }
  const std::optional<EngineTiers>& tiers = setting.engine.tiers;
  const bool has_caps = setting.engine.kv_cap_bytes > 0 ||
                        (tiers.has_value() && (tiers->t0_cap_bytes > 0 || tiers->t1_cap_bytes > 0));
  if (has_caps) {
    return InvalidArgument(
        "caps in bytes hold for all problems of a batch, whose answers would depend on each other");
  }
  return OkStatus();
}

bool ShareAnEngine(const EvalSetting& a, const EvalSetting& b) {
  const auto of_engine = [](const EngineOptions& o) {
    return std::tie(o.kv_type, o.kv_cap_bytes, o.prefill_chunk, o.attention, o.max_stall_seconds,
                    o.policies, o.device.kind, o.device.name, o.device.attention,
                    o.device.memory_bytes, o.t1_mode, o.allow_inexact, o.rates_file, o.tiers);
  };
  return of_engine(a.engine) == of_engine(b.engine);
}

Result<std::unique_ptr<AnswerBatch>> AnswerBatch::Create(std::shared_ptr<const Model> model,
                                                         const EvalSetting& setting, int width,
                                                         int threads) {
  std::unique_ptr<AnswerBatch> batch(new AnswerBatch);
  EngineOptions options = setting.engine;
  options.threads = threads;
  EBB_ASSIGN_OR_RETURN(batch->engine_, Engine::Create(std::move(model), options));
  batch->places_.resize(static_cast<size_t>(width));
  for (Place& place : batch->places_) {
    EBB_ASSIGN_OR_RETURN(place.stand_in, batch->engine_->OpenSession({}));
    const Token token = 0;
    EBB_RETURN_IF_ERROR(place.stand_in->Prefill({&token, 1}).status);
  }
  return batch;
}

AnswerBatch::~AnswerBatch() {
  // Destroys the sessions before their engine.
  places_.clear();
}

bool AnswerBatch::HasPlace() const {
  return std::ranges::any_of(places_, [](const Place& p) { return p.answering == nullptr; });
}

bool AnswerBatch::IsEmpty() const {
  return std::ranges::all_of(places_, [](const Place& p) { return p.answering == nullptr; });
}

Status AnswerBatch::Begin(size_t unit, const Answering::Task& task,
                          const EvaluationOptions& options) {
  const auto place =
      std::ranges::find_if(places_, [](const Place& p) { return p.answering == nullptr; });
  EBB_ASSIGN_OR_RETURN(place->answering, Answering::Begin(engine_.get(), task, options));
  place->unit = unit;
  return OkStatus();
}

Status AnswerBatch::Step(const std::function<void(size_t unit, EvalAnswer answer)>& done) {
  EBB_RETURN_IF_ERROR(ChooseTokens(done));
  return IsEmpty() ? OkStatus() : StepOnce();
}

Status AnswerBatch::ChooseTokens(const std::function<void(size_t unit, EvalAnswer answer)>& done) {
  for (Place& place : places_) {
    if (place.answering == nullptr) continue;
    const std::optional<Token> token = place.answering->Next();
    if (token.has_value()) {
      place.token = *token;
      continue;
    }
    EBB_ASSIGN_OR_RETURN(EvalAnswer answer, place.answering->End());
    place.answering.reset();
    place.has_failed = false;
    done(place.unit, std::move(answer));
  }
  return OkStatus();
}

// Steps all problems. If some problems cannot take part in a step, the step changes nothing and is
// repeated for the others, with stand-ins in the failed problems' places.
Status AnswerBatch::StepOnce() {
  while (true) {
    parts_.clear();
    int num_answering = 0;
    for (Place& place : places_) {
      num_answering += place.Steps() ? 1 : 0;
      parts_.push_back(
          {.session = place.Steps() ? &place.answering->session() : place.stand_in.get(),
           .token = place.Steps() ? place.token : 0});
    }
    if (num_answering == 0) return OkStatus();
    const auto begin = std::chrono::steady_clock::now();
    const StepOutcome outcome = engine_->Step(parts_);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    const double share = took.count() / num_answering;
    bool is_blamed = false;
    for (size_t i = 0; i < places_.size(); ++i) {
      Place& place = places_[i];
      if (!place.Steps()) {
        if (outcome.taken) EBB_RETURN_IF_ERROR(place.stand_in->TruncateTo(1));
        continue;
      }
      if (!outcome.taken && parts_[i].status.ok()) continue;
      place.answering->Appended({.taken = outcome.taken, .status = parts_[i].status}, share);
      is_blamed = is_blamed || !parts_[i].status.ok();
      place.has_failed = !parts_[i].status.ok();
    }
    if (outcome.taken) return OkStatus();
    if (!is_blamed) return outcome.status;
  }
}

}  // namespace ebb

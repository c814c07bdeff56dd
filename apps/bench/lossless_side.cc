#include "apps/bench/lossless_side.h"

#include <chrono>
#include <optional>
#include <span>
#include <utility>

#include "apps/common/setup.h"

namespace ebb::cli {

namespace {

double SecondsNow() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

uint64_t BenchSide::PeakOfT0() const { return engine->arena_accounting(Tier::kT0).peak_bytes; }

void BenchSide::TookSince(double begin, int64_t num_tokens) {
  tokens_per_s.push_back(static_cast<double>(num_tokens) / (SecondsNow() - begin));
}

Status BenchSide::Write(int num_tokens, const std::atomic<bool>* cancel) {
  const double begin = SecondsNow();
  const GenerateResult result = Generate(
      *session, *sampler,
      {.max_tokens = num_tokens, .on_end = GenerateOptions::OnEnd::kIgnore, .cancel = cancel});
  EBB_RETURN_IF_ERROR(result.error);
  if (result.finish_reason == FinishReason::kCancelled) return Cancelled("interrupted");
  TookSince(begin, result.decode_steps);
  return OkStatus();
}

Result<BenchSide> Enter(const std::shared_ptr<const Model>& model, const CliOptions& options,
                        const EngineOptions& engine, const SessionOptions& session) {
  BenchSide side;
  EBB_ASSIGN_OR_RETURN(side.engine, Engine::Create(model, engine));
  EBB_ASSIGN_OR_RETURN(side.session, side.engine->OpenSession(session));
  EBB_ASSIGN_OR_RETURN(side.sampler, Sampler::Create(*model, options.sampling));
  return side;
}

Status ForcedText::Feed(const std::atomic<bool>* cancel, BenchSide* side) {
  const double begin = SecondsNow();
  for (size_t i = 0; i < turn_.size(); ++i) {
    if (*cancel) return Cancelled("interrupted");
    EBB_RETURN_IF_ERROR(side->session->Decode(turn_[i], From(i + 1)).status);
  }
  side->TookSince(begin, std::ssize(turn_));
  return OkStatus();
}

Guess ForcedText::From(size_t next) {
  return [this, next](std::span<const float>) mutable -> std::optional<Token> {
    if (next >= turn_.size()) return std::nullopt;
    const Token token = turn_[next++];
    if (std::uniform_real_distribution<>()(random_) < known_) return token;
    return (token + 1) % vocab_size_;
  };
}

}  // namespace ebb::cli

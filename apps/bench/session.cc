#include "apps/bench/session.h"

#include <fmt/format.h>

#include <utility>

#include "apps/bench/bench_options.h"
#include "apps/common/setup.h"
#include "apps/common/terminal/interrupt.h"
#include "apps/common/terminal/progress.h"

namespace ebb::cli {

std::vector<Token> RandomTokens::Next(size_t count) {
  std::vector<Token> tokens(count);
  for (Token& token : tokens) token = Next();
  return tokens;
}

bool CanRollBack(const Session& session) {
  const Position last = session.next_position() - 1;
  return session.policy().placement == nullptr && (last < 1 || session.CanTruncateTo(last));
}

Result<BenchSession> OpenBenchSession(const CliOptions& options, BenchMass mass, BenchRival rival,
                                      int64_t longest) {
  const std::atomic<bool>* cancel = InstallInterruptHandler();
  EBB_ASSIGN_OR_RETURN(const std::shared_ptr<const Model> model, OpenModel(options));
  EBB_ASSIGN_OR_RETURN(std::unique_ptr<Engine> engine, Engine::Create(model, options.engine));
  BenchSession bench = {.model = model,
                        .engine = std::move(engine),
                        .sessions = {},
                        .tokens = RandomTokens(model->shape().vocab_size, options.seed),
                        .cancel = cancel};
  SessionOptions own = options.session, other = options.session;
  if (mass == BenchMass::kOn) own.extra_signals.mass = MassNeed::kSummed;
  if (rival == BenchRival::kFullCache) {
    other = own;
    other.policy = {};
  }
  const auto open = [&](const SessionOptions& session_options) -> Status {
    for (int i = 0; i < options.Of<BenchOptions>().sequences; ++i) {
      EBB_ASSIGN_OR_RETURN(auto session, bench.engine->OpenSession(session_options));
      if (longest > session->context() && options.session.past_context == PastContext::kRefuse) {
        return InvalidArgument(fmt::format(
            "the measurement needs {} tokens, the context has {}; choose a smaller depth", longest,
            session->context()));
      }
      bench.sessions.push_back(std::move(session));
    }
    return OkStatus();
  };
  EBB_RETURN_IF_ERROR(open(own));
  if (rival != BenchRival::kNone) EBB_RETURN_IF_ERROR(open(other));
  return bench;
}

Status FillTo(Position depth, const CliOptions& options, Sessions sessions, BenchSession* bench) {
  const auto sequences = static_cast<int64_t>(sessions.size());
  const auto display = options.quiet ? ProgressBar::Display::kOff : ProgressBar::Display::kAuto;
  ProgressBar bar(fmt::format("filling the cache to {}", depth), "tokens", depth * sequences,
                  display);
  for (int64_t i = 0; i < sequences; ++i) {
    Session& session = *sessions[i];
    if (session.next_position() >= depth) {
      EBB_RETURN_IF_ERROR(session.TruncateTo(depth));
      continue;
    }
    const int64_t before = i * depth + session.next_position();
    PrefillOptions prefill;
    prefill.cancel = bench->cancel;
    prefill.progress = [&](size_t done) { bar.Update(before + static_cast<int64_t>(done)); };
    const auto tokens = bench->tokens.Next(static_cast<size_t>(depth - session.next_position()));
    EBB_RETURN_IF_ERROR(session.Prefill(tokens, prefill).status);
  }
  return OkStatus();
}

Status CheckCancelled(const BenchSession& bench) {
  return bench.cancel->load() ? Cancelled("interrupted") : OkStatus();
}

}  // namespace ebb::cli

// BenchSide is one of the sessions that `ebb-bench lossless` compares; ForcedText is the text that
// they decode with --accept.
#ifndef EBB_APPS_BENCH_LOSSLESS_SIDE_H_
#define EBB_APPS_BENCH_LOSSLESS_SIDE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "apps/bench/session.h"
#include "apps/common/options/options.h"
#include "ebb/engine.h"
#include "ebb/generate.h"

namespace ebb::cli {

// BenchSide is one of the generators that `lossless` compares. Each has its own engine, because an
// engine's arenas report one peak for all sessions.
struct BenchSide {
  std::unique_ptr<Engine> engine;
  std::unique_ptr<Session> session;
  std::unique_ptr<Sampler> sampler;
  std::vector<double> tokens_per_s = {};  // [turns]

  [[nodiscard]] uint64_t PeakOfT0() const;
  // Records the speed of a turn of `num_tokens` tokens that began at time `begin` (seconds, steady
  // clock).
  void TookSince(double begin, int64_t num_tokens);
  // Generates `num_tokens` tokens as one turn and records its speed. The last token is sampled but
  // not decoded, so that the next turn samples it again.
  Status Write(int num_tokens, const std::atomic<bool>* cancel);
};

// Opens an engine and a session with these options. Errors: those of Engine::Create() and
// OpenSession().
Result<BenchSide> Enter(const std::shared_ptr<const Model>& model, const CliOptions& options,
                        const EngineOptions& engine, const SessionOptions& session);

// ForcedText decodes random tokens instead of the model's choices, with a draft whose next token is
// right with probability `known`.
class ForcedText {
 public:
  ForcedText(double known, int vocab_size, uint64_t seed)
      : known_(known), text_(vocab_size, seed), random_(seed), vocab_size_(vocab_size) {}

  // Draws the tokens that the next Feed() decodes.
  void Invent(int num_tokens) { turn_ = text_.Next(static_cast<size_t>(num_tokens)); }
  // Decodes the drawn tokens one by one in `side` and records the speed. Errors: kCancelled; the
  // errors of Decode().
  Status Feed(const std::atomic<bool>* cancel, BenchSide* side);

 private:
  // Returns a draft of the tokens from turn_[next] on, each right with probability known_.
  Guess From(size_t next);

  double known_;
  RandomTokens text_;
  std::mt19937_64 random_;
  int vocab_size_;
  std::vector<Token> turn_;
};

}  // namespace ebb::cli

#endif  // EBB_APPS_BENCH_LOSSLESS_SIDE_H_

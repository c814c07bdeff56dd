// The sessions that take turns in `ebb-bench lossless`, and the text that they are given.
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

// One that generates: alone in its engine, since engines keep their arenas' peaks.
struct BenchSide {
  std::unique_ptr<Engine> engine;
  std::unique_ptr<Session> session;
  std::unique_ptr<Sampler> sampler;
  std::vector<double> tokens_per_s = {};  // by turn

  [[nodiscard]] uint64_t PeakOfT0() const;
  void TookSince(double begin, int64_t num_tokens);
  // A turn: the model's own text. The next turn chooses its last token again.
  Status Write(int num_tokens, const std::atomic<bool>* cancel);
};

Result<BenchSide> Enter(const std::shared_ptr<const Model>& model, const CliOptions& options,
                        const EngineOptions& engine, const SessionOptions& session);

// Given tokens, of whose successors guesses know so many.
class ForcedText {
 public:
  ForcedText(double known, int vocab_size, uint64_t seed)
      : known_(known), text_(vocab_size, seed), random_(seed), vocab_size_(vocab_size) {}

  void Invent(int num_tokens) { turn_ = text_.Next(static_cast<size_t>(num_tokens)); }
  // Gives them, one by one.
  Status Feed(const std::atomic<bool>* cancel, BenchSide* side);

 private:
  Guess From(size_t next);

  double known_;
  RandomTokens text_;
  std::mt19937_64 random_;
  int vocab_size_;
  std::vector<Token> turn_;
};

}  // namespace ebb::cli

#endif  // EBB_APPS_BENCH_LOSSLESS_SIDE_H_

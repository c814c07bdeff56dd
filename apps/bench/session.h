// Sessions to measure: tokens to feed them and the filling of their caches.
#ifndef EBB_APPS_BENCH_SESSION_H_
#define EBB_APPS_BENCH_SESSION_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "apps/common/options/options.h"
#include "ebb/engine.h"
#include "ebb/model.h"
#include "ebb/status.h"

namespace ebb::cli {

// Tokens drawn from the vocabulary, as llama-bench feeds them: speed does not depend on the text,
// and every token is really read.
class RandomTokens {
 public:
  RandomTokens(int vocab_size, uint64_t seed) : random_(seed), vocab_size_(vocab_size) {}
  [[nodiscard]] Token Next() { return static_cast<Token>(random_() % vocab_size_); }
  [[nodiscard]] std::vector<Token> Next(size_t count);

 private:
  std::mt19937_64 random_;
  uint64_t vocab_size_;
};

struct BenchSession {
  std::shared_ptr<const Model> model;
  std::unique_ptr<Engine> engine;
  std::vector<std::unique_ptr<Session>> sessions;  // of the engine; destroyed before it
  RandomTokens tokens;
  const std::atomic<bool>* cancel = nullptr;
};

// Whether a roll-back restores what was there: nothing has been evicted.
[[nodiscard]] bool CanRollBack(const Session& session);

// Whom sessions are measured in turns with: others that compute no mass, or that keep all rows.
enum class BenchRival { kNone, kNoMass, kFullCache };

enum class BenchMass { kOff, kOn };

// Opens --sequences sessions, and as many rivals after them. Errors also when `longest` tokens do
// not fit their context, so that it is known before minutes of work.
[[nodiscard]] Result<BenchSession> OpenBenchSession(const CliOptions& options, BenchMass mass,
                                                    BenchRival rival, int64_t longest);

using Sessions = std::span<const std::unique_ptr<Session>>;
// Reads tokens, with a progress bar, until each of the sessions holds `depth` of them. Rolls back
// where there are more. Errors: those of Prefill(); kCancelled.
[[nodiscard]] Status FillTo(Position depth, const CliOptions& options, Sessions sessions,
                            BenchSession* bench);

// kCancelled once Ctrl-C was pressed.
[[nodiscard]] Status CheckCancelled(const BenchSession& bench);

}  // namespace ebb::cli

#endif  // EBB_APPS_BENCH_SESSION_H_

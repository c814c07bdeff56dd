// Opens the sessions that a benchmark measures, and fills their caches with tokens.
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

// RandomTokens draws tokens from the vocabulary, as llama-bench does: the speed does not depend on
// the text.
class RandomTokens {
 public:
  RandomTokens(int vocab_size, uint64_t seed) : random_(seed), vocab_size_(vocab_size) {}
  [[nodiscard]] Token Next() { return static_cast<Token>(random_() % vocab_size_); }
  [[nodiscard]] std::vector<Token> Next(size_t count);

 private:
  std::mt19937_64 random_;
  uint64_t vocab_size_;
};

// BenchSession holds a model, its engine and the engine's sessions, which a benchmark runs.
struct BenchSession {
  std::shared_ptr<const Model> model;
  std::unique_ptr<Engine> engine;
  std::vector<std::unique_ptr<Session>> sessions;  // destroyed before their engine
  RandomTokens tokens;
  const std::atomic<bool>* cancel = nullptr;
};

// Returns whether TruncateTo() restores the state before decode steps: the policy neither moves nor
// evicts rows.
[[nodiscard]] bool CanRollBack(const Session& session);

// BenchRival selects the other sessions with which a benchmark alternates its own: none, sessions
// that compute no mass (attention summed per row), or sessions with the full cache.
enum class BenchRival { kNone, kNoMass, kFullCache };

// BenchMass selects whether the benchmark's own sessions compute mass even if their policy does not
// need it.
enum class BenchMass { kOff, kOn };

// Opens --sequences sessions, and then as many rivals. Errors: those of OpenSession();
// InvalidArgument if `longest` tokens exceed the context, so that a benchmark fails at once and not
// after minutes.
[[nodiscard]] Result<BenchSession> OpenBenchSession(const CliOptions& options, BenchMass mass,
                                                    BenchRival rival, int64_t longest);

using Sessions = std::span<const std::unique_ptr<Session>>;
// Prefills random tokens, with a progress bar, until each session has `depth` tokens; truncates
// sessions that have more. Errors: those of Prefill(); kCancelled.
[[nodiscard]] Status FillTo(Position depth, const CliOptions& options, Sessions sessions,
                            BenchSession* bench);

// Returns kCancelled if Ctrl-C was pressed, else OK.
[[nodiscard]] Status CheckCancelled(const BenchSession& bench);

}  // namespace ebb::cli

#endif  // EBB_APPS_BENCH_SESSION_H_

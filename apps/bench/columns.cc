// Implements `ebb-bench columns`: the time of a step by the number of its tokens, as verifying
// guesses takes it.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "apps/bench/bench_options.h"
#include "apps/bench/commands.h"
#include "apps/bench/session.h"
#include "apps/common/report.h"
#include "apps/common/setup.h"
#include "ebb/benchmark.h"

namespace ebb::cli {
namespace {

using Clock = std::chrono::steady_clock;

// kStepsOfEach is how many steps of a number of tokens follow each other.
constexpr int kStepsOfEach = 4;

// PredictedText decodes a random text that Session::Predict() has given to the session, so that
// prompt lookup guesses all of it.
class PredictedText {
 public:
  PredictedText(BenchSession* bench, size_t num_tokens)
      : session_(*bench->sessions[0]), tokens_(bench->tokens.Next(num_tokens)) {
    session_.Predict(tokens_);
  }
  // Decodes the beginning of the text without guesses, so that the lookup finds it. Begins the text
  // again from its first token.
  Status Begin() {
    next_ = 0;
    for (int i = 0; i < kLookedUp; ++i) {
      EBB_RETURN_IF_ERROR(session_.Decode(tokens_[next_++], nullptr, 0).status);
    }
    return OkStatus();
  }
  // Decodes `num_tokens` tokens, and as many again until one step has computed them all, which it
  // does unless the policy decides between them. Returns the seconds of that step.
  Result<double> Step(int num_tokens) {
    while (true) {
      const Clock::time_point start = Clock::now();
      EBB_RETURN_IF_ERROR(session_.Decode(tokens_[next_++], nullptr, num_tokens - 1).status);
      const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
      bool is_one_step = true;
      for (int i = 1; i < num_tokens; ++i) {
        const Token token = tokens_[next_++];
        is_one_step = is_one_step && session_.HasComputed(token);
        EBB_RETURN_IF_ERROR(session_.Decode(token, nullptr, 0).status);
      }
      if (is_one_step) return seconds;
      if (next_ + static_cast<size_t>(num_tokens) > tokens_.size()) {
        return Unsupported(
            fmt::format("the policy decides too often for steps of {} tokens", num_tokens));
      }
    }
  }

 private:
  static constexpr int kLookedUp = 4;  // more than a match needs

  Session& session_;
  std::vector<Token> tokens_;
  size_t next_ = 0;
};

Status Report(const CliOptions& options, const BenchSession& bench, int depth,
              const std::vector<std::vector<double>>& ms, double others_share) {
  Json columns = Json::array();
  const double plain = SpreadOf(ms[0]).median;
  std::string text = fmt::format("steps at depth {}, in ms and in steps of one token:", depth);
  for (size_t i = 0; i < ms.size(); ++i) {
    const Spread spread = SpreadOf(ms[i]);
    columns.push_back(
        {{"tokens", i + 1}, {"ms", ToJson(spread)}, {"ratio", spread.median / plain}});
    text += fmt::format("\n{:4}  {:24}  {:.2f}", i + 1, ToText(spread), spread.median / plain);
  }
  Json record = {{"bench", "columns"},
                 {"depth", depth},
                 {"columns", std::move(columns)},
                 {"repetitions", options.Of<BenchOptions>().repetitions},
                 {"others_share", others_share}};
  AddEngineFields(options, *bench.engine, *bench.sessions[0], &record);
  return WriteRecord(options, record, text);
}

}  // namespace

// Measures each number of tokens in turn, repetition by repetition. A session that cannot be rolled
// back goes on behind `depth`.
Status BenchColumns(const CliOptions& given) {
  CliOptions options = given;
  const BenchOptions& o = options.Of<BenchOptions>();
  options.session.speculation = Speculation::kLookup;
  options.session.least_guesses = kMostTokensWithGuesses - 1;
  std::vector<int> depths = o.depths;
  std::ranges::sort(depths);
  const int most = o.most_columns;
  const int of_each = 8 + 2 * kStepsOfEach * most;  // half of the steps may be cut by decisions
  EBB_ASSIGN_OR_RETURN(BenchSession bench,
                       OpenBenchSession(options, BenchMass::kOff, BenchRival::kNone,
                                        int64_t{depths.back()} + of_each));
  Session& session = *bench.sessions[0];
  if (const std::string& why = session.speculation_obstacle(); !why.empty()) {
    return Unsupported("the session computes no guesses: " + why);
  }
  PredictedText text(&bench, static_cast<size_t>(of_each));
  for (const int depth : depths) {
    std::vector<std::vector<double>> ms(static_cast<size_t>(most));
    const MachineWatch watch;
    for (int repetition = 0; repetition < o.repetitions; ++repetition) {
      for (int num_tokens = 1; num_tokens <= most; ++num_tokens) {
        if (session.next_position() < depth || CanRollBack(session)) {
          EBB_RETURN_IF_ERROR(FillTo(depth, options, bench.sessions, &bench));
        }
        EBB_RETURN_IF_ERROR(text.Begin());
        double seconds = 0;
        for (int step = 0; step < kStepsOfEach; ++step) {
          EBB_ASSIGN_OR_RETURN(const double taken, text.Step(num_tokens));
          if (step > 0) seconds += taken;  // the first builds the graph
        }
        ms[static_cast<size_t>(num_tokens) - 1].push_back(1e3 * seconds / (kStepsOfEach - 1));
        EBB_RETURN_IF_ERROR(CheckCancelled(bench));
      }
    }
    const double others = watch.OthersShare();
    WarnOfOthers(others);
    EBB_RETURN_IF_ERROR(Report(options, bench, depth, ms, others));
  }
  return OkStatus();
}

}  // namespace ebb::cli

// Measures what the ledger (the record of each token's tier) costs: an iteration appends 64 tokens
// to 8,000 or more and then moves a tenth of the first 8,000 between tiers. A decode step takes
// about 10 ms, so the 64 steps between two decisions take 640 ms.
#include <benchmark/benchmark.h>

#include <vector>

#include "ebb/report.h"

namespace ebb {
namespace {

constexpr int kTokens = 8000;
constexpr int kInterval = 64;

void BM_LedgerInterval(benchmark::State& state) {
  const auto num_groups = static_cast<int>(state.range(0));
  std::vector<Ledger::Change> down, up;
  for (Position p = 0; p < kTokens; p += 10) {
    down.push_back({p, Tier::kT1});
    up.push_back({p, Tier::kT0});
  }
  Ledger ledger(std::vector<int>(num_groups, 90 / num_groups));
  ledger.Append(kTokens);
  size_t bytes = 0;
  for (auto _ : state) {
    const size_t before = ledger.memory_bytes();
    for (int step = 0; step < kInterval; ++step) {
      ledger.ReserveTokens(1);
      ledger.Append(1);
    }
    for (int group = 0; group < num_groups; ++group) {
      const bool is_down = ledger.tiers(group)[0] == Tier::kT0;
      ledger.Move(group, is_down ? down : up);
    }
    bytes += ledger.memory_bytes() - before;
  }
  const auto moves = static_cast<double>(state.iterations()) * num_groups * down.size();
  state.counters["bytes_per_move"] = static_cast<double>(bytes) / moves;
}
// The arguments are the numbers of groups that the granularities token, layer and head have in
// SmolLM2.
BENCHMARK(BM_LedgerInterval)->Arg(1)->Arg(30)->Arg(90)->Iterations(200);

void BM_LedgerCommonTier(benchmark::State& state) {
  const auto num_groups = static_cast<int>(state.range(0));
  Ledger ledger(std::vector<int>(num_groups, 1));
  ledger.Append(kTokens);
  Position position = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(ledger.CommonTier(position));
    position = (position + 1) % kTokens;
  }
}
BENCHMARK(BM_LedgerCommonTier)->Arg(1)->Arg(90);

}  // namespace
}  // namespace ebb

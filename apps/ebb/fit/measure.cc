#include "apps/ebb/fit/measure.h"

#include <algorithm>
#include <chrono>
#include <random>
#include <utility>

#include "ebb/benchmark.h"
#include "ebb/engine.h"

namespace ebb::cli {
namespace {

constexpr size_t kRowBytes = size_t{128} << 20;  // far more than caches hold

Result<double> StepSeconds(const std::shared_ptr<const Model>& model, const EngineOptions& options,
                           int requests) {
  constexpr int kWarmUp = 2, kSteps = 9;
  EngineOptions plain = options;
  plain.tiers.reset();
  EBB_ASSIGN_OR_RETURN(const auto engine, Engine::Create(model, plain));
  std::mt19937 random(/*seed=*/1);
  const auto draw = [&](size_t count) {
    std::vector<Token> tokens(count);
    for (Token& token : tokens) {
      token = static_cast<Token>(random() % static_cast<uint32_t>(model->shape().vocab_size));
    }
    return tokens;
  };
  std::vector<std::unique_ptr<Session>> sessions;
  std::vector<Session*> batch;
  for (int i = 0; i < requests; ++i) {
    EBB_ASSIGN_OR_RETURN(auto session, engine->OpenSession({.context = 1 + kWarmUp + kSteps}));
    EBB_RETURN_IF_ERROR(session->Prefill(draw(1)).status);
    batch.push_back(session.get());
    sessions.push_back(std::move(session));
  }
  std::vector<double> seconds;
  for (int step = 0; step < kWarmUp + kSteps; ++step) {
    const auto begin = std::chrono::steady_clock::now();
    EBB_RETURN_IF_ERROR(engine->DecodeBatch(batch, draw(batch.size())).status);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    if (step >= kWarmUp) seconds.push_back(took.count());
  }
  std::ranges::sort(seconds);
  return seconds[seconds.size() / 2];
}

}  // namespace

Status MeasureDecoding(const std::shared_ptr<const Model>& model, const CliOptions& options,
                       int requests, const std::vector<CompressedType>& types, FitSpeeds* speeds) {
  EBB_ASSIGN_OR_RETURN(speeds->step_seconds, StepSeconds(model, options.engine, requests));
  AttentionBenchmarkOptions attention = {.shape = model->shape(),
                                         .kv_type = options.engine.kv_type,
                                         .threads = options.engine.threads,
                                         .repetitions = 3,
                                         .steps = 3};
  const size_t bytes_of_token = 2 * size_t(attention.shape.NumStreams()) *
                                attention.shape.head_dim * RowTypeBytes(attention.kv_type);
  attention.rows = static_cast<int>(kRowBytes / bytes_of_token + 1);
  for (const CompressedType type : types) {
    attention.compressed = type;
    EBB_ASSIGN_OR_RETURN(const AttentionBenchmark rates, BenchmarkAttention(attention));
    speeds->full_rows_gb_s = rates.without_mass.read_gb_s.median;
    speeds->compressed_rows_gb_s[type] = rates.compressed.read_gb_s.median;
  }
  return OkStatus();
}

}  // namespace ebb::cli

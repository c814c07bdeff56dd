// A small random model and sessions on it, for tests of the engine.
#ifndef EBB_TESTS_ENGINE_ENGINE_FIXTURE_H_
#define EBB_TESTS_ENGINE_ENGINE_FIXTURE_H_

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "ebb/engine.h"
#include "tests/support/expect_ok.h"
#include "tests/support/model_variants.h"
#include "tests/support/random_gguf.h"
#include "tests/support/temp_folder.h"

namespace ebb {

// 16 (layer, kv head) pairs with heads of 64: 256 rows of each in f32, 512 in f16, fill 2 MiB.
inline RandomGgufOptions SixteenStreamsOptions() {
  return {.num_layers = 4,
          .embed_dim = 64,
          .num_q_heads = 4,
          .num_kv_heads = 4,
          .head_dim = 64,
          .feed_forward_dim = 64,
          .context = 4096};
}

inline RandomGgufOptions SmallModelOptions() {
  return {.num_layers = 2,
          .embed_dim = 128,
          .num_q_heads = 6,
          .num_kv_heads = 2,
          .head_dim = 64,
          .feed_forward_dim = 192,
          .context = 2048};
}

// Makes matrices whose rows are whole super-blocks of K-quants: 256 weights.
inline RandomGgufOptions SuperBlockModelOptions() {
  return {.num_layers = 2,
          .embed_dim = 256,
          .num_q_heads = 8,
          .num_kv_heads = 2,
          .head_dim = 64,
          .feed_forward_dim = 768,
          .context = 8192};
}

// EBB_TEST_ENGINE_DEVICE names a device: engines that tests make for the processor are made for it,
// so that what holds there is seen to hold on a device. Null: it is not set.
inline const char* OtherDevice() { return std::getenv("EBB_TEST_ENGINE_DEVICE"); }

// Skips every test of the file `file` over another device, and says why. EBB_CPU_ONLY_FILE calls
// it.
bool SkipFileOverDevices(const char* file, const char* why);

inline std::shared_ptr<const Model> RandomModel(const RandomGgufOptions& shape,
                                                bool for_device = OtherDevice() != nullptr) {
  const TempFolder folder;
  const std::string path = folder.File("random.gguf");
  const Status written = WriteRandomGguf(shape, path);
  EXPECT_TRUE(written.ok()) << written.ToString();
  auto model = Model::Load({.path = path, .for_device = for_device});
  EXPECT_TRUE(model.ok()) << model.status().ToString();
  return *model;
}

// Random tokens of text: neither control tokens nor those that end an answer.
inline std::vector<Token> TextTokens(const Model& model, size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<Token> tokens(count);
  for (Token& token : tokens) {
    do token = static_cast<Token>(random() % model.shape().vocab_size);
    while (model.IsControl(token) || model.EndsGeneration(token));
  }
  return tokens;
}

// The same model for all tests of a program: it is written and loaded once.
inline std::shared_ptr<const Model> SmallModel() {
  static const std::shared_ptr<const Model> kModel = RandomModel(SmallModelOptions());
  return kModel;
}

// Of four layers: 2 KiB of rows a token in f16, and so 4 MiB in its context.
inline std::shared_ptr<const Model> DeepModel() {
  static const std::shared_ptr<const Model> kModel = [] {
    RandomGgufOptions shape = SmallModelOptions();
    shape.num_layers = 4;
    return RandomModel(shape);
  }();
  return kModel;
}

inline std::vector<Token> SomeTokens(size_t count, uint64_t seed = 7) {
  return RandomTokens(SmallModelOptions(), count, seed);
}

inline Result<std::unique_ptr<Engine>> TryMakeEngineOf(const std::shared_ptr<const Model>& model,
                                                       const EngineOptions& options) {
  EngineOptions used = options;
  const bool is_plain = options.device.kind == DeviceKind::kCpu &&
                        options.attention == EngineOptions::Attention::kCpu &&
                        options.kv_type == RowType::kF16;
  if (OtherDevice() != nullptr && is_plain) used.device = *ParseDevice(OtherDevice());
  return Engine::Create(model, used);
}
inline std::unique_ptr<Engine> MakeEngineOf(const std::shared_ptr<const Model>& model,
                                            const EngineOptions& options = {.threads = 1}) {
  auto engine = TryMakeEngineOf(model, options);
  EXPECT_TRUE(engine.ok()) << engine.status().ToString();
  return *std::move(engine);
}
// The options of an engine, and the shares of the sessions that use its tiers.
struct TieredOptions : EngineOptions {
  std::optional<TierShares> shares;

  void Set(const TierSetting& setting) {
    tiers = setting.engine;
    shares = setting.shares;
  }
};

inline std::unique_ptr<Engine> MakeEngine(const EngineOptions& options = {.threads = 1}) {
  return MakeEngineOf(SmallModel(), options);
}

// "attention" with a short window, so that small tests evict.
inline PolicySpec SmallPolicy(const std::string& name, const std::string& budget) {
  PolicySpec spec = {.name = name};
  if (name != "full") spec.budget = *ParseBudget(budget);
  if (name == "attention" || name == "random") {
    spec.window = 16;
    spec.interval = 8;
  }
  return spec;
}

inline std::unique_ptr<Session> Open(Engine& engine, const SessionOptions& options = {}) {
  auto session = engine.OpenSession(options);
  EXPECT_TRUE(session.ok()) << session.status().ToString();
  return *std::move(session);
}

inline std::unique_ptr<Session> Open(Engine& engine, const PolicySpec& policy) {
  SessionOptions options;
  options.policy = policy;
  return Open(engine, options);
}

inline std::vector<float> Logits(const Session& session) {
  return {session.logits().begin(), session.logits().end()};
}

// In all tiers.
inline int64_t AllRows(const CacheAccounting& cache) {
  int64_t rows = 0;
  for (const TierAccounting& tier : cache.tiers) rows += tier.rows;
  return rows;
}

// Standard deviation, the unit of logit differences.
double Spread(const std::vector<float>& values);
// Largest difference, in units of the first one's spread.
double LargestDifference(const std::vector<float>& expected, const std::vector<float>& actual);

}  // namespace ebb

// Tags a test that cannot run over another device: EBB_CPU_ONLY("it needs ...") begins the test and
// skips the rest of it there. EBB_CPU_ONLY_FILE("it needs ..."), written in a file's
// unnamed namespace, tags all tests of the file.
#define EBB_CPU_ONLY(why) \
  if (::ebb::OtherDevice() != nullptr) GTEST_SKIP() << "on the CPU only: " why
#define EBB_CPU_ONLY_FILE(why) EBB_CPU_ONLY_FILE_AT(__COUNTER__, why)
#define EBB_CPU_ONLY_FILE_AT(number, why) EBB_CPU_ONLY_FILE_NAMED(number, why)
#define EBB_CPU_ONLY_FILE_NAMED(number, why) \
  [[maybe_unused]] const bool kCpuOnly##number = ::ebb::SkipFileOverDevices(__FILE__, why)

#endif  // EBB_TESTS_ENGINE_ENGINE_FIXTURE_H_

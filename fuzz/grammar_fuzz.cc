// A grammar, a regular expression, a JSON schema or a list of texts by the first byte, and an
// answer under it: each call takes a bounded time and memory, and a token that is sampled is one
// that the grammar admits, or the error says why there is none.
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "ebb/grammar.h"
#include "ebb/model.h"
#include "ebb/sampler.h"

namespace ebb {
namespace {

void Expect(bool holds) {
  if (!holds) std::abort();
}

// A call that takes longer would hold a server's other requests. Sanitizers make calls some twenty
// times slower.
constexpr double kMostSeconds = 5;
constexpr long kMostMegabytes = 2000;

template <typename Work>
auto Timed(Work work) {
  const auto begin = std::chrono::steady_clock::now();
  auto result = work();
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
  Expect(passed.count() < kMostSeconds);
  return result;
}

const Model& ModelForTest() {
  static const std::shared_ptr<const Model> model = [] {
    auto loaded = Model::Load({.path = EBB_FUZZ_CORPUS "/../../training/pebble/pebble.gguf"});
    Expect(loaded.ok());
    return *std::move(loaded);
  }();
  return *model;
}

Result<std::string> GrammarOf(char kind, const std::string& text) {
  switch (kind) {
    case 'r':
      return GrammarOfRegex(text);
    case 's':
      return GrammarOfSchema(text);
    case 'c': {
      std::vector<std::string> texts;
      for (size_t at = 0; at <= text.size();) {
        const size_t end = std::min(text.find('\n', at), text.size());
        texts.push_back(text.substr(at, end - at));
        at = end + 1;
      }
      return GrammarOfChoice(texts);
    }
    default:
      return text;
  }
}

void Answer(const std::string& grammar, uint32_t seed) {
  const auto sampler = Timed([&] {
    return Sampler::Create(ModelForTest(), {.temperature = 1, .seed = seed, .grammar = grammar});
  });
  if (!sampler.ok()) return Expect(sampler.status().code() == StatusCode::kInvalidArgument);
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 2);
  std::vector<float> logits(ModelForTest().shape().vocab_size);
  for (int i = 0; i < 48; ++i) {
    for (float& logit : logits) logit = normal(random);
    const Result<Token> token = Timed([&] { return (*sampler)->Sample(logits, i); });
    if (!token.ok()) return Expect(token.status().field() == "grammar");
    if (ModelForTest().EndsGeneration(*token)) return;
  }
}

}  // namespace
}  // namespace ebb

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr size_t kMaxInputBytes = size_t{1} << 16;
  if (size == 0 || size > kMaxInputBytes) return 0;
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const auto grammar = ebb::Timed([&] { return ebb::GrammarOf(static_cast<char>(data[0]), text); });
  if (grammar.ok()) ebb::Answer(*grammar, static_cast<uint32_t>(size));
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  ebb::Expect(usage.ru_maxrss / 1024 < ebb::kMostMegabytes);
  return 0;
}

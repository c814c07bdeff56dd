// Thoughts of 2,000 greedy tokens on the default model: what a user would see with
//   ebb run --raw -p PROMPT -n 2000 --temp 0 --ignore-eos --json
#ifndef EBB_TESTS_SUPPORT_ENGINE_LONG_THOUGHT_H_
#define EBB_TESTS_SUPPORT_ENGINE_LONG_THOUGHT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ebb/engine.h"

namespace ebb {

inline constexpr int kThoughtTokens = 2000;
inline constexpr const char* kThoughtPrompts[] = {
    "Once upon a time", "The tide table says",
    "Question: what is 17 times 23?\nAnswer:", "def fibonacci(n):", "Dear Sir or Madam,"};

struct LongThought {
  uint64_t hash = 0;
  std::vector<Token> tokens;  // the prompt's too
  CacheAccounting cache;
  DeviceReport device;
};

// In tiers of these shares, if there are any. Fails the test, and is empty, when something fails.
[[nodiscard]] LongThought Think(const std::shared_ptr<const Model>& model,
                                const std::string& prompt, const EngineOptions& options,
                                const std::optional<TierShares>& shares = {});

}  // namespace ebb

#endif  // EBB_TESTS_SUPPORT_ENGINE_LONG_THOUGHT_H_

// The shapes of model that ebb must run exactly: every family, bias, norm, tie, sharing of heads,
// head size and RoPE scaling appears in at least one.
#ifndef EBB_TESTS_SUPPORT_MODEL_VARIANTS_H_
#define EBB_TESTS_SUPPORT_MODEL_VARIANTS_H_

#include <ostream>
#include <string>
#include <vector>

#include "ebb/types.h"
#include "tests/support/random_gguf.h"

namespace ebb {

struct ModelVariant {
  std::string name;  // letters, digits and underscores
  RandomGgufOptions options;
};
std::ostream& operator<<(std::ostream& out, const ModelVariant& variant);

[[nodiscard]] std::vector<ModelVariant> ModelVariants();

// Tokens that are no control tokens, the same for the same seed.
[[nodiscard]] std::vector<Token> RandomTokens(const RandomGgufOptions& options, size_t count,
                                              uint64_t seed);

}  // namespace ebb

#endif  // EBB_TESTS_SUPPORT_MODEL_VARIANTS_H_

#ifndef EBB_TESTS_ENGINE_LOSSLESS_KNOWING_GUESS_H_
#define EBB_TESTS_ENGINE_LOSSLESS_KNOWING_GUESS_H_

#include <optional>
#include <span>

#include "ebb/lossless.h"

namespace ebb {

// The tokens that a test appends, known beforehand. `text` outlives what this returns.
inline Guess Knowing(std::span<const Token> text, size_t next) {
  return [text, next](std::span<const float>) mutable -> std::optional<Token> {
    return next < text.size() ? std::optional(text[next++]) : std::nullopt;
  };
}

}  // namespace ebb

#endif  // EBB_TESTS_ENGINE_LOSSLESS_KNOWING_GUESS_H_

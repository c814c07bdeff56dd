// Holds the tokens of a sequence, and whether each was given or generated.
#ifndef EBB_SEQUENCE_TOKEN_HISTORY_H_
#define EBB_SEQUENCE_TOKEN_HISTORY_H_

#include <cstdint>
#include <span>
#include <vector>

#include "ebb/state.h"
#include "ebb/types.h"

namespace ebb {

class TokenHistory {
 public:
  [[nodiscard]] std::span<const Token> all() const { return tokens_; }
  [[nodiscard]] std::span<const TokenKind> kinds() const { return kinds_; }  // [all]
  // Returns the position of the next token.
  [[nodiscard]] Position next() const { return static_cast<Position>(tokens_.size()); }
  // Returns the position of the first generated token; next() if there is none.
  [[nodiscard]] Position first_generated() const {
    return num_generated_ == 0 ? next() : first_generated_;
  }
  [[nodiscard]] int64_t num_generated() const { return num_generated_; }

  // Allocates memory for `num_tokens` more tokens. May throw std::bad_alloc.
  void Reserve(size_t num_tokens);
  void Append(std::span<const Token> tokens, TokenKind kind);
  void TruncateTo(Position end);

  void Save(StateWriter* to) const;
  void Load(StateReader* from);

 private:
  void CountGenerated();

  std::vector<Token> tokens_;
  std::vector<TokenKind> kinds_;  // [tokens]
  Position first_generated_ = 0;  // if there are any
  int64_t num_generated_ = 0;
};

}  // namespace ebb

#endif  // EBB_SEQUENCE_TOKEN_HISTORY_H_

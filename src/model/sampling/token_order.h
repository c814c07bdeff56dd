// Sorts a vocabulary's tokens by text, so that a beginning shared by several tokens is matched
// once.
#ifndef EBB_MODEL_SAMPLING_TOKEN_ORDER_H_
#define EBB_MODEL_SAMPLING_TOKEN_ORDER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ebb/model.h"
#include "ebb/types.h"

namespace ebb {

class TokenOrder {
 public:
  struct Entry {
    Token token = 0;
    uint32_t shared = 0;  // bytes that its text begins with in common with the entry before
  };

  explicit TokenOrder(const Model& model);
  // Returns the order of a model's tokens; the first call makes it.
  static std::shared_ptr<const TokenOrder> Of(const Model& model);

  // Returns the tokens that have a text and do not end the generation.
  [[nodiscard]] const std::vector<Entry>& entries() const { return entries_; }
  [[nodiscard]] const std::vector<Token>& ends() const { return ends_; }
  [[nodiscard]] std::string_view TextOf(Token token) const { return texts_[token]; }
  [[nodiscard]] bool Ends(Token token) const { return is_end_[token]; }
  [[nodiscard]] size_t vocab_size() const { return texts_.size(); }

 private:
  std::vector<std::string> texts_;  // [vocab_size], control tokens' included
  std::vector<bool> is_end_;        // [vocab_size]
  std::vector<Token> ends_;         // the tokens that end the generation
  std::vector<Entry> entries_;
};

}  // namespace ebb

#endif  // EBB_MODEL_SAMPLING_TOKEN_ORDER_H_

// Finds the texts of a vocabulary's special tokens, such as "<|im_end|>", which libllama turns into
// these tokens if it is asked to parse them.
#ifndef EBB_MODEL_CHAT_SPECIAL_TEXTS_H_
#define EBB_MODEL_CHAT_SPECIAL_TEXTS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ebb/types.h"

struct llama_vocab;

namespace ebb {

class SpecialTexts {
 public:
  // Collects the texts of control tokens and of the unknown token. User-defined tokens are not
  // included, since libllama parses them in any text, and so they are part of plain text. vocab:
  // null: no texts.
  explicit SpecialTexts(const llama_vocab* vocab);

  struct Match {
    size_t length = 0;        // of the longest special text that `text` begins with; 0: none
    Token token = 0;          // of that text
    bool is_cut_off = false;  // all of `text` is the beginning of a special text
  };
  [[nodiscard]] Match Find(std::string_view text) const;

  [[nodiscard]] const std::vector<std::string>& texts() const { return texts_; }

 private:
  // edges_ and ends_ are a trie: edges_ maps a node and a byte to the next node, ends_ maps nodes
  // at which a text ends to its token.
  std::unordered_map<uint64_t, uint32_t> edges_;
  std::unordered_map<uint32_t, Token> ends_;
  bool begins_[256] = {};  // whether some text begins with the byte
  std::vector<std::string> texts_;
};

}  // namespace ebb

#endif  // EBB_MODEL_CHAT_SPECIAL_TEXTS_H_

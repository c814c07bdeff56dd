#include "src/model/chat/special_texts.h"

#include <llama.h>

namespace ebb {
namespace {

constexpr uint64_t EdgeKey(uint32_t node, char byte) {
  return (uint64_t{node} << 8) | static_cast<uint8_t>(byte);
}

// Returns whether a text looks like a special token, by the rule of llama.cpp's converter, for
// files that do not declare it as one. libllama itself turns some control tokens, such as
// "<|start|>", into user-defined tokens.
bool LooksSpecial(std::string_view text) {
  return (text.starts_with("<|") && text.ends_with("|>")) ||
         (text.starts_with("<｜") && text.ends_with("｜>"));
}

bool IsSpecial(const llama_vocab* vocab, Token token) {
  const auto attributes = static_cast<uint32_t>(llama_vocab_get_attr(vocab, token));
  if ((attributes & (LLAMA_TOKEN_ATTR_CONTROL | LLAMA_TOKEN_ATTR_UNKNOWN)) != 0) return true;
  if ((attributes & LLAMA_TOKEN_ATTR_USER_DEFINED) == 0) return false;
  return token == llama_vocab_bos(vocab) || llama_vocab_is_eog(vocab, token) ||
         LooksSpecial(llama_vocab_get_text(vocab, token));
}

}  // namespace

SpecialTexts::SpecialTexts(const llama_vocab* vocab) {
  if (vocab == nullptr) return;
  uint32_t num_nodes = 1;
  for (Token token = 0; token < llama_vocab_n_tokens(vocab); ++token) {
    if (!IsSpecial(vocab, token)) continue;
    const std::string_view text = llama_vocab_get_text(vocab, token);
    if (text.empty()) continue;
    uint32_t node = 0;
    for (const char byte : text) {
      const auto [edge, is_new] = edges_.try_emplace(EdgeKey(node, byte), num_nodes);
      if (is_new) ++num_nodes;
      node = edge->second;
    }
    ends_.try_emplace(node, token);
    begins_[static_cast<uint8_t>(text.front())] = true;
    texts_.emplace_back(text);
  }
}

SpecialTexts::Match SpecialTexts::Find(std::string_view text) const {
  Match match;
  if (text.empty() || !begins_[static_cast<uint8_t>(text.front())]) return match;
  uint32_t node = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto edge = edges_.find(EdgeKey(node, text[i]));
    if (edge == edges_.end()) return match;
    node = edge->second;
    if (const auto end = ends_.find(node); end != ends_.end()) {
      match.length = i + 1;
      match.token = end->second;
    }
  }
  match.is_cut_off = true;
  return match;
}

}  // namespace ebb

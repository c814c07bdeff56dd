#include "src/model/loaded/vocabulary.h"

#include <fmt/format.h>
#include <llama.h>
#include <xxhash.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace ebb {
namespace {

#ifndef EBB_LLAMA_IS_PATCHED
// Checks that all tokens differ. An unpatched libllama asserts this, after it has given empty
// tokens a name.
Status CheckTokensDiffer(const std::vector<std::string_view>& tokens) {
  std::vector<uint64_t> hashes(tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    const std::string name = tokens[i].empty() ? fmt::format("[EMPTY_{}]", i) : std::string();
    const std::string_view text = tokens[i].empty() ? name : tokens[i];
    hashes[i] = XXH3_64bits(text.data(), text.size());
  }
  std::vector<uint64_t> sorted = hashes;
  std::sort(sorted.begin(), sorted.end());
  const auto same = std::adjacent_find(sorted.begin(), sorted.end());
  if (same == sorted.end()) return OkStatus();
  const auto first = std::find(hashes.begin(), hashes.end(), *same);
  const auto second = std::find(first + 1, hashes.end(), *same);
  return Corrupt(fmt::format("tokens {} and {} have the same text", first - hashes.begin(),
                             second - hashes.begin()));
}
#endif

// Refuses libllama's other tokenizers: they belong to models that ebb does not run, and assert more
// than they check.
Status CheckTokenizerKind(const GgufFile& file) {
  std::string kind;
  EBB_RETURN_IF_ERROR(file.Read("tokenizer.ggml.model", GgufFile::Need::kRequired, &kind));
  if (kind == "llama" || kind == "gpt2" || kind == "gemma4") return OkStatus();
  return Unsupported(
      fmt::format("tokenizer \"{}\" is not supported; supported are llama, gpt2 and gemma4", kind));
}

}  // namespace

void LlamaModelDeleter::operator()(llama_model* model) const { llama_model_free(model); }

// Checks the tokens that the tokenizer adds; libllama aborts if the vocabulary does not have one.
Status CheckAddedTokens(const llama_model& vocab_model) {
  const llama_vocab* vocab = llama_model_get_vocab(&vocab_model);
  const bool bos_missing =
      llama_vocab_get_add_bos(vocab) && llama_vocab_bos(vocab) == LLAMA_TOKEN_NULL;
  const bool eos_missing =
      llama_vocab_get_add_eos(vocab) && llama_vocab_eos(vocab) == LLAMA_TOKEN_NULL;
  const bool sep_missing =
      llama_vocab_get_add_sep(vocab) && llama_vocab_sep(vocab) == LLAMA_TOKEN_NULL;
  if (!bos_missing && !eos_missing && !sep_missing) return OkStatus();
  return Corrupt(fmt::format("the tokenizer is to add a {} token but has none",
                             bos_missing   ? "beginning-of-sequence"
                             : eos_missing ? "end-of-sequence"
                                           : "separator"));
}

Status CheckTokenizer(const GgufFile& file) {
  EBB_RETURN_IF_ERROR(CheckTokenizerKind(file));
#ifndef EBB_LLAMA_IS_PATCHED
  std::vector<std::string_view> tokens;
  EBB_RETURN_IF_ERROR(file.ReadStrings("tokenizer.ggml.tokens", &tokens));
  EBB_RETURN_IF_ERROR(CheckTokensDiffer(tokens));
#endif
  return OkStatus();
}

size_t LongestTokenBytes(const llama_model& vocab_model) {
  const llama_vocab* vocab = llama_model_get_vocab(&vocab_model);
  int32_t longest = 1;
  for (Token token = 0; token < llama_vocab_n_tokens(vocab); ++token) {
    // The result is minus the needed size, because the given room is too small.
    const int32_t size = llama_token_to_piece(vocab, token, nullptr, 0, 0, /*special=*/true);
    longest = std::max(longest, -size);
  }
  return static_cast<size_t>(longest);
}

}  // namespace ebb

#include "src/model/vocabulary.h"

#include <fmt/format.h>
#include <llama.h>
#include <xxhash.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/llama_runtime.h"

namespace ebb {
namespace {

constexpr std::string_view kTokensKey = "tokenizer.ggml.tokens";
constexpr size_t kMaxTokens = size_t{1} << 24;

#ifndef EBB_LLAMA_IS_PATCHED
// An unpatched libllama asserts that all tokens differ, after it gave the empty ones a name.
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

// Its other tokenizers belong to models that ebb does not run, and assert more than they check.
Status CheckTokenizerKind(const GgufFile& file) {
  std::string kind;
  EBB_RETURN_IF_ERROR(file.Read("tokenizer.ggml.model", GgufFile::Need::kRequired, &kind));
  if (kind == "llama" || kind == "gpt2" || kind == "gemma4") return OkStatus();
  return Unsupported(
      fmt::format("tokenizer \"{}\" is not supported; supported are llama, gpt2 and gemma4", kind));
}

}  // namespace

void LlamaModelDeleter::operator()(llama_model* model) const { llama_model_free(model); }

// libllama aborts when it is to add a token that the vocabulary does not have.
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
  EBB_RETURN_IF_ERROR(file.ReadStrings(kTokensKey, &tokens));
  EBB_RETURN_IF_ERROR(CheckTokensDiffer(tokens));
#endif
  return OkStatus();
}

Result<int> CountTokens(const GgufFile& file) {
  std::vector<std::string_view> tokens;
  EBB_RETURN_IF_ERROR(file.ReadStrings(kTokensKey, &tokens));
  if (tokens.empty() || tokens.size() > kMaxTokens) {
    return Corrupt(
        fmt::format("{} names {} tokens; expected 1 to {}", kTokensKey, tokens.size(), kMaxTokens));
  }
  return static_cast<int>(tokens.size());
}

Result<VocabModel> LoadVocabulary(const GgufFile& file) {
  EBB_RETURN_IF_ERROR(CheckTokenizer(file));
  const LlamaErrorScope errors;
  llama_model_params params = llama_model_default_params();
  params.vocab_only = true;
  params.n_gpu_layers = 0;
  // From the metadata that is parsed already: a second parse costs as much as the first.
  VocabModel model(llama_model_init_from_user(file.context(), nullptr, nullptr, params));
  if (model == nullptr) {
    // libllama catches what is thrown, and tells it as text.
    if (errors.FirstError().find("bad_alloc") != std::string::npos) {
      return OutOfMemory("no memory is left for the tokenizer");
    }
    return Corrupt(fmt::format("the tokenizer does not load: {}", errors.FirstError()));
  }
  EBB_RETURN_IF_ERROR(CheckAddedTokens(*model));
  return model;
}

size_t LongestTokenBytes(const llama_model& vocab_model) {
  const llama_vocab* vocab = llama_model_get_vocab(&vocab_model);
  int32_t longest = 1;
  for (Token token = 0; token < llama_vocab_n_tokens(vocab); ++token) {
    // Minus the size, where the room is too small.
    const int32_t size = llama_token_to_piece(vocab, token, nullptr, 0, 0, /*special=*/true);
    longest = std::max(longest, -size);
  }
  return static_cast<size_t>(longest);
}

}  // namespace ebb

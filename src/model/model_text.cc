// Tokenizes texts by libllama, with the vocabulary of the model's file.
#include <algorithm>
#include <cctype>
#include <cstdint>
#include <exception>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <llama.h>

#include "ebb/model.h"
#include "src/model/chat/chat.h"
#include "src/model/loaded/loaded_model.h"

namespace ebb {
namespace {

const llama_vocab* VocabOf(const LoadedModel& loaded) {
  return llama_model_get_vocab(loaded.vocab_model.get());
}

struct TextSpan {
  std::string_view text;
  Model::Specials specials;
  bool is_continued = false;  // the text continues the text of the span before
};

// Tokenizes text that continues other text. Some tokenizers put a blank in front of each text; to
// avoid it, a character that merges with no other is put in front and removed again.
Result<std::vector<Token>> TokenizeContinued(const Model& model, std::string_view text) {
  constexpr std::string_view kMark = "\xee\x80\x80";  // U+E000, of no script
  EBB_ASSIGN_OR_RETURN(const std::vector<Token> mark,
                       model.Tokenize(kMark, Model::AddBos::kNo, Model::Specials::kAsText));
  EBB_ASSIGN_OR_RETURN(std::vector<Token> tokens,
                       model.Tokenize(std::string(kMark).append(text), Model::AddBos::kNo,
                                      Model::Specials::kAsText));
  if (std::ranges::mismatch(mark, tokens).in1 != mark.end()) {
    return model.Tokenize(text, Model::AddBos::kNo, Model::Specials::kAsText);
  }
  tokens.erase(tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(mark.size()));
  return tokens;
}

// Returns the text without the blanks next to a special token that the token absorbs.
std::string_view WithoutStripped(std::string_view text, std::optional<Token> before,
                                 std::optional<Token> after, const llama_vocab& vocab) {
  const auto strips = [&](std::optional<Token> token, llama_token_attr side) {
    return token.has_value() && (llama_vocab_get_attr(&vocab, *token) & side) != 0;
  };
  const auto is_blank = [](char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; };
  if (strips(before, LLAMA_TOKEN_ATTR_RSTRIP)) {
    while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  }
  if (strips(after, LLAMA_TOKEN_ATTR_LSTRIP)) {
    while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  }
  return text;
}

// Adds a piece of plain text, whose first byte is at `begin` in the text that plain_at refers to.
// libllama parses user-defined tokens in plain text too, so their texts are cut in two at the
// offsets of `plain_at`.
void AddPlainPiece(std::string_view piece, size_t begin, std::span<const size_t> plain_at,
                   const SpecialTexts& specials, const llama_vocab& vocab,
                   std::vector<TextSpan>* spans) {
  size_t cut = 0;
  for (auto at = std::ranges::lower_bound(plain_at, begin);
       at != plain_at.end() && *at < begin + piece.size(); ++at) {
    const SpecialTexts::Match match = specials.Find(piece.substr(*at - begin));
    const bool is_parsed = match.length > 1 && (llama_vocab_get_attr(&vocab, match.token) &
                                                LLAMA_TOKEN_ATTR_USER_DEFINED) != 0;
    if (!is_parsed) continue;
    const size_t end = *at - begin + 1;
    spans->push_back({piece.substr(cut, end - cut), Model::Specials::kAsText, cut > 0});
    cut = end;
  }
  spans->push_back({piece.substr(cut), Model::Specials::kAsText, cut > 0});
}

// Splits `text` into pieces between special tokens if such a piece contains an offset of
// `plain_at`. libllama tokenizes such pieces separately anyway, so the tokens are the same.
std::vector<TextSpan> SplitAtPlainText(std::string_view text, std::span<const size_t> plain_at,
                                       const SpecialTexts& specials, const llama_vocab& vocab) {
  std::vector<TextSpan> spans;
  size_t span_begin = 0;   // behind the last piece that was cut out
  size_t piece_begin = 0;  // behind the last special token
  bool is_plain = false;   // the piece
  std::optional<Token> before;
  const auto end_piece = [&](size_t end, std::optional<Token> after) {
    if (!std::exchange(is_plain, false)) return;
    spans.push_back({text.substr(span_begin, piece_begin - span_begin), Model::Specials::kParse});
    const std::string_view piece =
        WithoutStripped(text.substr(piece_begin, end - piece_begin), before, after, vocab);
    const auto begin = static_cast<size_t>(piece.data() - text.data());
    AddPlainPiece(piece, begin, plain_at, specials, vocab, &spans);
    span_begin = end;
  };
  auto next = plain_at.begin();
  for (size_t at = 0; at < text.size();) {
    while (next != plain_at.end() && *next < at) ++next;
    const size_t end = next != plain_at.end() ? *next : text.size();
    const SpecialTexts::Match match = specials.Find(text.substr(at, end - at));
    if (match.length == 0) {
      is_plain = is_plain || at == end;
      ++at;
      continue;
    }
    end_piece(at, match.token);
    at += match.length;
    piece_begin = at;
    before = match.token;
  }
  end_piece(text.size(), std::nullopt);
  spans.push_back({text.substr(span_begin), Model::Specials::kParse});
  std::erase_if(spans, [](const TextSpan& span) { return span.text.empty(); });
  return spans;
}

}  // namespace

Result<std::vector<Token>> Model::Tokenize(std::string_view text, AddBos add_bos,
                                           Specials specials) const {
  const llama_vocab* vocab = VocabOf(*loaded_);
  if (llama_vocab_type(vocab) == LLAMA_VOCAB_TYPE_NONE) {
    return Unsupported("the model file has no tokenizer");
  }
  // There are at most as many tokens as bytes, plus the tokens that the model adds at both ends.
  constexpr size_t kAddedTokens = 2;
  if (text.size() > std::numeric_limits<int32_t>::max() - kAddedTokens) {
    return InvalidArgument(
        fmt::format("expected a text of less than 2 GiB, found {} bytes", text.size()));
  }
  const bool adds = add_bos == AddBos::kAsModelSays;
  const bool parses = specials == Specials::kParse;
  std::vector<Token> tokens(text.size() + kAddedTokens);
  int32_t count = 0;
  try {
    count = llama_tokenize(vocab, text.data(), static_cast<int32_t>(text.size()), tokens.data(),
                           static_cast<int32_t>(tokens.size()), adds, parses);
    if (count < 0 && count != std::numeric_limits<int32_t>::min()) {
      tokens.resize(-static_cast<int64_t>(count));
      count = llama_tokenize(vocab, text.data(), static_cast<int32_t>(text.size()), tokens.data(),
                             static_cast<int32_t>(tokens.size()), adds, parses);
    }
  } catch (const std::exception& error) {
    return Corrupt(fmt::format("the tokenizer of the model file failed: {}", error.what()));
  }
  if (count < 0) return InvalidArgument("the text has more tokens than can be counted");
  tokens.resize(count);
  const bool has_two = adds && parses && llama_vocab_get_add_bos(vocab) && count >= 2 &&
                       tokens[0] == tokens[1] && tokens[0] == llama_vocab_bos(vocab);
  if (has_two) tokens.erase(tokens.begin());
  return tokens;
}

Result<std::vector<Token>> Model::TokenizePrompt(const ChatPrompt& prompt, AddBos add_bos,
                                                 size_t begin) const {
  const std::string_view text = std::string_view(prompt.text).substr(begin);
  const auto first = std::ranges::lower_bound(prompt.plain_at, begin);
  if (first == prompt.plain_at.end()) return Tokenize(text, add_bos, Specials::kParse);
  std::vector<size_t> plain_at(first, prompt.plain_at.end());
  for (size_t& offset : plain_at) offset -= begin;
  const llama_vocab* vocab = VocabOf(*loaded_);
  std::vector<Token> tokens;
  const auto type = llama_vocab_type(vocab);
  const bool puts_blanks = type == LLAMA_VOCAB_TYPE_SPM || type == LLAMA_VOCAB_TYPE_UGM;
  const bool adds = add_bos == AddBos::kAsModelSays;
  if (adds && llama_vocab_get_add_bos(vocab)) tokens.push_back(llama_vocab_bos(vocab));
  for (const TextSpan& span : SplitAtPlainText(text, plain_at, loaded_->chat->specials(), *vocab)) {
    EBB_ASSIGN_OR_RETURN(const std::vector<Token> more,
                         puts_blanks&& span.is_continued
                             ? TokenizeContinued(*this, span.text)
                             : Tokenize(span.text, AddBos::kNo, span.specials));
    tokens.insert(tokens.end(), more.begin(), more.end());
  }
  if (adds && llama_vocab_get_add_eos(vocab)) tokens.push_back(llama_vocab_eos(vocab));
  return tokens;
}

size_t Model::longest_token_bytes() const { return loaded_->longest_token_bytes; }

size_t Model::LeastTokens(size_t bytes) const {
  const size_t longest = longest_token_bytes();
  return bytes / longest + (bytes % longest == 0 ? 0 : 1);
}

std::string Model::TokenText(Token token, ControlTokens control) const {
  const llama_vocab* vocab = VocabOf(*loaded_);
  if (token < 0 || token >= llama_vocab_n_tokens(vocab)) return {};
  const bool show = control == ControlTokens::kShow;
  std::string text(32, '\0');
  int32_t size =
      llama_token_to_piece(vocab, token, text.data(), static_cast<int32_t>(text.size()), 0, show);
  if (size < 0) {
    text.resize(-size);
    size =
        llama_token_to_piece(vocab, token, text.data(), static_cast<int32_t>(text.size()), 0, show);
  }
  text.resize(size);
  return text;
}

bool Model::EndsGeneration(Token token) const {
  return llama_vocab_is_eog(VocabOf(*loaded_), token);
}

bool Model::IsControl(Token token) const {
  return llama_vocab_is_control(VocabOf(*loaded_), token);
}

Token Model::PaddingToken() const {
  const llama_vocab* vocab = VocabOf(*loaded_);
  for (const Token token : {llama_vocab_pad(vocab), llama_vocab_eos(vocab)}) {
    if (token != LLAMA_TOKEN_NULL) return token;
  }
  return 0;
}

}  // namespace ebb

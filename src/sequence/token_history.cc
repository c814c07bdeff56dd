#include "src/sequence/token_history.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace ebb {

void TokenHistory::Reserve(size_t num_tokens) {
  const size_t length = tokens_.size() + num_tokens;
  if (length > tokens_.capacity()) tokens_.reserve(length + length / 2);
  if (length > kinds_.capacity()) kinds_.reserve(length + length / 2);
}

void TokenHistory::Append(std::span<const Token> tokens, TokenKind kind) {
  if (kind == TokenKind::kGenerated) {
    if (num_generated_ == 0) first_generated_ = next();
    num_generated_ += static_cast<int64_t>(tokens.size());
  }
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  kinds_.resize(tokens_.size(), kind);
}

void TokenHistory::TruncateTo(Position end) {
  tokens_.resize(end);
  kinds_.resize(end);
  CountGenerated();
}

void TokenHistory::CountGenerated() {
  const auto first = std::ranges::find(kinds_, TokenKind::kGenerated);
  first_generated_ = static_cast<Position>(first - kinds_.begin());
  num_generated_ = std::count(first, kinds_.end(), TokenKind::kGenerated);
}

void TokenHistory::Save(StateWriter* to) const {
  to->Numbers<Token>(tokens_);
  std::vector<uint8_t> kinds_as_bytes;
  for (const TokenKind kind : kinds_) kinds_as_bytes.push_back(static_cast<uint8_t>(kind));
  to->Numbers<uint8_t>(kinds_as_bytes);
}

void TokenHistory::Load(StateReader* from) {
  tokens_ = from->Numbers<Token>();
  const auto kinds_as_bytes = from->Numbers<uint8_t>();
  if (tokens_.size() > std::numeric_limits<Position>::max() ||
      kinds_as_bytes.size() != tokens_.size()) {
    from->Fail("as many kinds as tokens were expected");
  }
  kinds_.clear();
  for (const uint8_t kind : kinds_as_bytes) {
    if (kind > 1) from->Fail(fmt::format("a token of kind {}", kind));
    kinds_.push_back(static_cast<TokenKind>(kind));
  }
  CountGenerated();
}

}  // namespace ebb

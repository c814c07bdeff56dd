#include "src/session/prompt_reading.h"

#include <algorithm>

namespace ebb {

Status PromptReading::Check(SessionBody* body, std::span<const Token> tokens) {
  EBB_RETURN_IF_ERROR(body->CheckUnbroken());
  if (tokens.empty()) return InvalidArgument("nothing to read: the prompt has no tokens");
  EBB_RETURN_IF_ERROR(body->sequence().CheckTokens(tokens));
  body->DiscardLookahead();
  EBB_RETURN_IF_ERROR(body->CheckUnbroken());
  // A text that cannot fit as a whole is refused as a whole.
  if (!body->sequence().RotatesKeys()) {
    EBB_RETURN_IF_ERROR(body->sequence().CheckRoom(tokens.size()));
  }
  return body->CheckPrompt(tokens.size());
}

PromptReading::PromptReading(SessionBody* body, std::span<const Token> tokens, size_t num_taken)
    : body_(body), tokens_(tokens), num_read_(num_taken) {
  Sequence& sequence = body->sequence();
  sequence.BeginPrompt(tokens.size(), num_taken);
  if (num_taken == 0) return;
  // Chunks are those of a prompt that is read from its first token on.
  chunk_begin_ = num_taken - num_taken % sequence.WholeChunk();
  chunk_end_ = chunk_begin_;
  if (chunk_begin_ < num_taken) {
    chunk_end_ += body->MaxPrefillChunk(tokens.size() - chunk_begin_);
  }
}

namespace {

// Cuts a piece off `left` tokens so that neither it nor the rest is a single one.
size_t AtMost(size_t piece, size_t most, size_t left) {
  most = std::max<size_t>(most, 2);
  // T0 may have room for no more than this.
  if (piece <= most) return piece;
  piece = most;
  if (piece + 1 != left) return piece;
  return piece > 2 ? piece - 1 : left;
}

}  // namespace

Result<SequenceStep> PromptReading::Next(size_t most_tokens) {
  Sequence& sequence = body_->sequence();
  if (num_read_ == chunk_end_) {
    chunk_begin_ = num_read_;
    chunk_end_ = num_read_ + body_->MaxPrefillChunk(tokens_.size() - num_read_);
  }
  const size_t left = chunk_end_ - num_read_;
  EBB_ASSIGN_OR_RETURN(size_t piece, sequence.NextPrefillPiece(left));
  if (!sequence.ReadsWholeChunks()) piece = AtMost(piece, most_tokens, left);
  // It may have become so since the chunk began.
  if (body_->ReadsTokenByToken()) piece = 1;
  size_t to_come = left - piece;
  if (to_come == 0 && chunk_end_ < tokens_.size()) {
    to_come = body_->MaxPrefillChunk(tokens_.size() - chunk_end_);
  }
  sequence.SetTokensToCome(to_come);
  EBB_ASSIGN_OR_RETURN(SequenceStep entry, body_->PromptEntry());
  entry.tokens = tokens_.subspan(num_read_, piece);
  entry.chunk_first = sequence.next() - static_cast<Position>(num_read_ - chunk_begin_);
  entry.chunk_tokens = static_cast<int>(chunk_end_ - chunk_begin_);
  return entry;
}

}  // namespace ebb

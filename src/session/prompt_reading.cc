#include "src/session/prompt_reading.h"

#include <algorithm>

namespace ebb {

PromptReading::PromptReading(Sequence* sequence, Speculator* speculator,
                             std::span<const Token> tokens, size_t num_taken)
    : sequence_(sequence),
      speculator_(speculator),
      store_(speculator == nullptr ? sequence : &speculator->store()),
      tokens_(tokens),
      num_read_(num_taken) {
  sequence->prompt().Begin(tokens, num_taken);
  if (num_taken == 0) return;
  // Chunk borders are those of a prompt that is read from its first token on, so that policies
  // decide at the same places.
  chunk_begin_ = num_taken - num_taken % sequence->prompt().WholeChunk();
  chunk_end_ = chunk_begin_;
  if (chunk_begin_ < num_taken) {
    chunk_end_ += store_->prompt().MaxChunk(tokens.size() - chunk_begin_);
  }
}

namespace {

// Cuts a piece of at most `most` (at least 2) tokens off `left` tokens, so that neither the piece
// nor the rest is a single token.
size_t AtMost(size_t piece, size_t most, size_t left) {
  most = std::max<size_t>(most, 2);
  // The piece may be a single token if T0 has room for no more.
  if (piece <= most) return piece;
  piece = most;
  if (piece + 1 != left) return piece;
  return piece > 2 ? piece - 1 : left;
}

}  // namespace

Result<SequenceStep> PromptReading::BeginEntry() const {
  if (speculator_ != nullptr) return speculator_->PromptEntry();
  return SequenceStep{.sequence = sequence_, .kind = StepKind::kPrefill};
}

Result<SequenceStep> PromptReading::Next(size_t most_tokens) {
  PromptChunks& chunks = sequence_->prompt();
  if (num_read_ == chunk_end_) {
    chunk_begin_ = num_read_;
    chunk_end_ = num_read_ + store_->prompt().MaxChunk(tokens_.size() - num_read_);
  }
  const size_t left = chunk_end_ - num_read_;
  EBB_ASSIGN_OR_RETURN(size_t piece, chunks.NextPiece(left));
  if (!chunks.ReadsWholeChunks()) {
    size_t end = std::min(left, chunks.TokensToCheckpoint());
    if (end < 2) end = left;
    piece = AtMost(std::min(piece, end), most_tokens, end);
  }
  // The sequence may have begun to read token by token since the chunk began.
  if (store_->prompt().ReadsTokenByToken()) piece = 1;
  size_t to_come = left - piece;
  if (to_come == 0 && chunk_end_ < tokens_.size()) {
    to_come = store_->prompt().MaxChunk(tokens_.size() - chunk_end_);
  }
  chunks.SetTokensToCome(to_come);
  EBB_ASSIGN_OR_RETURN(SequenceStep entry, BeginEntry());
  entry.tokens = tokens_.subspan(num_read_, piece);
  entry.chunk_first = sequence_->next() - static_cast<Position>(num_read_ - chunk_begin_);
  entry.chunk_tokens = static_cast<int>(chunk_end_ - chunk_begin_);
  return entry;
}

}  // namespace ebb

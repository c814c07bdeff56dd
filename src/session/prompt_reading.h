// Cuts a prompt into steps, so that other sequences may step between two of them. The chunks, after
// which policies decide, are the same as if the prompt were read at once.
#ifndef EBB_SESSION_PROMPT_READING_H_
#define EBB_SESSION_PROMPT_READING_H_

#include <cstddef>
#include <limits>
#include <span>

#include "ebb/status.h"
#include "ebb/types.h"
#include "src/lossless/speculator.h"
#include "src/sequence/sequence.h"
#include "src/sequence/step.h"

namespace ebb {

// PromptReading reads one prompt into a sequence, step by step.
class PromptReading {
 public:
  // Begins to read `tokens`. They and the sequences must outlive the reading. `speculator` is that
  // of a lossless session, or null. The sequence already holds the first `num_taken` tokens, and no
  // others. REQUIRES: Session::Impl::CheckPrompt() was ok.
  PromptReading(Sequence* sequence, Speculator* speculator, std::span<const Token> tokens,
                size_t num_taken = 0);

  [[nodiscard]] bool done() const { return num_read_ == tokens_.size(); }
  [[nodiscard]] size_t num_read() const { return num_read_; }
  // Returns the entry of the next step, with at most `most_tokens` tokens. It never holds a single
  // token while two are left, since products of one token run in other kernels than products of
  // several and have other bits. It holds a whole chunk if cutting the chunk would change bits
  // (PromptChunks::ReadsWholeChunks()). REQUIRES: not done().
  [[nodiscard]] Result<SequenceStep> Next(size_t most_tokens = std::numeric_limits<size_t>::max());
  // Records that the entry was computed.
  void AddRead(const SequenceStep& entry) { num_read_ += entry.tokens.size(); }
  // Ends the prompt, after its last token was read.
  void End() { sequence_->prompt().End(); }

 private:
  [[nodiscard]] Result<SequenceStep> BeginEntry() const;

  Sequence* sequence_;
  Speculator* speculator_;
  const Sequence* store_;  // computes the prompt
  std::span<const Token> tokens_;
  size_t num_read_ = 0;
  size_t chunk_begin_ = 0, chunk_end_ = 0;  // of tokens_
};

}  // namespace ebb

#endif  // EBB_SESSION_PROMPT_READING_H_

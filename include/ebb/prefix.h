// Prompts that begin as a session does: what the session has read of them is kept, so that only the
// rest is read. A chat's next turn begins with all the turns before it; templates that drop earlier
// thoughts change what was said, so that a session is rolled back to the place where they differ.
//
// Or a prompt begins as the one does that some session of an engine began with, and another session
// takes the rows of that beginning, with the bits of reading it: both then hold the pages.
//
// A policy decides by what it has seen: rows that it evicted while the session read what is now
// rolled back do not come back. A session that keeps every row, lossless ones among them, gives the
// logits of one that reads the whole prompt anew, up to rounding: a few tokens that are read by
// themselves take other kernels than many do.
#ifndef EBB_PREFIX_H_
#define EBB_PREFIX_H_

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "ebb/engine.h"
#include "ebb/status.h"
#include "ebb/types.h"

namespace ebb {

// How many tokens at the beginning of `prompt` the session need not read again: 0 where it cannot
// be rolled back to them (Session::CanTruncateTo()). At least one token of a prompt is always left
// to be read, for its logits.
[[nodiscard]] size_t CommonPrefix(const Session& session, std::span<const Token> prompt);

// The session with the longest common prefix, as an index; of several the one that has the fewest
// other tokens. Nothing: no session has any token in common with the prompt.
[[nodiscard]] std::optional<size_t> LongestPrefix(std::span<const Session* const> sessions,
                                                  std::span<const Token> prompt);

// Rolls the session back to what it has in common with `prompt`, and returns the rest of `prompt`,
// never empty, for Session::Prefill() or BeginPrompt(). A prompt that the session was reading is
// given up. Errors: InvalidArgument (an empty prompt); those of Session::TruncateTo().
[[nodiscard]] Result<std::span<const Token>> KeepPrefix(std::span<const Token> prompt,
                                                        Session* session);

// How many tokens at the beginning of `prompt` another session of the same options may take from
// this one, which began with a prompt that begins alike; BeginPromptFrom() does. Only those count
// whose rows are all in T0 or T1 and have the bits that reading the whole prompt gives them: tokens
// that were generated have others. At least one token is left to be read. 0 for lossless sessions,
// for keys that are rotated anew, for a selector, and for a scorer that takes more from a prompt
// than its rows (Scorer::IgnoresPrompts()).
[[nodiscard]] size_t ExactPrefix(const Session& from, std::span<const Token> prompt);

// BeginPrompt() of a session without tokens, which takes the rows of the first ExactPrefix() tokens
// from another one: both hold their full pages together, and a page that is not full is copied.
// Returns how many tokens these are; prompt_left() counts the others. The session gets the bits
// that it would by itself, its hash of logits among them. Errors: InvalidArgument (a session with
// tokens, or of other options or another engine than `from`) and those of Session::BeginPrompt(),
// after which nothing has changed; ResourceExhausted and IoError where pages could not be copied,
// after which the session is good only for being destroyed, and `from` goes on.
[[nodiscard]] Result<size_t> BeginPromptFrom(Session* from, std::vector<Token> prompt,
                                             Session* session);

}  // namespace ebb

#endif  // EBB_PREFIX_H_

// Prompts that begin as a session does: what the session has read of them is kept, so that only the
// rest is read. A chat's next turn begins with all the turns before it; templates that drop earlier
// thoughts change what was said, so that a session is rolled back to the place where they differ.
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

}  // namespace ebb

#endif  // EBB_PREFIX_H_


#include <algorithm>
#include <new>
#include <string>
#include <utility>

#include "ebb/generate.h"
#include "src/session/session_impl.h"

namespace ebb {
namespace {

// Returns whether both sessions compute the same rows of a prompt and may hold them in the same
// tiers. Their policies must be equal, since rows that a policy evicts while the prompt is read
// change the bits of the rows after them. A share of T0 that was set later does not matter.
// Policies that callers made (make_policy) are never taken for equal, since they may differ
// although their identities are equal.
bool ComputeTheSameRows(const Session::Impl& a, const Session::Impl& b) {
  const SessionOptions& one = a.sequence->options();
  const SessionOptions& other = b.sequence->options();
  return !one.make_policy && !other.make_policy && a.core == b.core &&
         a.sequence->policy().identity == b.sequence->policy().identity &&
         one.lossless.has_value() == other.lossless.has_value() &&
         one.past_context == other.past_context;
}

}  // namespace

size_t CommonPrefix(const Session& session, std::span<const Token> prompt) {
  if (prompt.empty()) return 0;
  const std::span<const Token> known = session.tokens();
  const size_t most = std::min(known.size(), prompt.size() - 1);
  const auto differ = std::mismatch(known.begin(), known.begin() + most, prompt.begin());
  const size_t common = differ.first - known.begin();
  if (common == known.size()) return common;
  return static_cast<size_t>(session.NearestTruncation(static_cast<Position>(common)));
}

std::optional<size_t> LongestPrefix(std::span<const Session* const> sessions,
                                    std::span<const Token> prompt) {
  std::optional<size_t> best;
  size_t longest = 0;
  for (size_t i = 0; i < sessions.size(); ++i) {
    const size_t common = CommonPrefix(*sessions[i], prompt);
    const bool is_shorter =
        best.has_value() && sessions[i]->next_position() < sessions[*best]->next_position();
    if (common == 0 || common < longest || (common == longest && !is_shorter)) continue;
    longest = common;
    best = i;
  }
  return best;
}

Result<std::span<const Token>> KeepPrefix(std::span<const Token> prompt, Session* session) {
  if (prompt.empty()) return InvalidArgument("prompt", "expected at least one token, found none");
  const size_t common = CommonPrefix(*session, prompt);
  if (common < session->tokens().size() || session->prompt_left() > 0) {
    EBB_RETURN_IF_ERROR(session->TruncateTo(static_cast<Position>(common)));
  }
  return prompt.subspan(common);
}

size_t ExactPrefix(const Session& from, std::span<const Token> prompt) {
  const Session::Impl& s = Internals::Of(from);
  // In a lossless session the draft and the store hold different rows, so it shares none.
  return s.speculator == nullptr ? s.sequence->prompt().ShareablePrefixLength(prompt) : 0;
}

Result<size_t> BeginPromptFrom(Session* from, std::vector<Token> prompt, Session* session) try {
  Session::Impl& to = Internals::Of(*session);
  EBB_RETURN_IF_ERROR(to.CheckNoPrompt());
  if (session->next_position() != 0 || !ComputeTheSameRows(Internals::Of(*from), to)) {
    return InvalidArgument(
        "a session takes rows of a prompt only if it has no tokens, and engine, policy and options "
        "equal those of the session that has them");
  }
  const size_t num_taken = ExactPrefix(*from, prompt);
  EBB_RETURN_IF_ERROR(
      to.BeginPrompt(std::move(prompt), num_taken, Internals::Of(*from).sequence.get()));
  return num_taken;
} catch (const std::bad_alloc&) {
  return OutOfMemory("no memory for the rows of a prompt");
}

}  // namespace ebb

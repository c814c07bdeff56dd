// Declares the internals of Engine and Session, for the files of this folder, session files and
// tests.
#ifndef EBB_SESSION_SESSION_IMPL_H_
#define EBB_SESSION_SESSION_IMPL_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ebb/engine.h"
#include "src/lossless/guessing_decoder.h"
#include "src/lossless/speculator.h"
#include "src/sequence/engine_core.h"
#include "src/sequence/sequence.h"
#include "src/sequence/shown_logits.h"
#include "src/session/prompt_reading.h"

namespace ebb {

// PendingPrompt is a prompt that the session reads in steps between steps of other sessions.
struct PendingPrompt {
  std::vector<Token> tokens;
  PromptReading reading;  // of `tokens`
};

// Session::Impl holds the sequence of a session and, if it is lossless, the speculator.
struct Session::Impl {
  std::shared_ptr<EngineCore> core;
  std::unique_ptr<Sequence> sequence;       // whose policy, signals, ledger and rows it shows
  std::unique_ptr<Speculator> speculator;   // of a lossless session; null: `sequence` is alone
  std::unique_ptr<GuessingDecoder> lookup;  // null: it decodes without guesses, or is lossless
  std::string speculation_obstacle;         // see Session::speculation_obstacle()
  ShownLogits logits;
  std::optional<PendingPrompt> prompt;

  // Returns the sequence that computes prompts and batches: in a lossless session the one with the
  // verified rows.
  [[nodiscard]] Sequence& store() const {
    return speculator == nullptr ? *sequence : speculator->store();
  }
  // Returns the caches of all the session's sequences, that of `sequence` first.
  [[nodiscard]] std::vector<SequenceCache*> caches() const;
  // Counts the tokens at the end of `sequence` that were verified but that the caller has not
  // decoded yet.
  [[nodiscard]] size_t num_verified_ahead() const {
    return speculator == nullptr ? 0 : speculator->num_verified_ahead();
  }
  // Removes the tokens that were verified or computed ahead. Errors: the session is broken, or was
  // before.
  [[nodiscard]] Status DiscardLookahead();
  [[nodiscard]] Status CheckUnbroken() const;
  // Returns InvalidArgument while a prompt is being read.
  [[nodiscard]] Status CheckNoPrompt() const;
  // Checks that `tokens` can be read as a prompt. Removes the tokens that were verified ahead and
  // changes nothing else. Errors: a broken session, another prompt that is being read, an empty
  // prompt, unknown tokens, no room for all of it.
  Status CheckPrompt(std::span<const Token> tokens);
  // Reads the rest of a prompt, as Session::Prefill() does.
  Status Read(PromptReading* reading, const PrefillOptions& options);
  // Begins a prompt as Session::BeginPrompt() does, and takes the rows of its first `num_taken`
  // tokens from the sequence `from`; null if num_taken is 0.
  Status BeginPrompt(std::vector<Token> tokens, size_t num_taken, Sequence* from);
};

// Internals gives this folder and tests access to the private members of Engine and Session.
struct Internals {
  static EngineCore& Of(Engine& engine) { return *engine.core_; }
  static Session::Impl& Of(Session& session) { return *session.impl_; }
  static const Session::Impl& Of(const Session& session) { return *session.impl_; }
  static Result<std::unique_ptr<Session>> Open(std::shared_ptr<EngineCore> core,
                                               const SessionOptions& options);
  // Returns the policy that a session with these options uses. Errors: options that are invalid or
  // do not fit the engine.
  static Result<Policy> MakeSessionPolicy(const EngineCore& core, const SessionOptions& options);
  // Returns the session's context in tokens: that of the options, or the trained one.
  static int ContextOf(const EngineCore& core, const SessionOptions& options);
  static Sequence& SequenceOf(Session& session) { return *Of(session).sequence; }
};

}  // namespace ebb

#endif  // EBB_SESSION_SESSION_IMPL_H_

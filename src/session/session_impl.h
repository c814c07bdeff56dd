// The internals of Engine and Session, for the files of this folder, session files and tests.
#ifndef EBB_SESSION_SESSION_IMPL_H_
#define EBB_SESSION_SESSION_IMPL_H_

#include <memory>
#include <optional>
#include <vector>

#include "ebb/engine.h"
#include "src/lossless/speculator.h"
#include "src/sequence/engine_core.h"
#include "src/sequence/sequence.h"
#include "src/sequence/shown_logits.h"
#include "src/session/prompt_reading.h"

namespace ebb {

// A prompt that is read between other sessions' steps.
struct PendingPrompt {
  std::vector<Token> tokens;
  PromptReading reading;  // of `tokens`
};

struct Session::Impl {
  std::shared_ptr<EngineCore> core;
  std::unique_ptr<Sequence> sequence;      // whose policy, signals, ledger and rows it shows
  std::unique_ptr<Speculator> speculator;  // of a lossless session; null: `sequence` is alone
  ShownLogits logits;
  std::optional<PendingPrompt> prompt;

  // The sequence that computes prompts and batches.
  [[nodiscard]] Sequence& store() const {
    return speculator == nullptr ? *sequence : speculator->store();
  }
  // The caches of all its sequences, that of `sequence` first.
  [[nodiscard]] std::vector<SequenceCache*> caches() const;
  // Tokens at the end of `sequence` that the caller has not asked for yet.
  [[nodiscard]] size_t num_verified_ahead() const {
    return speculator == nullptr ? 0 : speculator->num_verified_ahead();
  }
  // Removes them. Errors: the session is broken, or was before.
  [[nodiscard]] Status DiscardLookahead();
  [[nodiscard]] Status CheckUnbroken() const;
  // InvalidArgument while a prompt is being read.
  [[nodiscard]] Status CheckNoPrompt() const;
  // Whether these tokens can be read as a prompt. Discards the tokens ahead, and changes nothing
  // else. Errors: a broken session, a prompt that is being read or is empty, unknown tokens, no
  // room for all of it.
  Status CheckPrompt(std::span<const Token> tokens);
  // Reads the rest of a prompt, as Session::Prefill() does.
  Status Read(PromptReading* reading, const PrefillOptions& options);
  // Session::BeginPrompt() with the rows of the first `num_taken` tokens of `from`; null: none.
  Status BeginPrompt(std::vector<Token> tokens, size_t num_taken, Sequence* from);
};

// Gives this folder and tests access to the private members of Engine and Session.
struct Internals {
  static EngineCore& Of(Engine& engine) { return *engine.core_; }
  static Session::Impl& Of(Session& session) { return *session.impl_; }
  static const Session::Impl& Of(const Session& session) { return *session.impl_; }
  static Result<std::unique_ptr<Session>> Open(std::shared_ptr<EngineCore> core,
                                               const SessionOptions& options);
  // The policy that a session of these options has; errors of the options.
  static Result<Policy> MakeSessionPolicy(const EngineCore& core, const SessionOptions& options);
  // The context in tokens.
  static int ContextOf(const EngineCore& core, const SessionOptions& options);
  static Sequence& SequenceOf(Session& session) { return *Of(session).sequence; }
};

}  // namespace ebb

#endif  // EBB_SESSION_SESSION_IMPL_H_

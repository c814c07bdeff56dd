// The internals of Engine and Session, for the files of this folder, session files and tests.
#ifndef EBB_SESSION_SESSION_IMPL_H_
#define EBB_SESSION_SESSION_IMPL_H_

#include <memory>
#include <optional>
#include <vector>

#include "ebb/engine.h"
#include "src/sequence/engine_core.h"
#include "src/sequence/session_body.h"
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
  SessionOptions options;  // that it was opened with
  std::unique_ptr<SessionBody> body;
  ShownLogits logits;
  std::optional<PendingPrompt> prompt;

  // InvalidArgument while a prompt is being read.
  [[nodiscard]] Status CheckNoPrompt() const;
  // Errors of reading these tokens as a prompt that can be known before.
  Status CheckPrompt(std::span<const Token> tokens);
  // Reads the rest of a prompt, as Session::Prefill() does.
  Status Read(PromptReading* reading, const PrefillOptions& options);
  // Session::BeginPrompt() with the rows of the first `num_taken` tokens of `from`; null: none.
  Status BeginPrompt(std::vector<Token> tokens, size_t num_taken, SessionBody* from);
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
  static Sequence& SequenceOf(Session& session) { return Of(session).body->sequence(); }
};

}  // namespace ebb

#endif  // EBB_SESSION_SESSION_IMPL_H_

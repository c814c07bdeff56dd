// One turn: the session reads the tokens that it has not read yet, then an answer is generated.
// `ebb run` is a conversation of one turn.
#ifndef EBB_APPS_RUN_TURN_H_
#define EBB_APPS_RUN_TURN_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apps/ebb/exit_code.h"
#include "apps/ebb/fidelity/logprobs_file.h"
#include "apps/ebb/run/summary.h"
#include "apps/ebb/setup.h"
#include "apps/ebb/terminal/output.h"
#include "apps/ebb/terminal/tier_notices.h"
#include "ebb/generate.h"
#include "ebb/model.h"

namespace ebb::cli {

// The turn in which `text` is answered, or, in a text, continued, after the tokens that the
// session has read; an empty one goes on with the last answer. The conversation asks for thoughts
// as the options do. context: as for BeginTurn().
[[nodiscard]] Result<Turn> NextTurn(const Model& model, const CliOptions& options,
                                    const std::string& text, std::span<const Token> read,
                                    Conversation* conversation, int context = 0);
// Returns a conversation that begins as the options say.
[[nodiscard]] Conversation NewConversation(const CliOptions& options, Conversation::Kind kind);

// Whether turns are shown live: --live, and a terminal that can. It takes a session with a ledger.
[[nodiscard]] bool IsLive(const CliOptions& options);

// A prompt as run takes it: with --system and the chat template, or --raw.
[[nodiscard]] Result<Turn> PromptTurn(const Model& model, const CliOptions& options,
                                      const std::string& text);

// Returns the options of an answer to the turn, without callbacks.
[[nodiscard]] GenerateOptions GenerateOptionsFor(const CliOptions& options, const Turn& turn);

struct TurnContext {
  const CliOptions* options = nullptr;
  const std::atomic<bool>* cancel = nullptr;
  std::chrono::steady_clock::time_point start;  // for the time to the first token
  TierNotices* notices = nullptr;               // of the session
  LogprobsFile* logprobs = nullptr;
};

// Reads the tokens of the turn that the session has not read (KeepPrefix()), and answers.
// figures.prompt_tokens counts the tokens that were read. Failures are in figures.result, those of
// stdout too.
[[nodiscard]] RunFigures TakeTurn(const TurnContext& context, const Turn& turn, const Setup& setup,
                                  TextOutput* output);

// Reports what ended the turn other than its own end, and returns the exit code for it.
ExitCode ReportEnd(const GenerateResult& result);

}  // namespace ebb::cli

#endif  // EBB_APPS_RUN_TURN_H_

// One turn: what the session has not read yet is read, then an answer is generated. `ebb run` is a
// conversation of one turn.
#ifndef EBB_CLI_TURN_H_
#define EBB_CLI_TURN_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ebb/model.h"
#include "src/cli/announcer.h"
#include "src/cli/exit_code.h"
#include "src/cli/logprobs_file.h"
#include "src/cli/output.h"
#include "src/cli/setup.h"
#include "src/cli/summary.h"

namespace ebb::cli {

// An answer that another turn, perhaps of another process, goes on with.
struct OpenAnswer {
  AnswerSoFar so_far;
  std::string sampler;  // Sampler::SaveState() at its end
};

// All tokens up to the place where the answer begins, and what the answer may look like.
struct TurnInput {
  std::vector<Token> tokens;
  ChatPrompt prompt;                       // text left empty
  std::optional<OpenAnswer> goes_on = {};  // there is nothing to read then, and no tokens
};
// --raw: the tokens of the text itself. Special tokens are parsed in both, as llama.cpp does.
[[nodiscard]] Result<TurnInput> RawInput(const Model& model, std::string_view text);
[[nodiscard]] Result<TurnInput> ChatInput(const Model& model, std::span<const ChatMessage> messages,
                                          const CliOptions& options);

// Whether turns are shown live: --live, and a terminal that can. It takes a session with a ledger.
[[nodiscard]] bool IsLive(const CliOptions& options);

// A prompt as run takes it: with --system and the chat template, or --raw.
[[nodiscard]] Result<TurnInput> PromptInput(const Model& model, const CliOptions& options,
                                            std::string text);

// What the options say of an answer; no callbacks.
[[nodiscard]] GenerateOptions GenerateOptionsFor(const CliOptions& options,
                                                 const ChatPrompt& prompt);

struct TurnContext {
  const CliOptions* options = nullptr;
  const std::atomic<bool>* cancel = nullptr;
  std::chrono::steady_clock::time_point start;  // for the time to the first token
  uint64_t seed = 0;                            // of this turn
  Announcer* announcer = nullptr;               // of the session
  LogprobsFile* logprobs = nullptr;
};

// Keeps what the session's tokens and input.tokens begin with in common and forgets the rest:
// templates that drop earlier thoughts change what has been said. figures.prompt_tokens counts the
// tokens that were read anew. Failures are in figures.result, those of stdout too.
[[nodiscard]] RunFigures TakeTurn(const TurnContext& context, const TurnInput& input,
                                  const Setup& setup, TextOutput* output);

// Reports what ended the turn other than its own end, and returns the exit code for it.
ExitCode ReportEnd(const GenerateResult& result);

}  // namespace ebb::cli

#endif  // EBB_CLI_TURN_H_

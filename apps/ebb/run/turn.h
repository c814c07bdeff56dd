// Runs one turn: the session reads the tokens that it does not hold yet, then generates an answer.
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

#include "apps/common/prompt.h"
#include "apps/common/setup.h"
#include "apps/common/terminal/exit_code.h"
#include "apps/common/terminal/output.h"
#include "apps/common/tier_notices.h"
#include "apps/ebb/run/logprobs_file.h"
#include "apps/ebb/run/summary.h"
#include "ebb/generate.h"
#include "ebb/model.h"

namespace ebb::cli {

// Returns whether turns are shown by LiveView: --live was given and stdout is a terminal that can
// move its cursor. The session then needs a ledger (SessionOptions::ledger).
[[nodiscard]] bool IsLive(const CliOptions& options);

// TurnContext holds what all turns of a program share.
struct TurnContext {
  const CliOptions* options = nullptr;
  const std::atomic<bool>* cancel = nullptr;
  std::chrono::steady_clock::time_point start;  // for the time to the first token
  TierNotices* notices = nullptr;               // of the session
  LogprobsFile* logprobs = nullptr;
};

// Reads the tokens of the turn that the session does not hold yet (KeepPrefix()), generates the
// answer and writes it. figures.prompt_tokens counts the tokens that were read. Failures are in
// figures.result, including a stdout that cannot be written.
[[nodiscard]] RunFigures TakeTurn(const TurnContext& context, const Turn& turn, const Setup& setup,
                                  TextOutput* output);

// Reports an error or interruption that ended the turn, and returns the exit code.
ExitCode ReportEnd(const GenerateResult& result);

}  // namespace ebb::cli

#endif  // EBB_APPS_RUN_TURN_H_

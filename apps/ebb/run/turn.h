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

#include "apps/common/exit_code.h"
#include "apps/common/prompt.h"
#include "apps/common/setup.h"
#include "apps/common/terminal/output.h"
#include "apps/common/terminal/tier_notices.h"
#include "apps/ebb/run/logprobs_file.h"
#include "apps/ebb/run/summary.h"
#include "ebb/generate.h"
#include "ebb/model.h"

namespace ebb::cli {

// Whether turns are shown live: --live, and a terminal that can. It takes a session with a ledger.
[[nodiscard]] bool IsLive(const CliOptions& options);

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

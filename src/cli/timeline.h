// --timeline: what a simulated device did when, in a file.
#ifndef EBB_CLI_TIMELINE_H_
#define EBB_CLI_TIMELINE_H_

#include "ebb/engine.h"
#include "ebb/status.h"
#include "src/cli/options.h"

namespace ebb::cli {

// Before a long run, not after it: whether there will be a timeline, and a file that takes it.
[[nodiscard]] Status CheckTimeline(const CliOptions& options);
[[nodiscard]] Status WriteTimeline(const CliOptions& options, const Engine& engine);

}  // namespace ebb::cli

#endif  // EBB_CLI_TIMELINE_H_

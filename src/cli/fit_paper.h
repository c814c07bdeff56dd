// ebb fit --paper.
#ifndef EBB_CLI_FIT_PAPER_H_
#define EBB_CLI_FIT_PAPER_H_

#include "ebb/status.h"
#include "src/cli/options.h"

namespace ebb::cli {

// The papers' projections beside honest counts. Errors: stdout cannot be written.
[[nodiscard]] Status PrintPaper(const CliOptions& options);

}  // namespace ebb::cli

#endif  // EBB_CLI_FIT_PAPER_H_

// ebb fit --paper.
#ifndef EBB_APPS_FIT_PAPER_H_
#define EBB_APPS_FIT_PAPER_H_

#include "apps/ebb/options/options.h"
#include "ebb/status.h"

namespace ebb::cli {

// The papers' projections beside honest counts. Errors: stdout cannot be written.
[[nodiscard]] Status PrintPaper(const CliOptions& options);

}  // namespace ebb::cli

#endif  // EBB_APPS_FIT_PAPER_H_

// The fields of a lossless generation that all kinds of records have (docs/dev/formats.md).
#ifndef EBB_APPS_RUN_LOSSLESS_RECORD_H_
#define EBB_APPS_RUN_LOSSLESS_RECORD_H_

#include <nlohmann/json.hpp>

#include "ebb/lossless.h"

namespace ebb::cli {

// Adds the counts that repeat from run to run if the lengths of drafts do. `tokens` were decoded.
void AddLosslessCounts(const LosslessReport& report, double tokens, nlohmann::ordered_json* record);
// With what was looked up and the seconds that it took.
void AddLosslessFigures(const LosslessReport& report, double tokens,
                        nlohmann::ordered_json* record);

}  // namespace ebb::cli

#endif  // EBB_APPS_RUN_LOSSLESS_RECORD_H_

// Adds the fields that every record of a lossless generation has (docs/dev/formats.md).
#ifndef EBB_APPS_RUN_LOSSLESS_RECORD_H_
#define EBB_APPS_RUN_LOSSLESS_RECORD_H_

#include <nlohmann/json.hpp>

#include "ebb/lossless.h"

namespace ebb::cli {

// Adds the counts of speculative decoding and the seconds spent. `tokens` is the number of decoded
// tokens, by which bytes_read_per_token divides.
void AddLosslessFigures(const LosslessReport& report, double tokens,
                        nlohmann::ordered_json* record);

}  // namespace ebb::cli

#endif  // EBB_APPS_RUN_LOSSLESS_RECORD_H_

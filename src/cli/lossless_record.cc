#include "src/cli/lossless_record.h"

#include <algorithm>

namespace ebb::cli {

LosslessReport Since(const LosslessReport& before, const LosslessReport& now) {
  return {.drafted = now.drafted - before.drafted,
          .accepted = now.accepted - before.accepted,
          .looked_up = now.looked_up - before.looked_up,
          .accepted_looked_up = now.accepted_looked_up - before.accepted_looked_up,
          .verify_steps = now.verify_steps - before.verify_steps,
          .bytes_read = now.bytes_read - before.bytes_read,
          .rows_read = now.rows_read - before.rows_read,
          .draft_seconds = now.draft_seconds - before.draft_seconds,
          .verify_seconds = now.verify_seconds - before.verify_seconds,
          .wait_seconds = now.wait_seconds - before.wait_seconds};
}

void AddLosslessCounts(const LosslessReport& report, double tokens,
                       nlohmann::ordered_json* record) {
  (*record)["drafted"] = report.drafted;
  (*record)["accepted"] = report.accepted;
  (*record)["verify_steps"] = report.verify_steps;
  (*record)["bytes_read_per_token"] =
      static_cast<double>(report.bytes_read) / std::max(tokens, 1.0);
}

void AddLosslessFigures(const LosslessReport& report, double tokens,
                        nlohmann::ordered_json* record) {
  AddLosslessCounts(report, tokens, record);
  (*record)["looked_up"] = report.looked_up;
  (*record)["accepted_looked_up"] = report.accepted_looked_up;
  (*record)["draft_s"] = report.draft_seconds;
  (*record)["verify_s"] = report.verify_seconds;
  (*record)["wait_s"] = report.wait_seconds;
}

}  // namespace ebb::cli

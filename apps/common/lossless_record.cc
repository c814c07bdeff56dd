#include "apps/common/lossless_record.h"

#include <algorithm>

namespace ebb::cli {

void AddLosslessFigures(const LosslessReport& report, double tokens,
                        nlohmann::ordered_json* record) {
  (*record)["drafted"] = report.drafted;
  (*record)["accepted"] = report.accepted;
  (*record)["verify_steps"] = report.verify_steps;
  (*record)["bytes_read_per_token"] =
      static_cast<double>(report.bytes_read) / std::max(tokens, 1.0);
  (*record)["looked_up"] = report.looked_up;
  (*record)["accepted_looked_up"] = report.accepted_looked_up;
  (*record)["draft_s"] = report.draft_seconds;
  (*record)["verify_s"] = report.verify_seconds;
  (*record)["wait_s"] = report.wait_seconds;
}

}  // namespace ebb::cli

#include "ebb/lossless.h"

#include <string>

namespace ebb {

std::string_view VerifyName(LosslessOptions::Verify verify) {
  return verify == LosslessOptions::Verify::kExact ? "exact" : "fast";
}

Result<LosslessOptions::Verify> ParseVerify(std::string_view name) {
  for (const auto verify : {LosslessOptions::Verify::kExact, LosslessOptions::Verify::kFast}) {
    if (name == VerifyName(verify)) return verify;
  }
  return InvalidArgument("verification \"" + std::string(name) + "\"; expected exact or fast");
}

SpeculationReport Since(const SpeculationReport& before, const SpeculationReport& now) {
  return {.drafted = now.drafted - before.drafted,
          .accepted = now.accepted - before.accepted,
          .verify_steps = now.verify_steps - before.verify_steps};
}

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

}  // namespace ebb

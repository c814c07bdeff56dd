#include "ebb/lossless.h"

#include <array>
#include <string>

#include "src/base/names.h"

namespace ebb {
namespace {

constexpr std::array<Named<Speculation>, 8> kSpeculations = {
    {{"off", Speculation::kOff},
     {"auto", Speculation::kAuto},
     {"lookup", Speculation::kLookup},
     {"model", Speculation::kModel},
     {"mtp", Speculation::kMtp},
     {"eagle3", Speculation::kEagle3},
     {"assistant", Speculation::kAssistant},
     {"dflash", Speculation::kDflash}}};

}  // namespace

std::string_view VerifyName(LosslessOptions::Verify verify) {
  return verify == LosslessOptions::Verify::kExact ? "exact" : "fast";
}

Result<LosslessOptions::Verify> ParseVerify(std::string_view name) {
  for (const auto verify : {LosslessOptions::Verify::kExact, LosslessOptions::Verify::kFast}) {
    if (name == VerifyName(verify)) return verify;
  }
  return InvalidArgument("verification \"" + std::string(name) + "\"; expected exact or fast");
}

std::string_view SpeculationName(Speculation speculation) {
  return NameOf(kSpeculations, speculation);
}

Result<Speculation> ParseSpeculation(std::string_view name) {
  if (const auto speculation = ValueOf(kSpeculations, name)) return *speculation;
  return InvalidArgument("speculate",
                         "expected off, auto, lookup, model, mtp, eagle3, assistant or dflash");
}

SpeculationReport Since(const SpeculationReport& before, const SpeculationReport& now) {
  return {.drafted = now.drafted - before.drafted,
          .accepted = now.accepted - before.accepted,
          .verify_steps = now.verify_steps - before.verify_steps,
          .draft_source = now.draft_source,
          .drafted_by_source = now.drafted_by_source - before.drafted_by_source,
          .accepted_by_source = now.accepted_by_source - before.accepted_by_source};
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

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

}  // namespace ebb

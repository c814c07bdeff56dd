// The summary of a generation and of its cache's cost, for people and for programs.
#ifndef EBB_APPS_RUN_SUMMARY_H_
#define EBB_APPS_RUN_SUMMARY_H_

#include <cstdint>
#include <string>

#include <nlohmann/json.hpp>

#include "apps/common/setup.h"
#include "ebb/generate.h"
#include "ebb/lossless.h"
#include "ebb/report.h"

namespace ebb::cli {

struct RunFigures {
  uint64_t seed = 0;  // that sampling was asked to begin with
  int prompt_tokens = 0;
  double prompt_seconds = 0;               // of reading them
  double time_to_first_token_seconds = 0;  // from the start of the command, loading included
  GenerateResult result;
  LosslessReport lossless = {};  // of this generation, where the session is lossless
  std::string sampler = {};      // Sampler::SaveState() at the end; empty: there was none
};

// One line of JSON, without the newline.
[[nodiscard]] std::string JsonSummary(const RunFigures& figures, const Setup& setup);
// A few lines for people, each ending in a newline.
[[nodiscard]] std::string HumanSummary(const RunFigures& figures, const Setup& setup);

}  // namespace ebb::cli

#endif  // EBB_APPS_RUN_SUMMARY_H_

// Formats the summary of a generation and of the cost of its cache, for people and for programs.
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

// RunFigures are the measurements of one turn.
struct RunFigures {
  uint64_t seed = 0;  // that sampling was asked to begin with
  int prompt_tokens = 0;
  double prompt_seconds = 0;               // of reading them
  double time_to_first_token_seconds = 0;  // from the start of the command, loading included
  GenerateResult result;
  LosslessReport lossless = {};  // of this generation, where the session is lossless
  SpeculationReport speculation = {};
  std::string sampler = {};  // Sampler::SaveState() at the end; empty: there was none
};

// Returns the tokens per second of the decode steps; 0 if there were none.
[[nodiscard]] double DecodeRate(const GenerateResult& result);
// Returns the summary as one line of JSON, without a newline at its end.
[[nodiscard]] std::string JsonSummary(const RunFigures& figures, const Setup& setup);
// Returns the summary as a few lines for people, each with a newline.
[[nodiscard]] std::string HumanSummary(const RunFigures& figures, const Setup& setup);

}  // namespace ebb::cli

#endif  // EBB_APPS_RUN_SUMMARY_H_

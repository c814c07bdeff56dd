// Maps llama-server's `samplers`, a list of the samplers that run, to SamplingOptions. ebb runs
// penalties, top_k, top_p, min_p and temperature, in this order.
#ifndef EBB_SERVER_API_LLAMA_LLAMA_SAMPLERS_H_
#define EBB_SERVER_API_LLAMA_LLAMA_SAMPLERS_H_

#include <string>
#include <string_view>
#include <vector>

#include "ebb/sampler.h"
#include "src/server/api/json_fields.h"

namespace ebb::server {

// LlamaSamplers holds the samplers that a request names.
struct LlamaSamplers {
  bool is_given = false;
  std::vector<std::string_view> known = {};
  bool is_in_order = true;  // they are in ebb's order, each once
  std::vector<std::string> unknown = {};
};

// Reads `samplers`, an array of names or a string with a letter for each.
[[nodiscard]] LlamaSamplers ReadLlamaSamplers(JsonFields* fields);

// Refuses values that switch on a sampler that ebb lacks. Returns the names of all parameters of
// such samplers.
std::vector<std::string> RefuseLlamaSamplers(JsonFields* fields);

// Switches off the samplers that `samplers` leaves out.
void ApplyLlamaSamplers(const LlamaSamplers& samplers, SamplingOptions* sampling);

// Returns the names of the samplers that `sampling` runs.
[[nodiscard]] std::vector<std::string_view> LlamaSamplerNames(const SamplingOptions& sampling);

}  // namespace ebb::server

#endif  // EBB_SERVER_API_LLAMA_LLAMA_SAMPLERS_H_

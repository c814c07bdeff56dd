// Reads llama-server's `samplers`, the list of the samplers that run in their order.
#ifndef EBB_SERVER_API_BASE_LLAMA_SAMPLERS_H_
#define EBB_SERVER_API_BASE_LLAMA_SAMPLERS_H_

#include <string>
#include <string_view>
#include <vector>

#include "ebb/sampler.h"
#include "src/server/api/base/json_fields.h"

namespace ebb::server {

// Reads `samplers`, an array of names or a string with a letter for each, into sampling->samplers.
// Returns the names that ebb does not have, which it leaves out.
std::vector<std::string> ReadLlamaSamplers(JsonFields* fields, SamplingOptions* sampling);

// Refuses values that switch on a sampler that ebb lacks.
void RefuseLlamaSamplers(JsonFields* fields);

// Returns the names of the samplers that `sampling` runs.
[[nodiscard]] std::vector<std::string_view> LlamaSamplerNames(const SamplingOptions& sampling);

}  // namespace ebb::server

#endif  // EBB_SERVER_API_BASE_LLAMA_SAMPLERS_H_

// Reports the options that a request was answered with, under llama-server's names.
#ifndef EBB_SERVER_API_OPENAI_LLAMA_SETTINGS_H_
#define EBB_SERVER_API_OPENAI_LLAMA_SETTINGS_H_

#include <vector>

#include "src/server/api/openai/request.h"

namespace ebb::server {

// Sets the members of request->llama that repeat the settings and prompts of `jobs`.
void DescribeLlamaJobs(const Model& model, const std::vector<Job>& jobs,
                       CompletionRequest* request);
// Returns the settings of a request without fields, for GET /props.
[[nodiscard]] Json LlamaDefaults(const RequestDefaults& defaults);

}  // namespace ebb::server

#endif  // EBB_SERVER_API_OPENAI_LLAMA_SETTINGS_H_

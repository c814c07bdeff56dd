// Reads the fields of sampling: temperatures, penalties, the seed and biases of tokens.
#ifndef EBB_SERVER_API_OPENAI_SAMPLING_FIELDS_H_
#define EBB_SERVER_API_OPENAI_SAMPLING_FIELDS_H_

#include "src/server/api/base/json_fields.h"
#include "src/server/api/openai/request.h"

namespace ebb::server {

// Reads the fields into request->sampling and request->text_biases. `fields`: those of `body`.
void ReadSamplingFields(const Json& body, JsonFields* fields, CompletionRequest* request);

}  // namespace ebb::server

#endif  // EBB_SERVER_API_OPENAI_SAMPLING_FIELDS_H_

// Builds prompts for POST /infill, by which a model fills in the text between a prefix and a
// suffix.
#ifndef EBB_SERVER_API_BASE_INFILL_H_
#define EBB_SERVER_API_BASE_INFILL_H_

#include <cstddef>
#include <string>
#include <vector>

#include "ebb/model.h"
#include "src/server/api/base/api_error.h"
#include "src/server/api/base/json_fields.h"

namespace ebb::server {

struct InfillRequest {
  struct File {
    std::string name, text;
  };
  std::string prefix, suffix;
  std::string prompt;            // text after the prefix, where the answer begins
  std::vector<File> files = {};  // other files of the same repository
};

// Reads `input_prefix`, `input_suffix`, `input_extra` and `prompt`. Errors, in `fields`: 400.
[[nodiscard]] InfillRequest ReadInfill(JsonFields* fields);

// Builds the prompt as llama-server does: files, prefix, suffix, and the token of the middle. A
// prompt of more than `most` tokens is cut far from the middle: it keeps the end of the prefix, the
// beginning of the suffix (at least a quarter of the room), and the end of the files. Errors: 501
// (the vocabulary lacks one of the three tokens); those of Model::Tokenize().
[[nodiscard]] ApiResult<std::vector<Token>> InfillPrompt(const Model& model,
                                                         const InfillRequest& request, size_t most);

}  // namespace ebb::server

#endif  // EBB_SERVER_API_BASE_INFILL_H_

// Makes a model with random weights whose chat template supports tools: it can give any answer that
// obeys a grammar.
#ifndef EBB_TESTS_SERVER_TOOLS_MODEL_H_
#define EBB_TESTS_SERVER_TOOLS_MODEL_H_

#include <memory>
#include <string>

#include "ebb/model.h"
#include "ebb/status.h"
#include "tests/support/random_gguf.h"

namespace ebb::server {

[[nodiscard]] Result<std::shared_ptr<const Model>> LoadModelWithTools();
// Writes such a model to a file, for `ebb serve`.
Status WriteModelWithTools(const RandomGgufOptions& options, const std::string& path);

}  // namespace ebb::server

#endif  // EBB_TESTS_SERVER_TOOLS_MODEL_H_

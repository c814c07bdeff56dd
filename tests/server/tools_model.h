// A model with random weights whose chat template knows tools: what obeys a grammar can be had of
// it.
#ifndef EBB_TESTS_SERVER_TOOLS_MODEL_H_
#define EBB_TESTS_SERVER_TOOLS_MODEL_H_

#include <memory>

#include "ebb/model.h"
#include "ebb/status.h"

namespace ebb::server {

[[nodiscard]] Result<std::shared_ptr<const Model>> LoadModelWithTools();

}  // namespace ebb::server

#endif  // EBB_TESTS_SERVER_TOOLS_MODEL_H_

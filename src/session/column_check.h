// Checks that an engine computes the same bits in a step of several tokens as in steps of one,
// which speculative decoding relies on. The kernels are written so; the check finds an error of a
// kernel for this processor or for a shape of this model's weights.
#ifndef EBB_SESSION_COLUMN_CHECK_H_
#define EBB_SESSION_COLUMN_CHECK_H_

#include <memory>
#include <string>

#include "src/sequence/engine_core.h"

namespace ebb {

// Returns why a session of the engine must not guess; empty: it may. Decodes a few tokens twice
// when it is asked first, or takes the result that EngineOptions::checks_file has of an earlier
// program. If the check cannot run, as where memory does not suffice, the next session tries it
// again.
[[nodiscard]] std::string CheckColumns(const std::shared_ptr<EngineCore>& core);

}  // namespace ebb

#endif  // EBB_SESSION_COLUMN_CHECK_H_

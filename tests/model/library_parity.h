// ebb's engine over a graph that libllama built, against libllama's own contexts.
#ifndef EBB_TESTS_MODEL_LIBRARY_PARITY_H_
#define EBB_TESTS_MODEL_LIBRARY_PARITY_H_

#include <string>

#include "ebb/status.h"
#include "tests/support/engine/library_models.h"

namespace ebb {

struct LibraryParity {
  Status fixture;        // not OK: there is no such model, the rest is empty
  Status load;           // of ebb; Unsupported: it refuses the architecture
  double error = 0;      // normalized mean squared error of 128 tokens' logits
  double deviation = 0;  // of libllama's logits
};

[[nodiscard]] Result<LibraryParity> CompareWithLibllama(const LibraryModelOptions& options);

}  // namespace ebb

#endif  // EBB_TESTS_MODEL_LIBRARY_PARITY_H_

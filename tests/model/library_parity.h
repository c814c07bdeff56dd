// ebb's engine over a graph that libllama built, against libllama's own contexts.
#ifndef EBB_TESTS_MODEL_LIBRARY_PARITY_H_
#define EBB_TESTS_MODEL_LIBRARY_PARITY_H_

#include <map>
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

// `options` is made sharp. context: of both; 0: the trained one, of 256 tokens.
[[nodiscard]] Result<LibraryParity> CompareWithLibllama(LibraryModelOptions options,
                                                        int context = 0);

// Returns how far libllama's own logits move, by the same measure, if the model or the text is
// wrong in one way: by the name of the fault. A fault that the model cannot have is left out. What
// moves less than the tolerance of the comparison could not be seen by it.
//   angle   the base of RoPE's frequencies is a twentieth larger
//   scale   queries are a twentieth longer
//   window  windows are a token shorter
//   sinks   attention sinks are larger by 0.2
//   row     a token is another one: the logits of later tokens
[[nodiscard]] Result<std::map<std::string, double>> ErrorsOfFaults(LibraryModelOptions options);

}  // namespace ebb

#endif  // EBB_TESTS_MODEL_LIBRARY_PARITY_H_

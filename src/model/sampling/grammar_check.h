// What libllama would take too long for, or too much of the stack, in a grammar that somebody else
// wrote.
#ifndef EBB_MODEL_SAMPLING_GRAMMAR_CHECK_H_
#define EBB_MODEL_SAMPLING_GRAMMAR_CHECK_H_

#include <string_view>

#include "ebb/status.h"

namespace ebb {

// Errors: InvalidArgument: more than a megabyte; brackets within each other more than 200 deep; a
// repetition of at least more times than at most; rules that begin with each other more than 1,000
// deep, or in more than 100,000 ways. What is no grammar at all is left to libllama.
[[nodiscard]] Status CheckGrammar(std::string_view grammar);

}  // namespace ebb

#endif  // EBB_MODEL_SAMPLING_GRAMMAR_CHECK_H_

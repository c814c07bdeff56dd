// Grammars of JSON, by the schema converter of llama.cpp's common library.
#ifndef EBB_MODEL_SCHEMA_JSON_GRAMMAR_H_
#define EBB_MODEL_SCHEMA_JSON_GRAMMAR_H_

#include <string>
#include <vector>

#include "ebb/status.h"
#include "src/model/schema/schema_rewrite.h"

namespace ebb {

// The grammar (GBNF) of JSON texts whose values the schema admits. Errors: InvalidArgument.
[[nodiscard]] Result<std::string> JsonGrammar(const RewrittenSchema& rewritten);

// A grammar that the converter had a part in, without its faults: strings hold no half characters
// (\ud800), names of further members are well-formed strings, and numbers are within their bounds.
[[nodiscard]] std::string MendedGrammar(const std::string& grammar,
                                        const std::vector<BoundedNumbers>& numbers);

}  // namespace ebb

#endif  // EBB_MODEL_SCHEMA_JSON_GRAMMAR_H_

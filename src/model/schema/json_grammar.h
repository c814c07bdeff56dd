// Makes grammars of JSON by the schema converter of llama.cpp's common library.
#ifndef EBB_MODEL_SCHEMA_JSON_GRAMMAR_H_
#define EBB_MODEL_SCHEMA_JSON_GRAMMAR_H_

#include <string>
#include <vector>

#include "ebb/status.h"
#include "src/model/schema/schema_rewrite.h"

namespace ebb {

// Returns the grammar (GBNF) of JSON texts that match the schema. Errors: InvalidArgument.
[[nodiscard]] Result<std::string> JsonGrammar(const RewrittenSchema& rewritten);

// Corrects the faults of a grammar that the converter wrote: strings contain no half characters
// (\ud800), names of further members are well-formed strings, and numbers obey their bounds.
[[nodiscard]] std::string MendedGrammar(const std::string& grammar,
                                        const std::vector<BoundedNumbers>& numbers);

}  // namespace ebb

#endif  // EBB_MODEL_SCHEMA_JSON_GRAMMAR_H_

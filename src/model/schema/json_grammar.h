// Grammars of JSON, by the schema converter of llama.cpp's common library.
#ifndef EBB_MODEL_SCHEMA_JSON_GRAMMAR_H_
#define EBB_MODEL_SCHEMA_JSON_GRAMMAR_H_

#include <string>

#include "ebb/status.h"

namespace ebb {

// The grammar (GBNF) of JSON texts whose values a schema of RewriteSchema() admits.
// Errors: InvalidArgument.
[[nodiscard]] Result<std::string> JsonGrammar(const std::string& rewritten);

// A grammar that the converter had a part in, without its faults: strings hold no half characters
// (\ud800), and names of further members are well-formed strings.
[[nodiscard]] std::string MendedGrammar(const std::string& grammar);

}  // namespace ebb

#endif  // EBB_MODEL_SCHEMA_JSON_GRAMMAR_H_

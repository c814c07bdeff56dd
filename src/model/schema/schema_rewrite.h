// Rewrites JSON schemas for the converter of llama.cpp's common library, which reads some schemas
// wrongly: it lets one of `allOf`, `anyOf`, `$ref` and the keywords next to them win, misreads
// counts beyond 31 bits, and ignores unknown keywords. A rewritten schema uses only the few forms
// that the converter compiles exactly.
#ifndef EBB_MODEL_SCHEMA_SCHEMA_REWRITE_H_
#define EBB_MODEL_SCHEMA_SCHEMA_REWRITE_H_

#include <string>
#include <string_view>
#include <vector>

#include "ebb/status.h"

namespace ebb {

enum class SchemaUse {
  // Rewrites for the text of an answer. Every value of the rewritten schema is a value of the given
  // schema, but some values may be missing: members that no `properties` name, unless
  // additionalProperties asks for them; and types that the schema does not mention, if it names no
  // type.
  kAnswer,
  // Rewrites for a tool's parameters, which are an object. Constraints that a grammar cannot
  // express are left out, so that more values are admitted.
  kTool,
};

// BoundedNumbers describes numbers within bounds, which the converter does not know: in the schema,
// the constant stand_in replaces them.
struct BoundedNumbers {
  std::string stand_in;  // "-7000000000000000001"
  std::string rule;      // the name of the rule of their texts
  std::string rules;     // that rule, and those that it takes, in GBNF
};

struct RewrittenSchema {
  std::string schema;
  std::vector<BoundedNumbers> numbers = {};
  // Lists, for kTool, the parts some of whose keywords are left out, such as "properties.x"; "" is
  // the whole.
  std::vector<std::string> widened = {};
};

// Rewrites a schema. `name`, of letters and digits, makes names of definitions unique among the
// schemas of one grammar. Errors, for kAnswer alone: InvalidArgument, with the pointer of the
// keyword, for text that is no JSON; a keyword that a grammar cannot enforce; a schema that admits
// nothing or is too large. For kTool every schema has a result.
[[nodiscard]] Result<RewrittenSchema> RewriteSchema(std::string_view schema, SchemaUse use,
                                                    const std::string& name);

}  // namespace ebb

#endif  // EBB_MODEL_SCHEMA_SCHEMA_REWRITE_H_

// Rewrites JSON schemas for the converter of llama.cpp's common library. That converter reads some
// schemas as others: it lets one of `allOf`, `anyOf`, `$ref` and the keywords next to them win,
// takes counts beyond 31 bits for others, and leaves what it does not know out. What comes out of
// here has the few forms that it compiles exactly.
#ifndef EBB_MODEL_SCHEMA_SCHEMA_REWRITE_H_
#define EBB_MODEL_SCHEMA_SCHEMA_REWRITE_H_

#include <string>
#include <string_view>
#include <vector>

#include "ebb/status.h"

namespace ebb {

enum class SchemaUse {
  // The text of an answer. Every value of the rewritten schema is one of the given schema; some of
  // that schema's may be missing: members that no `properties` name, where additionalProperties
  // does not ask for them; types that it does not speak of, where it names none.
  kAnswer,
  // A tool's parameters, an object. What cannot be said is left out, so that more is admitted.
  kTool,
};

// Numbers within bounds, which the converter does not know: in the schema a number stands for them.
struct BoundedNumbers {
  std::string stand_in;  // "-7000000000000000001"
  std::string rule;      // the name of the rule of their texts
  std::string rules;     // that rule, and those that it takes, in GBNF
};

struct RewrittenSchema {
  std::string schema;
  std::vector<BoundedNumbers> numbers = {};
  // Of kTool: the parts, "properties.x", some of whose keywords are left out; "" is the whole.
  std::vector<std::string> widened = {};
};

// `name` makes the names of definitions unique among the schemas of one grammar: letters and
// digits. Errors, of kAnswer alone: InvalidArgument, with the pointer of the keyword: no JSON; a
// keyword that a grammar cannot hold to; a schema that admits nothing; one that is too large. Every
// tool's schema gives a rewritten one.
[[nodiscard]] Result<RewrittenSchema> RewriteSchema(std::string_view schema, SchemaUse use,
                                                    const std::string& name);

}  // namespace ebb

#endif  // EBB_MODEL_SCHEMA_SCHEMA_REWRITE_H_

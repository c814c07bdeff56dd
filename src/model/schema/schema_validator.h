// Whether a value is one that a schema admits, as far as that is certain. For the few values that a
// schema lists, and the names of properties.
#ifndef EBB_MODEL_SCHEMA_SCHEMA_VALIDATOR_H_
#define EBB_MODEL_SCHEMA_SCHEMA_VALIDATOR_H_

#include "src/model/schema/schema_document.h"

namespace ebb {

enum class Verdict { kNo, kUncertain, kYes };

// By JSON Schema's Draft 2020-12 and what earlier drafts say otherwise of tuples. Uncertain:
// keywords that it does not know, and formats.
[[nodiscard]] Verdict Validate(const SchemaDocument& document, const SchemaJson& value,
                               const SchemaJson& schema);

// The same by the schema's own keywords, leaving out references and combinations of schemas.
[[nodiscard]] Verdict ValidateAlone(const SchemaDocument& document, const SchemaJson& value,
                                    const SchemaJson& schema);

// Whether the value is of that type of JSON Schema ("integer" takes 1.0).
[[nodiscard]] bool IsOfType(const SchemaJson& value, std::string_view type);

}  // namespace ebb

#endif  // EBB_MODEL_SCHEMA_SCHEMA_VALIDATOR_H_

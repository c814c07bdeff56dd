// Decides whether a schema admits a value, as far as that is certain. Used for the few values that
// a schema lists, and for names of properties.
#ifndef EBB_MODEL_SCHEMA_SCHEMA_VALIDATOR_H_
#define EBB_MODEL_SCHEMA_SCHEMA_VALIDATOR_H_

#include "src/model/schema/schema_document.h"

namespace ebb {

enum class Verdict { kNo, kUncertain, kYes };

// Validates a value by JSON Schema's Draft 2020-12 and by the earlier drafts' rules for tuples.
// Returns kUncertain for formats and for keywords that it does not know.
[[nodiscard]] Verdict Validate(const SchemaDocument& document, const SchemaJson& value,
                               const SchemaJson& schema);

// Validates a value by the schema's own keywords, ignoring references and combinations of schemas.
[[nodiscard]] Verdict ValidateAlone(const SchemaDocument& document, const SchemaJson& value,
                                    const SchemaJson& schema);

// Returns whether the value has this type of JSON Schema ("integer" accepts 1.0).
[[nodiscard]] bool IsOfType(const SchemaJson& value, std::string_view type);

}  // namespace ebb

#endif  // EBB_MODEL_SCHEMA_SCHEMA_VALIDATOR_H_

// Removes schemas whose values would be infinite, since a member must contain a value of its own
// schema.
#ifndef EBB_MODEL_SCHEMA_SCHEMA_FINITE_H_
#define EBB_MODEL_SCHEMA_SCHEMA_FINITE_H_

#include <optional>

#include "src/model/schema/schema_document.h"

namespace ebb {

// Returns a rewritten schema (RewriteSchema) without the parts whose values are infinite; nullopt:
// it has no other values.
[[nodiscard]] std::optional<SchemaJson> WithoutEndless(SchemaJson schema);

}  // namespace ebb

#endif  // EBB_MODEL_SCHEMA_SCHEMA_FINITE_H_

// Schemas whose values would have no end: a member that must hold a value of its own schema.
#ifndef EBB_MODEL_SCHEMA_SCHEMA_FINITE_H_
#define EBB_MODEL_SCHEMA_SCHEMA_FINITE_H_

#include <optional>

#include "src/model/schema/schema_document.h"

namespace ebb {

// A rewritten schema (RewriteSchema) without the parts whose values have no end. Nothing: it has no
// other values.
[[nodiscard]] std::optional<SchemaJson> WithoutEndless(SchemaJson schema);

}  // namespace ebb

#endif  // EBB_MODEL_SCHEMA_SCHEMA_FINITE_H_

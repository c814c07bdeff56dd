// The formats of strings that JSON Schema names, as patterns.
#ifndef EBB_MODEL_SCHEMA_SCHEMA_FORMATS_H_
#define EBB_MODEL_SCHEMA_SCHEMA_FORMATS_H_

#include <string_view>

#include "src/model/schema/schema_rewrite.h"

namespace ebb {

// Whether JSON Schema says which strings have this format. Others ("int32", "password") are notes.
[[nodiscard]] bool IsAssertedFormat(std::string_view format);

// For answers: a pattern of strings that all have the format. For tools: one of all that have it.
// Empty: there is none.
[[nodiscard]] std::string_view FormatPattern(std::string_view format, SchemaUse use);

}  // namespace ebb

#endif  // EBB_MODEL_SCHEMA_SCHEMA_FORMATS_H_

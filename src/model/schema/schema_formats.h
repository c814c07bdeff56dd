// Provides patterns for the string formats that JSON Schema names.
#ifndef EBB_MODEL_SCHEMA_SCHEMA_FORMATS_H_
#define EBB_MODEL_SCHEMA_SCHEMA_FORMATS_H_

#include <string_view>

#include "src/model/schema/schema_rewrite.h"

namespace ebb {

// Returns whether JSON Schema defines which strings have this format. Other formats ("int32",
// "password") are mere notes.
[[nodiscard]] bool IsAssertedFormat(std::string_view format);

// Returns a pattern of a format; empty: there is none. For answers all strings that match it have
// the format; for tools all strings of the format match it.
[[nodiscard]] std::string_view FormatPattern(std::string_view format, SchemaUse use);

}  // namespace ebb

#endif  // EBB_MODEL_SCHEMA_SCHEMA_FORMATS_H_

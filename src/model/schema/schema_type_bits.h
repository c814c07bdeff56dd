// Represents the types of values that JSON Schema distinguishes as bits.
#ifndef EBB_MODEL_SCHEMA_SCHEMA_TYPE_BITS_H_
#define EBB_MODEL_SCHEMA_SCHEMA_TYPE_BITS_H_

#include <cstdint>
#include <string_view>

#include "src/model/schema/schema_document.h"

namespace ebb {

inline constexpr uint32_t kObjectType = 1;
inline constexpr uint32_t kArrayType = 2;
inline constexpr uint32_t kStringType = 4;
inline constexpr uint32_t kIntegerType = 8;
inline constexpr uint32_t kFractionType = 16;  // numbers that are no integers
inline constexpr uint32_t kBooleanType = 32;
inline constexpr uint32_t kNullType = 64;
inline constexpr uint32_t kAllTypes = 127;

// Returns the bits of the argument of `type`; 0: it is invalid.
[[nodiscard]] uint32_t TypeBits(const SchemaJson& argument);
// Returns the types that a keyword constrains; 0: all types, or the keyword constrains nothing.
[[nodiscard]] uint32_t TypeOfKeyword(std::string_view keyword);
// Returns whether a schema with this keyword may refuse values.
[[nodiscard]] bool IsConstraint(std::string_view keyword);

}  // namespace ebb

#endif  // EBB_MODEL_SCHEMA_SCHEMA_TYPE_BITS_H_

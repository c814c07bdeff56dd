// What the common library would take too long for, or too much of the stack, in a JSON schema that
// somebody else wrote.
#ifndef EBB_MODEL_CHAT_SCHEMA_CHECK_H_
#define EBB_MODEL_CHAT_SCHEMA_CHECK_H_

#include <string>
#include <string_view>

#include "ebb/status.h"

namespace ebb {

// Errors: InvalidArgument, naming `field`: more than a megabyte; schemas within each other more
// than 100 deep, or with all references written out more than 100,000 of them; references that only
// lead to themselves; names, references and patterns of more than 1,024 bytes; objects with more
// than 200 properties that may be left out. What is no JSON is left to who reads it.
[[nodiscard]] Status CheckSchema(const std::string& field, std::string_view schema);

}  // namespace ebb

#endif  // EBB_MODEL_CHAT_SCHEMA_CHECK_H_

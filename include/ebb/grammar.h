// Makes grammars (GBNF) from other descriptions of texts, for SamplingOptions::grammar.
//
// SPDX-License-Identifier: MIT
#ifndef EBB_GRAMMAR_H_
#define EBB_GRAMMAR_H_

#include <span>
#include <string>
#include <string_view>

#include "ebb/status.h"

namespace [[gnu::visibility("default")]] ebb {

// Returns a grammar of JSON texts that are valid by a JSON schema (Draft 2020-12). Every text of
// the grammar is valid. Some valid texts may be missing: members that `properties` does not name,
// unless additionalProperties asks for them; and, in a schema without `type`, values of other types
// than its keywords apply to. Errors: InvalidArgument, with the JSON pointer of the keyword that no
// grammar can enforce; for a schema that admits nothing, is too large or is not JSON.
[[nodiscard]] Result<std::string> GrammarOfSchema(std::string_view schema);

// Returns a grammar of the texts that match a regular expression (ECMAScript) as a whole. Errors:
// InvalidArgument, with the construct that no grammar can enforce.
[[nodiscard]] Result<std::string> GrammarOfRegex(std::string_view pattern);

// Returns a grammar of exactly these texts. Errors: InvalidArgument if there are none, or more than
// 1,000.
[[nodiscard]] Result<std::string> GrammarOfChoice(std::span<const std::string> choices);

}  // namespace ebb

#endif  // EBB_GRAMMAR_H_

// Grammars (GBNF) of texts that are described in other ways, for SamplingOptions::grammar.
//
// SPDX-License-Identifier: MIT
#ifndef EBB_GRAMMAR_H_
#define EBB_GRAMMAR_H_

#include <span>
#include <string>
#include <string_view>

#include "ebb/status.h"

namespace [[gnu::visibility("default")]] ebb {

// JSON that a JSON schema (Draft 2020-12) admits. Everything that the grammar admits is such a
// value. Some values may be missing: members that `properties` does not name, unless
// additionalProperties asks for them; types other than those that the keywords of a schema without
// `type` speak of. Errors: InvalidArgument, with the JSON pointer of the keyword that no grammar
// can hold to; a schema that admits nothing, is too large or is no JSON.
[[nodiscard]] Result<std::string> GrammarOfSchema(std::string_view schema);

// Texts that match a regular expression (ECMAScript) as a whole.
// Errors: InvalidArgument, with the construct that no grammar can hold to.
[[nodiscard]] Result<std::string> GrammarOfRegex(std::string_view pattern);

// One of these texts. Errors: InvalidArgument: there are none, or more than 1,000.
[[nodiscard]] Result<std::string> GrammarOfChoice(std::span<const std::string> choices);

}  // namespace ebb

#endif  // EBB_GRAMMAR_H_

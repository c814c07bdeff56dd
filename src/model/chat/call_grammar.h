// Makes grammars of tool calls from those that llama.cpp's common library makes for a template.
#ifndef EBB_MODEL_CHAT_CALL_GRAMMAR_H_
#define EBB_MODEL_CHAT_CALL_GRAMMAR_H_

#include <string>

namespace ebb {

// Returns a grammar that admits calls and nothing else; empty if `required` has no rule for calls.
// required: the library's grammar of an answer that must call, which admits any text before the
// call. chosen: its lazy grammar of the same tools, whose root is the calls; empty: it makes none.
[[nodiscard]] std::string OnlyCalls(const std::string& required, const std::string& chosen);

// Returns the library's grammar limited to one call where it admits any number. The library itself
// limits some formats only within a list.
[[nodiscard]] std::string WithOneCall(const std::string& grammar);

// Returns a grammar of the texts that at least one of two grammars admits.
[[nodiscard]] std::string EitherGrammar(const std::string& a, const std::string& b);

}  // namespace ebb

#endif  // EBB_MODEL_CHAT_CALL_GRAMMAR_H_

// Grammars of calls of tools, made of those that llama.cpp's common library makes of a template.
#ifndef EBB_MODEL_CHAT_CALL_GRAMMAR_H_
#define EBB_MODEL_CHAT_CALL_GRAMMAR_H_

#include <string>

namespace ebb {

// The grammar of calls and nothing else. required: the library's grammar of an answer that must
// call, which admits any text ahead of the call; chosen: its lazy grammar of the same tools, whose
// root are the calls; empty: it makes none.
// Empty: `required` has no rule for calls.
[[nodiscard]] std::string OnlyCalls(const std::string& required, const std::string& chosen);

// Returns the library's grammar with one call where it admits any number: it holds some formats to
// one only within a list.
[[nodiscard]] std::string WithOneCall(const std::string& grammar);

// The grammar of texts that one of two grammars admits.
[[nodiscard]] std::string EitherGrammar(const std::string& a, const std::string& b);

}  // namespace ebb

#endif  // EBB_MODEL_CHAT_CALL_GRAMMAR_H_

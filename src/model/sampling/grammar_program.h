// Compiles a grammar (GBNF) to a program that GrammarMatcher runs: one piece of code per rule, in
// which repetitions and alternatives are jumps and references to rules are calls.
#ifndef EBB_MODEL_SAMPLING_GRAMMAR_PROGRAM_H_
#define EBB_MODEL_SAMPLING_GRAMMAR_PROGRAM_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "ebb/status.h"
#include "ebb/types.h"
#include "src/model/sampling/char_set.h"

namespace ebb {

struct GrammarInstruction {
  enum class Kind : uint8_t {
    kEnd,       // of a rule
    kJump,      // to `value`
    kFork,      // to the next instruction and to `value`
    kCall,      // the code at `value`, then the next instruction
    kChar,      // the code point `value`
    kSet,       // a code point of sets[value]
    kToken,     // the token `value`, with any text
    kNotToken,  // any token but `value`
  };
  Kind kind = Kind::kEnd;
  uint32_t value = 0;  // the place of an instruction, a code point, an index in `sets` or a token
};

// GrammarProgram is the code of a grammar. Instruction 0 is a kEnd that represents the ends of all
// rules.
struct GrammarProgram {
  std::vector<GrammarInstruction> code;
  uint32_t root = 0;  // where the code of "root" begins
  std::vector<CharSet> sets;
  // Divides code points into classes: each instruction accepts all or none of the code points from
  // bounds[i] up to bounds[i + 1]. bounds[0] is 0.
  std::vector<char32_t> bounds;
  std::array<uint32_t, 128> ascii_classes = {};

  [[nodiscard]] uint32_t ClassOf(char32_t c) const;
  // Follows jumps from `at` and returns the instruction reached; 0 if the rule ends there.
  [[nodiscard]] uint32_t Settled(uint32_t at) const;
};

// FindGrammarToken finds the token that "<text>" or "<[5]>" names in a grammar.
using FindGrammarToken = std::function<Result<Token>(std::string_view name)>;

// Parses GBNF, in time and memory linear in the text and in the total size of its repetitions.
// Errors: InvalidArgument, with the line: a syntax error; missing rules; more than a megabyte, a
// million instructions, 200 nested brackets, or 2,000 repetitions. Like llama.cpp, treats an upper
// limit above 2,000 as no limit.
[[nodiscard]] Result<GrammarProgram> ParseGrammar(std::string_view grammar,
                                                  const FindGrammarToken& find_token);

}  // namespace ebb

#endif  // EBB_MODEL_SAMPLING_GRAMMAR_PROGRAM_H_

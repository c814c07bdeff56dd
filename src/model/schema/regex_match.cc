#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "src/model/sampling/thread_sets.h"
#include "src/model/schema/regex.h"
#include "src/model/schema/regex_grammar.h"

namespace ebb {

std::optional<bool> MatchesWhole(const RegexNode& node, std::string_view text, size_t* work) {
  Result<GrammarProgram> parsed = ParseGrammar(RegexGrammar(node, "root"), nullptr);
  if (!parsed.ok()) return std::nullopt;
  const auto program = std::make_shared<const GrammarProgram>(*std::move(parsed));
  ThreadSets sets(program);
  sets.SetBudget(*work);
  // Making the program costs about as much as running a thread, so it counts as such.
  bool is_spent = !sets.Spend(program->code.size());
  ThreadSets::Set set = sets.Start();
  for (const char32_t c : CodePoints(text)) {
    is_spent = is_spent || !sets.Spend(1);
    set = sets.Next(set, program->ClassOf(c));
  }
  *work = sets.budget();
  if (is_spent || sets.is_budget_spent()) return std::nullopt;
  return sets.MayEnd(set);
}

}  // namespace ebb

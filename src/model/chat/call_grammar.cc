#include "src/model/chat/call_grammar.h"

#include <algorithm>
#include <cctype>
#include <functional>
#include <map>
#include <set>
#include <string_view>
#include <vector>

namespace ebb {
namespace {

// kCallRules names the rules with which the library's formats of calls begin; each format has one
// or two of them.
constexpr std::string_view kCallRules[] = {
    "tool-call", "tool-calls", "tools", "tool-call-root", "kimi-k3-tool-call", "ling3-tool-call"};

bool IsOfRuleName(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-'; }

// Returns the expression with each name of a rule replaced by `renamed`(name).
std::string WithNames(std::string_view text,
                      const std::function<std::string(const std::string&)>& renamed) {
  std::string result;
  for (size_t i = 0; i < text.size();) {
    size_t end = i + 1;
    if (text[i] == '"' || text[i] == '[') {
      const char close = text[i] == '"' ? '"' : ']';
      while (end < text.size() && text[end] != close) end += text[end] == '\\' ? 2 : 1;
      end = std::min(end + 1, text.size());
    } else if (text[i] == '{' || text[i] == '<') {
      end = std::min(text.find(text[i] == '{' ? '}' : '>', i), text.size() - 1) + 1;
    } else if (IsOfRuleName(text[i])) {
      while (end < text.size() && IsOfRuleName(text[end])) ++end;
      result += renamed(std::string(text.substr(i, end - i)));
      i = end;
      continue;
    }
    result += text.substr(i, end - i);
    i = end;
  }
  return result;
}

using GrammarRules = std::map<std::string, std::string>;

// Parses a grammar into its rules. REQUIRES: each rule is on one line.
GrammarRules RulesOf(std::string_view grammar) {
  constexpr std::string_view kIs = " ::= ";
  GrammarRules rules;
  while (!grammar.empty()) {
    const size_t end = std::min(grammar.find('\n'), grammar.size());
    const std::string_view line = grammar.substr(0, end);
    grammar.remove_prefix(std::min(end + 1, grammar.size()));
    const size_t is = line.find(kIs);
    if (is == std::string_view::npos) continue;
    rules[std::string(line.substr(0, is))] = line.substr(is + kIs.size());
  }
  return rules;
}

std::set<std::string> NamesIn(const std::string& expression) {
  std::set<std::string> names;
  (void)WithNames(expression, [&](const std::string& name) {
    names.insert(name);
    return name;
  });
  return names;
}

std::string TextOf(const GrammarRules& rules) {
  std::string text;
  for (const auto& [name, expression] : rules) text += name + " ::= " + expression + "\n";
  return text;
}

// Returns the names of all rules that an expression refers to, directly or not.
std::set<std::string> Reachable(const GrammarRules& rules, const std::string& from) {
  std::set<std::string> reached;
  std::vector<std::string> open = {from};
  while (!open.empty()) {
    const auto rule = rules.find(open.back());
    open.pop_back();
    if (rule == rules.end()) continue;
    for (const std::string& name : NamesIn(rule->second)) {
      if (reached.insert(name).second) open.push_back(name);
    }
  }
  return reached;
}

}  // namespace

std::string OnlyCalls(const std::string& required, const std::string& chosen) {
  GrammarRules rules = RulesOf(required);
  std::set<std::string> calls;
  const GrammarRules lazy = RulesOf(chosen);
  if (const auto root = lazy.find("root"); root != lazy.end()) {
    calls = NamesIn(root->second);
  } else {
    calls.insert(std::begin(kCallRules), std::end(kCallRules));
  }
  std::erase_if(calls, [&](const std::string& name) { return !rules.contains(name); });
  // Leaves out rules that are part of other rules of calls: the outermost rule, such as a section
  // of calls, must be written as a whole.
  std::set<std::string> inner;
  for (const std::string& name : calls) {
    for (const std::string& other : Reachable(rules, name)) {
      if (other != name) inner.insert(other);
    }
  }
  std::string root;
  for (const std::string& name : calls) {
    if (!inner.contains(name)) root += (root.empty() ? "" : " | ") + name;
  }
  if (root.empty()) return "";
  rules["root"] = root;
  std::set<std::string> kept = Reachable(rules, "root");
  kept.insert("root");
  std::erase_if(rules, [&](const auto& rule) { return !kept.contains(rule.first); });
  return TextOf(rules);
}

std::string WithOneCall(const std::string& grammar) {
  GrammarRules rules = RulesOf(grammar);
  for (auto& [name, expression] : rules) {
    const bool is_calls = std::ranges::find(kCallRules, name) != std::end(kCallRules);
    if (is_calls && expression.starts_with('(') && expression.ends_with(")+")) {
      expression.pop_back();
    }
  }
  return TextOf(rules);
}

std::string EitherGrammar(const std::string& a, const std::string& b) {
  GrammarRules both;
  both["root"] = "first-root | second-root";
  for (const auto& [grammar, prefix] : {std::pair(&a, "first-"), std::pair(&b, "second-")}) {
    const auto renamed = [prefix = std::string(prefix)](const std::string& name) {
      return prefix + name;
    };
    for (const auto& [name, expression] : RulesOf(*grammar)) {
      both[renamed(name)] = WithNames(expression, renamed);
    }
  }
  return TextOf(both);
}

}  // namespace ebb

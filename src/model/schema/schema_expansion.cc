// Expands references and combinations of schemas into alternatives.
#include <algorithm>

#include "src/model/schema/schema_rewriter.h"

namespace ebb {
namespace {

constexpr size_t kMostCases = 256;
constexpr size_t kMostSeen = 2000;

}  // namespace

std::vector<SchemaCase> SchemaRewriter::Expand(SchemaCase so_far, SchemaNodes more) {
  std::vector<SchemaCase> cases;
  std::ranges::reverse(more);
  const std::set<const SchemaJson*> seen(so_far.nodes.begin(), so_far.nodes.end());
  Expand({.so_far = std::move(so_far),
          .pending = std::move(more),
          .seen = seen,
          .choices = {},
          .only = {}},
         &cases);
  return cases;
}

void SchemaRewriter::Expand(Expansion state, std::vector<SchemaCase>* cases) {
  while (!state.pending.empty()) {
    const SchemaJson* const node = state.pending.back();
    state.pending.pop_back();
    if (IsExhausted() || state.seen.size() > kMostSeen) return Fail("too many parts");
    if (!state.seen.insert(node).second) continue;
    if (!TakeNode(*node, &state)) return;
  }
  if (!state.choices.empty()) return Choose(std::move(state), cases);
  if (cases->size() >= kMostCases) return Fail("too many combinations of alternatives");
  SchemaCase one = state.so_far;
  MakeExclusive(state, &one);
  cases->push_back(std::move(one));
}

// Adds a node's keywords to the expansion. Returns false if the node admits nothing.
bool SchemaRewriter::TakeNode(const SchemaJson& node, Expansion* state) {
  if (node.is_boolean()) return node.get<bool>();
  if (!node.is_object()) {
    Refuse(node, "", "is no schema");
    return true;
  }
  state->so_far.nodes.push_back(&node);
  for (const char* keyword : {"$dynamicRef", "$recursiveRef"}) {
    if (node.contains(keyword)) Refuse(node, keyword, "is not supported");
  }
  const bool has_branch = node.contains("then") || node.contains("else");
  if (node.contains("if") && has_branch) Refuse(node, "if", "is not supported");
  // Adds the parts in reverse, since pending nodes are taken from the end.
  if (const SchemaJson* all = SchemaDocument::Find(node, "allOf")) {
    if (!all->is_array()) Refuse(node, "allOf", "is no list of schemas");
    for (size_t i = all->is_array() ? all->size() : 0; i-- > 0;) {
      state->pending.push_back(&(*all)[i]);
    }
  }
  if (const SchemaJson* reference = SchemaDocument::Find(node, "$ref")) {
    TakeReference(node, *reference, state);
  }
  for (const char* keyword : {"anyOf", "oneOf"}) {
    const SchemaJson* list = SchemaDocument::Find(node, keyword);
    if (list == nullptr) continue;
    if (!list->is_array() || list->empty()) {
      Refuse(node, keyword, "is no list of schemas");
      continue;
    }
    state->choices.emplace_back(&node, keyword);
  }
  TakeDependencies(node, state);
  if (const SchemaJson* excluded = SchemaDocument::Find(node, "not")) {
    TakeExcluded(*excluded, state);
  }
  return true;
}

void SchemaRewriter::TakeReference(const SchemaJson& node, const SchemaJson& reference,
                                   Expansion* state) {
  const SchemaJson* const target =
      reference.is_string() ? document_.Resolve(reference.get_ref<const std::string&>()) : nullptr;
  if (target == nullptr) return Refuse(node, "$ref", "leads to nothing in this schema");
  state->pending.push_back(target);
}

// Expands "with a, b is required too" into a choice: without a, or with both.
void SchemaRewriter::TakeDependencies(const SchemaJson& node, Expansion* state) {
  for (const char* keyword : {"dependentRequired", "dependentSchemas", "dependencies"}) {
    const SchemaJson* const all = SchemaDocument::Find(node, keyword);
    if (all == nullptr) continue;
    if (!all->is_object()) {
      Refuse(node, keyword, "is no object");
      continue;
    }
    for (const auto& [name, needed] : all->items()) {
      SchemaJson with = {{"required", SchemaJson::array({name})}};
      if (needed.is_array()) {
        for (const SchemaJson& other : needed) with["required"].push_back(other);
      } else {
        with["allOf"] = SchemaJson::array({needed});
      }
      SchemaJson without = SchemaJson::object();
      without["not"]["required"] = SchemaJson::array({name});
      state->pending.push_back(
          &document_.Add({{"anyOf", SchemaJson::array({without, with})}}, needed));
    }
  }
}

void SchemaRewriter::TakeExcluded(const SchemaJson& excluded, Expansion* state) {
  // Splits "not any of these" into "not this" for each.
  const SchemaJson* const any = SchemaDocument::Find(excluded, "anyOf");
  if (any != nullptr && any->is_array() && excluded.size() == 1) {
    for (const SchemaJson& one : *any) state->so_far.excluded.push_back(&one);
    return;
  }
  const SchemaJson* const twice = SchemaDocument::Find(excluded, "not");
  if (twice != nullptr && excluded.size() == 1) {
    state->pending.push_back(twice);
  } else {
    state->so_far.excluded.push_back(&excluded);
  }
}

void SchemaRewriter::Choose(Expansion state, std::vector<SchemaCase>* cases) {
  const auto [node, keyword] = state.choices.front();
  state.choices.erase(state.choices.begin());
  const SchemaJson& list = *SchemaDocument::Find(*node, keyword);
  const bool is_one = std::string_view(keyword) == "oneOf";
  for (size_t i = 0; i < list.size() && error_.empty(); ++i) {
    Expansion chosen = state;
    chosen.pending.push_back(&list[i]);
    if (is_one && list.size() > 1) chosen.only.emplace_back(node, i);
    Expand(std::move(chosen), cases);
  }
}

// Excludes the values of the other alternatives of `oneOf`.
void SchemaRewriter::MakeExclusive(const Expansion& state, SchemaCase* one) {
  for (const auto& [node, chosen] : state.only) {
    const SchemaJson& list = *SchemaDocument::Find(*node, "oneOf");
    for (size_t i = 0; i < list.size() && !only_asks_; ++i) {
      if (i == chosen || MakeDisjoint(list[i], one)) continue;
      Refuse(*node, "oneOf", "has alternatives that are not known to exclude each other");
      break;
    }
  }
}

bool SchemaRewriter::MakeDisjoint(const SchemaJson& other, SchemaCase* one) {
  if (AdmitsNothing(*one, {&other})) return true;
  const auto admits_nothing = [&](const SchemaJson& schema) {
    return AdmitsNothing(*one, {&other, &document_.Add(schema, other)});
  };
  // Objects in an answer have only named members, so it suffices that `other` admits none of those.
  SchemaJson named = SchemaJson::object();
  bool is_open = false;
  for (const SchemaJson* node : one->nodes) {
    is_open = is_open || node->contains("additionalProperties");
    const SchemaJson* const properties = SchemaDocument::Find(*node, "properties");
    if (properties == nullptr || !properties->is_object()) continue;
    for (const auto& [name, part] : properties->items()) named[name] = true;
  }
  const SchemaJson closed = {{"properties", named}, {"additionalProperties", false}};
  if (use_ == SchemaUse::kAnswer && !named.empty() && !is_open && admits_nothing(closed)) {
    return true;
  }
  if (use_ == SchemaUse::kTool) return false;
  // Requires a member whose value distinguishes the schemas, so that they exclude each other.
  for (const auto& [name, part] : named.items()) {
    const SchemaJson needed = {{"required", SchemaJson::array({name})}};
    if (!admits_nothing(needed)) continue;
    one->nodes.push_back(&document_.Add(needed, other));
    return true;
  }
  const SchemaJson* const required = SchemaDocument::Find(other, "required");
  if (required == nullptr || !required->is_array() || other.size() != 1 || required->size() != 1) {
    return false;
  }
  one->excluded.push_back(&other);
  return true;
}

}  // namespace ebb

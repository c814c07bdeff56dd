#include "src/model/schema/schema_rewriter.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "src/model/schema/schema_finite.h"
#include "src/model/schema/schema_type_bits.h"

namespace ebb {
namespace {

constexpr size_t kMostSteps = 30000;
constexpr size_t kMostBytes = size_t{1} << 20;
constexpr size_t kMostWrittenBytes = size_t{4} << 20;
constexpr size_t kMostDepth = 100;
constexpr size_t kMostNameBytes = 1024;
// kSmallParts is the size up to which a schema is written out at each use, instead of becoming a
// definition.
constexpr size_t kSmallParts = 12;

size_t PartsOf(const SchemaJson& schema, size_t most) {
  size_t parts = 1;
  if (!schema.is_structured()) return parts;
  for (const SchemaJson& part : schema) {
    if (parts > most) break;
    parts += PartsOf(part, most - parts);
  }
  return parts;
}

bool AdmitsAll(const SchemaJson* node) {
  if (node->is_boolean()) return node->get<bool>();
  return node->is_object() && std::ranges::none_of(node->items(), [](const auto& item) {
           return IsConstraint(item.key());
         });
}

// Returns why a schema is too large, so that the converter would need too much time or stack;
// empty: it is not.
std::string WhyTooLarge(const SchemaJson& part, size_t depth) {
  if (depth > kMostDepth) {
    return fmt::format("its parts lie more than {} deep within each other", kMostDepth);
  }
  if (!part.is_structured()) return "";
  for (const auto& [name, member] : part.items()) {
    if (part.is_object() && name.size() > kMostNameBytes) {
      return fmt::format("a name of more than {} bytes", kMostNameBytes);
    }
    std::string why = WhyTooLarge(member, depth + 1);
    if (!why.empty()) return why;
  }
  return "";
}

}  // namespace

void SchemaRewriter::Fail(std::string why) {
  if (error_.empty() && !only_asks_) error_ = std::move(why);
}

void SchemaRewriter::Refuse(const SchemaJson& node, const char* keyword, std::string_view why) {
  if (only_asks_) return;
  if (use_ == SchemaUse::kAnswer) {
    const std::string pointer = document_.PointerOf(node);
    const bool has_keyword = *keyword != '\0';
    return Fail(fmt::format("{}{}{} {}", pointer, has_keyword ? "/" : "", keyword, why));
  }
  std::string path = document_.PathOf(node);
  if (std::ranges::find(widened_, path) == widened_.end()) widened_.push_back(std::move(path));
}

bool SchemaRewriter::IsExhausted() {
  const bool is_too_much = ++steps_ > kMostSteps || *document_.work() == 0;
  if (is_too_much && error_.empty()) error_ = "# has too many parts";
  return !error_.empty();
}

bool SchemaRewriter::AdmitsNothing(const SchemaCase& one, SchemaNodes more) {
  const bool asked = std::exchange(only_asks_, true);
  Definitions definitions = std::exchange(definitions_, {});
  const std::vector<SchemaCase> cases = Expand(one, std::move(more));
  const bool is_empty =
      std::ranges::all_of(cases, [this](const SchemaCase& each) { return Typed(each).empty(); });
  definitions_ = std::move(definitions);
  only_asks_ = asked;
  return is_empty && error_.empty();
}

std::optional<SchemaJson> SchemaRewriter::Together(SchemaNodes nodes) {
  std::erase_if(nodes, AdmitsAll);
  if (nodes.empty()) return SchemaJson::object();
  SchemaNodes key = nodes;
  std::ranges::sort(key);
  key.erase(std::unique(key.begin(), key.end()), key.end());
  const auto refer = [](Definition* to) {
    to->is_used = true;
    return SchemaJson{{"$ref", "#/$defs/" + to->name}};
  };
  const auto known = definitions_.find(key);
  if (known != definitions_.end()) {
    Definition& definition = known->second;
    if (definition.is_open) return refer(&definition);
    if (!definition.schema.has_value()) return std::nullopt;
    const bool is_small = PartsOf(*definition.schema, kSmallParts) <= kSmallParts;
    if (is_small && !definition.is_used) return definition.schema;
    return refer(&definition);
  }
  if (IsExhausted() || depth_ > kMostDepth) {
    Fail("# has parts more than 100 deep within each other");
    return std::nullopt;
  }
  // Keeps a reference, since elements of the map do not move.
  Definition& definition = definitions_[key];
  definition.name = fmt::format("{}d{}", name_, num_definitions_++);
  ++depth_;
  SchemaJson all = SchemaJson::array();
  for (const SchemaCase& one : Expand({}, std::move(nodes))) {
    for (SchemaJson& schema : Typed(one)) {
      if (std::ranges::find(all, schema) == all.end()) all.push_back(std::move(schema));
    }
  }
  --depth_;
  definition.is_open = false;
  const bool has_any = std::ranges::any_of(all, [](const SchemaJson& s) { return s.empty(); });
  if (has_any) {
    definition.schema = SchemaJson::object();
  } else if (all.size() == 1) {
    definition.schema = std::move(all[0]);
  } else if (!all.empty()) {
    definition.schema = SchemaJson{{"anyOf", std::move(all)}};
  }
  return definition.schema;
}

SchemaJson SchemaRewriter::WithDefinitions(SchemaJson root) const {
  SchemaJson definitions = SchemaJson::object();
  for (const auto& [nodes, definition] : definitions_) {
    if (definition.is_used && definition.schema.has_value()) {
      definitions[definition.name] = *definition.schema;
    }
  }
  if (!definitions.empty()) root["$defs"] = std::move(definitions);
  return root;
}

// Merges the choices of a tool's root into one object, because parsers of calls look for the
// properties of one object.
SchemaJson SchemaRewriter::MergedRoot(SchemaJson root) {
  if (root.contains("type")) return root;
  Refuse(document_.root(), "", "");
  const SchemaJson* const choices = SchemaDocument::Find(root, "anyOf");
  SchemaJson properties = SchemaJson::object(), required;
  bool is_open = choices == nullptr;
  size_t most = 0;
  for (const SchemaJson& choice : choices == nullptr ? SchemaJson::array() : *choices) {
    const SchemaJson* const some = SchemaDocument::Find(choice, "properties");
    is_open = is_open || some == nullptr || choice.contains("additionalProperties");
    if (is_open) break;
    // Takes the order of members from the choice with the most of them.
    SchemaJson all = some->size() > most ? SchemaJson::object() : properties;
    for (const auto& [name, member] : some->items()) all.emplace(name, SchemaJson::array());
    for (const auto& [name, members] : properties.items()) all[name] = members;
    for (const auto& [name, member] : some->items()) {
      if (std::ranges::find(all[name], member) == all[name].end()) all[name].push_back(member);
    }
    properties = std::move(all);
    most = std::max(most, some->size());
    const SchemaJson needed = choice.value("required", SchemaJson::array());
    if (required.is_null()) required = needed;
    SchemaJson in_both = SchemaJson::array();
    for (const SchemaJson& name : required) {
      if (std::ranges::find(needed, name) != needed.end()) in_both.push_back(name);
    }
    required = std::move(in_both);
  }
  if (is_open) return {{"type", "object"}};
  for (auto& [name, all] : properties.items()) {
    all = all.size() == 1 ? SchemaJson(all[0]) : SchemaJson{{"anyOf", all}};
  }
  SchemaJson merged = {{"type", "object"}, {"properties", std::move(properties)}};
  if (!required.empty()) merged["required"] = std::move(required);
  return merged;
}

std::optional<SchemaJson> SchemaRewriter::Rewrite() {
  SchemaNodes nodes = {&document_.root()};
  const bool is_tool = use_ == SchemaUse::kTool;
  if (is_tool) nodes.push_back(&document_.Add({{"type", "object"}}, document_.root()));
  std::optional<SchemaJson> root = Together(nodes);
  if (root.has_value() && error_.empty()) {
    SchemaJson whole = WithDefinitions(is_tool ? MergedRoot(*std::move(root)) : *std::move(root));
    root = WithoutEndless(std::move(whole));
  }
  if (!root.has_value()) Fail("# admits no value");
  if (!error_.empty()) return std::nullopt;
  if (is_tool) return root;
  // Makes the root a definition too, so that names of members cannot be taken for names of rules.
  SchemaJson definitions = root->value("$defs", SchemaJson::object());
  root->erase("$defs");
  definitions[name_ + "root"] = *std::move(root);
  return SchemaJson{{"$ref", "#/$defs/" + name_ + "root"}, {"$defs", std::move(definitions)}};
}

Result<RewrittenSchema> RewriteSchema(std::string_view schema, SchemaUse use,
                                      const std::string& name) {
  const bool is_tool = use == SchemaUse::kTool;
  const auto refused = [&](const std::string& why) -> Result<RewrittenSchema> {
    if (is_tool) return RewrittenSchema{.schema = R"({"type":"object"})", .widened = {""}};
    return InvalidArgument("expected a JSON schema that can be held to: " + why);
  };
  if (schema.size() > kMostBytes) {
    return refused(fmt::format("# has {} bytes, more than {}", schema.size(), kMostBytes));
  }
  SchemaJson root = SchemaJson::parse(schema, nullptr, /*allow_exceptions=*/false);
  if (root.is_discarded()) return refused("# is no JSON");
  if (const std::string why = WhyTooLarge(root, 0); !why.empty()) {
    return refused("# is too large: " + why);
  }
  SchemaRewriter rewriter(std::move(root), use, name);
  const std::optional<SchemaJson> rewritten = rewriter.Rewrite();
  if (rewriter.IsExhausted() || !rewritten.has_value()) return refused(rewriter.error());
  RewrittenSchema result = {
      .schema = rewritten->dump(), .numbers = rewriter.numbers(), .widened = rewriter.widened()};
  if (result.schema.size() > kMostWrittenBytes) return refused("# has too many parts");
  return result;
}

}  // namespace ebb

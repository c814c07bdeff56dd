#include "src/model/schema/schema_finite.h"

#include <algorithm>
#include <set>
#include <string>

namespace ebb {
namespace {

class EndlessParts {
 public:
  explicit EndlessParts(const SchemaJson& root) {
    const SchemaJson* const definitions = SchemaDocument::Find(root, "$defs");
    if (definitions == nullptr) return;
    for (size_t before = 1; before != finite_.size();) {
      before = finite_.size();
      for (const auto& [name, schema] : definitions->items()) {
        if (IsFinite(schema)) finite_.insert("#/$defs/" + name);
      }
      if (finite_.size() == before) break;
    }
  }

  // Returns whether some value of the schema is finite.
  [[nodiscard]] bool IsFinite(const SchemaJson& schema) const {
    if (const SchemaJson* reference = SchemaDocument::Find(schema, "$ref")) {
      return finite_.contains(reference->get<std::string>());
    }
    const auto is_finite = [this](const SchemaJson& part) { return IsFinite(part); };
    if (const SchemaJson* any = SchemaDocument::Find(schema, "anyOf")) {
      return std::ranges::any_of(*any, is_finite);
    }
    if (const SchemaJson* items = SchemaDocument::Find(schema, "prefixItems")) {
      return std::ranges::all_of(*items, is_finite);
    }
    const SchemaJson* const items = SchemaDocument::Find(schema, "items");
    if (items != nullptr && schema.contains("minItems")) return IsFinite(*items);
    const SchemaJson* const required = SchemaDocument::Find(schema, "required");
    if (required == nullptr) return true;
    return std::ranges::all_of(*required, [&](const SchemaJson& name) {
      return IsFinite(schema["properties"][name.get<std::string>()]);
    });
  }

  // Removes the parts without finite values. REQUIRES: IsFinite(*schema).
  void Prune(SchemaJson* schema) const {
    if (!schema->is_object() || schema->contains("enum")) return;
    if (schema->contains("anyOf")) {
      SchemaJson kept = SchemaJson::array();
      for (SchemaJson& part : (*schema)["anyOf"]) {
        if (!IsFinite(part)) continue;
        Prune(&part);
        kept.push_back(std::move(part));
      }
      (*schema)["anyOf"] = std::move(kept);
    }
    if (schema->contains("prefixItems")) {
      for (SchemaJson& part : (*schema)["prefixItems"]) Prune(&part);
    }
    if (schema->contains("properties")) {
      SchemaJson kept = SchemaJson::object();
      for (auto& [name, part] : (*schema)["properties"].items()) {
        if (!IsFinite(part)) continue;
        Prune(&part);
        kept[name] = std::move(part);
      }
      (*schema)["properties"] = std::move(kept);
    }
    PruneOpen(schema, "items");
    PruneOpen(schema, "additionalProperties");
  }

 private:
  void PruneOpen(SchemaJson* schema, const char* keyword) const {
    if (!schema->contains(keyword) || !(*schema)[keyword].is_object()) return;
    if (IsFinite((*schema)[keyword])) return Prune(&(*schema)[keyword]);
    schema->erase(keyword);
    if (std::string_view(keyword) == "items") {
      (*schema)["maxItems"] = 0;
    } else if (!schema->contains("properties")) {
      (*schema)["properties"] = SchemaJson::object();
    }
  }

  std::set<std::string> finite_;
};

}  // namespace

std::optional<SchemaJson> WithoutEndless(SchemaJson schema) {
  const EndlessParts parts(schema);
  if (!parts.IsFinite(schema)) return std::nullopt;
  SchemaJson definitions = schema.value("$defs", SchemaJson::object());
  schema.erase("$defs");
  parts.Prune(&schema);
  SchemaJson kept = SchemaJson::object();
  for (auto& [name, part] : definitions.items()) {
    if (!parts.IsFinite(part)) continue;
    parts.Prune(&part);
    kept[name] = std::move(part);
  }
  if (!kept.empty()) schema["$defs"] = std::move(kept);
  return schema;
}

}  // namespace ebb

// Holds a parsed JSON schema of a request; finds its parts by JSON pointer, and the targets of its
// references.
#ifndef EBB_MODEL_SCHEMA_SCHEMA_DOCUMENT_H_
#define EBB_MODEL_SCHEMA_SCHEMA_DOCUMENT_H_

#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include <nlohmann/json.hpp>

namespace ebb {

// SchemaJson keeps the order of members, because a model writes properties in that order.
using SchemaJson = nlohmann::ordered_json;

// Returns a text that is the same for two values exactly if they are equal: 1 and 1.0 are equal,
// and the order of members does not matter.
[[nodiscard]] std::string EqualityText(const SchemaJson& value);

class SchemaDocument {
 public:
  explicit SchemaDocument(SchemaJson root);
  SchemaDocument(const SchemaDocument&) = delete;
  SchemaDocument& operator=(const SchemaDocument&) = delete;

  [[nodiscard]] const SchemaJson& root() const { return root_; }
  // Adds a schema that is not in the document's text; errors about it name `origin`, which is.
  const SchemaJson& Add(SchemaJson schema, const SchemaJson& origin);

  // Returns a part's JSON pointer, such as "#/properties/x"; the root is "#".
  [[nodiscard]] std::string PointerOf(const SchemaJson& part) const;
  // Returns a part's path as code would write it, such as "properties.x"; the root is "".
  [[nodiscard]] std::string PathOf(const SchemaJson& part) const;

  // Returns the target of a reference within the document ("#", "#/$defs/a", "#anchor"); null: it
  // has none.
  [[nodiscard]] const SchemaJson* Resolve(std::string_view reference) const;
  // Returns whether `list`, a part of the document, has an element equal to the value.
  [[nodiscard]] bool Lists(const SchemaJson& list, const SchemaJson& value) const;
  // Returns the steps that checks of values may still use: see MatchesWhole().
  [[nodiscard]] size_t* work() const { return &work_; }
  // Returns a member of a schema; null: the schema is no object or has no such member.
  [[nodiscard]] static const SchemaJson* Find(const SchemaJson& schema, const char* name);

 private:
  struct Place {
    const SchemaJson* parent = nullptr;
    std::string key = {};  // of an object's member
    size_t index = 0;      // of an array's item
  };
  void Index(const SchemaJson& part);
  [[nodiscard]] const Place* PlaceOf(const SchemaJson& part) const;
  [[nodiscard]] const SchemaJson* Follow(std::string_view pointer) const;

  const SchemaJson root_;
  std::deque<SchemaJson> added_;
  std::unordered_map<const SchemaJson*, const SchemaJson*> origins_;  // of added schemas
  std::unordered_map<const SchemaJson*, Place> places_;
  std::unordered_map<std::string, const SchemaJson*> anchors_;  // "#name", "id", "id#name"
  mutable size_t work_ = 5000000;
  mutable std::unordered_map<const SchemaJson*, std::unordered_set<std::string>> listed_;
};

}  // namespace ebb

#endif  // EBB_MODEL_SCHEMA_SCHEMA_DOCUMENT_H_

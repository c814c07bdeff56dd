#include "src/model/chat/schema_check.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace ebb {
namespace {

using Json = nlohmann::json;

constexpr size_t kMostBytes = size_t{1} << 20;
constexpr size_t kMostText = 1024;
constexpr size_t kMostDepth = 100;
constexpr size_t kMostLeftOut = 200;
constexpr double kMostSchemas = 100000;

// "#/$defs/a" in `root`, as the common library finds it; null: nothing is there.
const Json* Resolve(const Json& root, std::string_view reference) {
  if (!reference.starts_with("#/")) return nullptr;
  const Json* target = &root;
  for (std::string_view rest = reference.substr(2); target != nullptr;) {
    const size_t end = rest.find('/');
    const std::string name(rest.substr(0, end));
    size_t index = 0;
    if (target->is_object()) {
      const auto found = target->find(name);
      target = found == target->end() ? nullptr : &*found;
    } else if (target->is_array() &&
               std::from_chars(name.data(), name.data() + name.size(), index).ec == std::errc() &&
               index < target->size()) {
      target = &(*target)[index];
    } else {
      target = nullptr;
    }
    if (end == std::string_view::npos) break;
    rest.remove_prefix(end + 1);
  }
  return target;
}

const std::string* ReferenceOf(const Json& schema) {
  if (!schema.is_object()) return nullptr;
  const auto found = schema.find("$ref");
  return found == schema.end() || !found->is_string() ? nullptr
                                                      : found->get_ptr<const std::string*>();
}

class Walk {
 public:
  explicit Walk(const Json& root) : root_(root) {}

  // Nothing: it is well.
  std::optional<std::string> Why() {
    const Size size = SizeOf(root_, 1);
    if (why_.empty() && size.schemas > kMostSchemas) {
      why_ = fmt::format("with its references written out it has more than {:.0f} parts",
                         kMostSchemas);
    }
    return why_.empty() ? std::nullopt : std::optional(why_);
  }

 private:
  struct Size {
    double schemas = 1;  // with all references written out
    size_t depth = 0;    // below it
  };

  Size SizeOf(const Json& value, size_t depth) {
    Size size;
    CheckDepth(depth);
    if (!why_.empty() || !value.is_structured()) return size;
    if (value.is_object()) CheckObject(value);
    const auto add = [&](const Size& part) {
      size.schemas += part.schemas;
      size.depth = std::max(size.depth, part.depth + 1);
    };
    if (const std::string* reference = ReferenceOf(value)) add(SizeOfTarget(*reference, depth));
    for (const Json& part : value) {
      if (!why_.empty()) return size;
      if (part.is_structured()) add(SizeOf(part, depth + 1));
    }
    // A list of types is one schema for each of them.
    if (value.is_object() && value.contains("type") && value["type"].is_array()) {
      size.schemas *= std::max<double>(1, static_cast<double>(value["type"].size()));
    }
    return size;
  }

  Size SizeOfTarget(const std::string& reference, size_t depth) {
    const auto known = sizes_.find(reference);
    if (known != sizes_.end()) {
      CheckDepth(depth + known->second.depth);
      return known->second;
    }
    // One that is being looked at: a schema may hold itself.
    if (!open_.insert(reference).second) return {};
    const Json* const target = Resolve(root_, reference);
    CheckChain(target);
    const Size size = target == nullptr || !why_.empty() ? Size() : SizeOf(*target, depth + 1);
    open_.erase(reference);
    sizes_[reference] = size;
    return size;
  }

  void CheckDepth(size_t depth) {
    if (depth <= kMostDepth) return;
    why_ = fmt::format("its parts lie more than {} deep within each other", kMostDepth);
  }

  // References to references must come to an end.
  void CheckChain(const Json* target) {
    for (size_t links = 0; target != nullptr; ++links) {
      const std::string* const next = ReferenceOf(*target);
      if (next == nullptr) return;
      if (links == kMostDepth) {
        why_ = "references that lead to references without an end";
        return;
      }
      target = Resolve(root_, *next);
    }
  }

  void CheckObject(const Json& value) {
    for (const auto& [name, part] : value.items()) {
      const bool is_text = name == "$ref" || name == "pattern";
      const size_t bytes = std::max(
          name.size(), is_text && part.is_string() ? part.get_ref<const std::string&>().size() : 0);
      if (bytes > kMostText) {
        why_ = fmt::format("a name, reference or pattern of more than {} bytes", kMostText);
      }
    }
    const auto properties = value.find("properties");
    if (properties == value.end() || !properties->is_object()) return;
    const auto required = value.find("required");
    const size_t needed = required != value.end() && required->is_array() ? required->size() : 0;
    if (properties->size() > kMostLeftOut + needed) {
      why_ = fmt::format("more than {} properties of an object that may be left out", kMostLeftOut);
    }
  }

  const Json& root_;
  std::string why_;
  std::map<std::string, Size> sizes_;  // of what references lead to
  std::set<std::string> open_;
};

}  // namespace

Status CheckSchema(const std::string& field, std::string_view schema) {
  const auto refused = [&](std::string_view why) {
    return InvalidArgument(
        fmt::format("{}: expected a JSON schema that is supported: {}", field, why));
  };
  if (schema.size() > kMostBytes) {
    return refused(fmt::format("at most {} bytes, found {}", kMostBytes, schema.size()));
  }
  const Json root = Json::parse(schema, nullptr, /*allow_exceptions=*/false);
  if (root.is_discarded()) return OkStatus();
  const std::optional<std::string> why = Walk(root).Why();
  return why.has_value() ? refused(*why) : OkStatus();
}

}  // namespace ebb

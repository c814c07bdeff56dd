#include "src/model/schema/schema_document.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <vector>

#include <fmt/format.h>

namespace ebb {
namespace {

// Decodes a token of a pointer: "~1" and "~0", within a URI fragment whose bytes may be written as
// "%2F".
std::string Unescaped(std::string_view token) {
  std::string bytes;
  for (size_t i = 0; i < token.size(); ++i) {
    unsigned value = 0;
    const char* const hex = token.data() + i + 1;
    if (token[i] == '%' && i + 2 < token.size() &&
        std::from_chars(hex, hex + 2, value, 16).ptr == hex + 2) {
      bytes += static_cast<char>(value);
      i += 2;
    } else {
      bytes += token[i];
    }
  }
  std::string name;
  for (size_t i = 0; i < bytes.size(); ++i) {
    const bool is_escape = bytes[i] == '~' && i + 1 < bytes.size();
    if (is_escape && (bytes[i + 1] == '0' || bytes[i + 1] == '1')) {
      name += bytes[++i] == '0' ? '~' : '/';
    } else {
      name += bytes[i];
    }
  }
  return name;
}

std::string Escaped(std::string_view key) {
  std::string token;
  for (const char c : key) {
    if (c == '~') {
      token += "~0";
    } else if (c == '/') {
      token += "~1";
    } else {
      token += c;
    }
  }
  return token;
}

}  // namespace

SchemaDocument::SchemaDocument(SchemaJson root) : root_(std::move(root)) { Index(root_); }

const SchemaJson& SchemaDocument::Add(SchemaJson schema, const SchemaJson& origin) {
  added_.push_back(std::move(schema));
  const auto is_added = origins_.find(&origin);
  // Names the parts of the added schema by the place of its origin.
  std::deque<const SchemaJson*> parts = {&added_.back()};
  while (!parts.empty()) {
    origins_[parts.front()] = is_added == origins_.end() ? &origin : is_added->second;
    if (parts.front()->is_structured()) {
      for (const SchemaJson& part : *parts.front()) parts.push_back(&part);
    }
    parts.pop_front();
  }
  return added_.back();
}

void SchemaDocument::Index(const SchemaJson& part) {
  if (part.is_object()) {
    for (const char* name : {"$anchor", "$id", "id"}) {
      const SchemaJson* anchor = Find(part, name);
      if (anchor == nullptr || !anchor->is_string()) continue;
      const bool is_anchor = std::string_view(name) == "$anchor";
      anchors_.emplace((is_anchor ? "#" : "") + anchor->get<std::string>(), &part);
    }
    for (const auto& [key, member] : part.items()) {
      places_[&member] = {.parent = &part, .key = key};
      Index(member);
    }
  } else if (part.is_array()) {
    for (size_t i = 0; i < part.size(); ++i) {
      places_[&part[i]] = {.parent = &part, .index = i};
      Index(part[i]);
    }
  }
}

const SchemaDocument::Place* SchemaDocument::PlaceOf(const SchemaJson& part) const {
  const auto origin = origins_.find(&part);
  const auto found = places_.find(origin == origins_.end() ? &part : origin->second);
  return found == places_.end() ? nullptr : &found->second;
}

std::string SchemaDocument::PointerOf(const SchemaJson& part) const {
  std::string pointer;
  for (const Place* place = PlaceOf(part); place != nullptr; place = PlaceOf(*place->parent)) {
    pointer = "/" +
              (place->parent->is_array() ? std::to_string(place->index) : Escaped(place->key)) +
              pointer;
  }
  return "#" + pointer;
}

std::string SchemaDocument::PathOf(const SchemaJson& part) const {
  std::string path;
  for (const Place* place = PlaceOf(part); place != nullptr; place = PlaceOf(*place->parent)) {
    const std::string step =
        place->parent->is_array() ? fmt::format("[{}]", place->index) : place->key;
    path = step + (path.empty() || path[0] == '[' ? "" : ".") + path;
  }
  return path;
}

const SchemaJson* SchemaDocument::Resolve(std::string_view reference) const {
  if (reference == "#") return &root_;
  if (reference.starts_with("#/")) return Follow(reference.substr(1));
  const auto found = anchors_.find(std::string(reference));
  if (found != anchors_.end()) return found->second;
  // Resolves a reference that begins with the document's own "$id".
  const SchemaJson* id = Find(root_, "$id");
  if (id == nullptr || !id->is_string()) return nullptr;
  std::string_view name = id->get_ref<const std::string&>();
  if (name.ends_with('#')) name.remove_suffix(1);
  if (name.empty() || !reference.starts_with(name)) return nullptr;
  const std::string_view rest = reference.substr(name.size());
  return rest.starts_with('#') ? Resolve(rest) : nullptr;
}

const SchemaJson* SchemaDocument::Follow(std::string_view pointer) const {
  const SchemaJson* target = &root_;
  while (!pointer.empty()) {
    const size_t end = std::min(pointer.find('/', 1), pointer.size());
    const std::string key = Unescaped(pointer.substr(1, end - 1));
    pointer.remove_prefix(end);
    if (target->is_object()) {
      const auto found = target->find(key);
      if (found == target->end()) return nullptr;
      target = &*found;
      continue;
    }
    size_t index = 0;
    const auto [stop, error] = std::from_chars(key.data(), key.data() + key.size(), index);
    const bool is_index = error == std::errc() && stop == key.data() + key.size();
    if (!target->is_array() || !is_index || index >= target->size()) return nullptr;
    target = &(*target)[index];
  }
  return target;
}

const SchemaJson* SchemaDocument::Find(const SchemaJson& schema, const char* name) {
  if (!schema.is_object()) return nullptr;
  const auto found = schema.find(name);
  return found == schema.end() ? nullptr : &*found;
}

bool SchemaDocument::Lists(const SchemaJson& list, const SchemaJson& value) const {
  const auto [found, is_new] = listed_.try_emplace(&list);
  for (size_t i = 0; i < list.size() && is_new; ++i) found->second.insert(EqualityText(list[i]));
  return found->second.contains(EqualityText(value));
}

std::string EqualityText(const SchemaJson& value) {
  if (value.is_number_float()) {
    const auto number = value.get<double>();
    const bool is_integer = std::floor(number) == number && std::abs(number) < 9e15;
    return is_integer ? std::to_string(static_cast<int64_t>(number)) : value.dump();
  }
  if (!value.is_structured()) return value.dump();
  std::vector<std::string> parts;
  for (const auto& [key, part] : value.items()) {
    parts.push_back(value.is_object() ? SchemaJson(key).dump() + ":" + EqualityText(part)
                                      : EqualityText(part));
  }
  if (value.is_object()) std::ranges::sort(parts);
  std::string text = value.is_object() ? "{" : "[";
  for (const std::string& part : parts) text += part + ",";
  return text;
}

}  // namespace ebb

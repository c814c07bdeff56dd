#include "src/server/access/trace_context.h"

#include <algorithm>

namespace ebb::server {
namespace {

constexpr std::string_view kHex = "0123456789abcdef";

bool HasOnly(std::string_view text, std::string_view allowed) {
  return text.find_first_not_of(allowed) == std::string_view::npos;
}

// Returns whether `text` is an id: hexadecimal and not all zeros.
bool IsTraceId(std::string_view text) { return HasOnly(text, kHex) && !HasOnly(text, "0"); }

bool IsStateKey(std::string_view key) {
  constexpr size_t kMost = 256;
  constexpr std::string_view kFirst = "abcdefghijklmnopqrstuvwxyz0123456789";
  constexpr std::string_view kOthers = "abcdefghijklmnopqrstuvwxyz0123456789_-*/@";
  return !key.empty() && key.size() <= kMost && HasOnly(key.substr(0, 1), kFirst) &&
         HasOnly(key, kOthers) && std::ranges::count(key, '@') <= 1;
}

bool IsStateValue(std::string_view value) {
  constexpr size_t kMost = 256;
  return !value.empty() && value.size() <= kMost && !value.ends_with(' ') &&
         std::ranges::all_of(value,
                             [](char c) { return c >= ' ' && c <= '~' && c != ',' && c != '='; });
}

std::string_view Trim(std::string_view text) {
  constexpr std::string_view kBlanks = " \t";
  text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
  return text.substr(0, text.find_last_not_of(kBlanks) + 1);
}

}  // namespace

bool IsTraceParent(std::string_view text) {
  constexpr size_t kSize = 55, kMost = 256;
  if (text.size() < kSize || text.size() > kMost) return false;
  if (text[2] != '-' || text[35] != '-' || text[52] != '-') return false;
  const std::string_view version = text.substr(0, 2);
  if (!HasOnly(version, kHex) || version == "ff") return false;
  if (!IsTraceId(text.substr(3, 32)) || !IsTraceId(text.substr(36, 16))) return false;
  if (!HasOnly(text.substr(53, 2), kHex)) return false;
  if (text.size() == kSize) return true;
  return version != "00" && text[kSize] == '-' &&
         std::ranges::all_of(text, [](char c) { return c > ' ' && c <= '~' && c != ','; });
}

bool IsTraceState(std::string_view text) {
  constexpr size_t kMostBytes = 512, kMostMembers = 32;
  if (text.size() > kMostBytes) return false;
  size_t num_members = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find(','), text.size());
    const std::string_view member = Trim(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (member.empty()) continue;  // empty members are allowed
    const size_t equals = std::min(member.find('='), member.size() - 1);
    if (!IsStateKey(member.substr(0, equals)) || !IsStateValue(member.substr(equals + 1))) {
      return false;
    }
    ++num_members;
  }
  return num_members > 0 && num_members <= kMostMembers;
}

std::string_view TraceParentOf(const HttpRequest& request) {
  const std::string_view parent = request.header("traceparent");
  return IsTraceParent(parent) ? parent : std::string_view();
}

std::vector<std::pair<std::string, std::string>> TraceHeaders(const HttpRequest& request) {
  const std::string_view parent = TraceParentOf(request);
  if (parent.empty()) return {};
  std::vector<std::pair<std::string, std::string>> headers;
  headers.emplace_back("traceparent", parent);
  const std::string_view state = request.header("tracestate");
  if (IsTraceState(state)) headers.emplace_back("tracestate", state);
  return headers;
}

}  // namespace ebb::server

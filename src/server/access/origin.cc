#include "src/server/access/origin.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

namespace ebb::server {
namespace {

constexpr std::string_view kSmallLettersAndDigits = "abcdefghijklmnopqrstuvwxyz0123456789";

bool ConsistsOf(std::string_view text, std::string_view more) {
  return std::ranges::all_of(text, [&](char c) {
    return kSmallLettersAndDigits.find(c) != std::string_view::npos ||
           more.find(c) != std::string_view::npos;
  });
}

// An address of IPv6 stands in brackets.
bool IsHost(std::string_view text) {
  if (text.starts_with('[')) {
    return text.size() > 2 && text.ends_with(']') &&
           ConsistsOf(text.substr(1, text.size() - 2), ":.");
  }
  return !text.empty() && ConsistsOf(text, ".-_");
}

// Browsers leave out the port that the scheme implies.
bool IsPortOf(std::string_view scheme, std::string_view text) {
  constexpr int kMostPort = 65535, kHttp = 80, kHttps = 443;
  int port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  const bool is_port = error == std::errc() && end == text.data() + text.size() && port > 0 &&
                       port <= kMostPort && !text.starts_with('0');
  return is_port && !(scheme == "http" && port == kHttp) && !(scheme == "https" && port == kHttps);
}

// Returns why the text is no origin; empty: it is one.
std::string_view FaultOf(std::string_view text) {
  if (text.find_first_of(", \t\r\n") != std::string_view::npos) {
    return "it is a list or has blanks; give the option once for each origin";
  }
  if (text.find('*') != std::string_view::npos) return "a * stands for all origins, alone";
  const size_t end = text.find("://");
  if (end == std::string_view::npos) return "it has no scheme, such as https://";
  const std::string_view scheme = text.substr(0, end);
  std::string_view host = text.substr(end + 3);
  if (host.find_first_of("/?#") != std::string_view::npos) {
    return "an origin ends with its host or port, without a / or a path";
  }
  if (std::ranges::any_of(text, [](char c) { return c >= 'A' && c <= 'Z'; })) {
    return "browsers write origins in small letters";
  }
  const size_t colon = host.find(':', host.starts_with('[') ? host.find(']') : 0);
  if (colon != std::string_view::npos) {
    if (!IsPortOf(scheme, host.substr(colon + 1))) {
      return "after the host it has no port that browsers send: a number from 1 to 65535, and not "
             "80 of http or 443 of https";
    }
    host = host.substr(0, colon);
  }
  if (scheme.empty() || !ConsistsOf(scheme, "+-.")) return "the text before :// is no scheme";
  if (!IsHost(host)) return "the text after :// is no host";
  return "";
}

}  // namespace

Status CheckOrigin(std::string_view text) {
  if (text == "*" || text == "localhost" || text == "null") return OkStatus();
  const std::string_view fault = FaultOf(text);
  if (fault.empty()) return OkStatus();
  return InvalidArgument(
      fmt::format("expected an origin as browsers send it, such as https://example.org or "
                  "http://192.168.0.2:3000, or localhost, or *; found \"{}\": {}",
                  text, fault));
}

Status CheckHostName(std::string_view text) {
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  if (!lower.starts_with('[') && IsHost(lower)) return OkStatus();
  return InvalidArgument(fmt::format(
      "expected the name of a host, such as ebb.example.org, without a scheme, a port or a path; "
      "found \"{}\"; give the option once for each name",
      text));
}

}  // namespace ebb::server

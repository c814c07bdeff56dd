#include "src/server/access/origin.h"

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>
#include <string>

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

constexpr std::string_view kNoHost = "the text after :// is no host";

// Returns why browsers would not write this IPv6 address (without brackets); empty if they would.
std::string_view FaultOfAddress(std::string_view text) {
  in6_addr address = {};
  if (inet_pton(AF_INET6, std::string(text).c_str(), &address) != 1) {
    return "the text in brackets is no address of IPv6";
  }
  char shortest[INET6_ADDRSTRLEN] = {};
  inet_ntop(AF_INET6, &address, shortest, sizeof(shortest));
  // Browsers write an embedded IPv4 address in hexadecimal digits, inet_ntop() in dotted form. An
  // address with an embedded one must therefore only have no dot; any other must equal
  // inet_ntop()'s form.
  const bool has_v4 = std::string_view(shortest).find('.') != std::string_view::npos;
  if (text.find('.') == std::string_view::npos && (has_v4 || text == shortest)) return "";
  return "browsers write addresses of IPv6 in their shortest form, in hexadecimal digits";
}

bool ConsistsOfDigits(std::string_view text) {
  return text.find_first_not_of("0123456789") == std::string_view::npos;
}

// Returns whether the last label of a host is a number: browsers then parse the host as an IPv4
// address.
bool EndsInNumber(std::string_view text) {
  const std::string_view last = text.substr(text.rfind('.') + 1);
  constexpr std::string_view kHexDigits = "0123456789abcdef";
  return ConsistsOfDigits(last) ||
         (last.starts_with("0x") && last.find_first_not_of(kHexDigits, 2) == std::string::npos);
}

bool IsAddressOfV4(std::string_view text) {
  in_addr address = {};
  if (inet_pton(AF_INET, std::string(text).c_str(), &address) != 1) return false;
  char usual[INET_ADDRSTRLEN] = {};
  inet_ntop(AF_INET, &address, usual, sizeof(usual));
  return text == usual;
}

// Returns why browsers would not write this host; empty if they would. IPv6 addresses are in
// brackets.
std::string_view FaultOfHost(std::string_view text) {
  if (text.starts_with('[')) {
    if (!text.ends_with(']')) return kNoHost;
    return FaultOfAddress(text.substr(1, text.size() - 2));
  }
  if (text.ends_with('.')) text.remove_suffix(1);  // a last dot denotes the DNS root
  if (text.empty() || !ConsistsOf(text, ".-_")) return kNoHost;
  constexpr size_t kMostOfLabel = 63, kMost = 253;
  if (text.size() > kMost) return "the name of the host is longer than 253 letters";
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('.', begin), text.size());
    if (end == begin) return "the host has a dot without a name before it";
    if (end - begin > kMostOfLabel) return "a part of the host's name is longer than 63 letters";
    begin = end + 1;
  }
  if (EndsInNumber(text) && !IsAddressOfV4(text)) {
    return "a host that ends in a number is an address of IPv4, four numbers from 0 to 255";
  }
  return "";
}

// Returns whether browsers would write `text` as a port; they omit the scheme's default port.
bool IsPortOf(std::string_view scheme, std::string_view text) {
  constexpr int kMostPort = 65535, kHttp = 80, kHttps = 443;
  int port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  const bool is_port = error == std::errc() && end == text.data() + text.size() && port > 0 &&
                       port <= kMostPort && !text.starts_with('0');
  return is_port && !(scheme == "http" && port == kHttp) && !(scheme == "https" && port == kHttps);
}

// Returns why `text` is no origin; empty if it is one.
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
  return FaultOfHost(host);
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
  if (!lower.starts_with('[') && FaultOfHost(lower).empty()) return OkStatus();
  return InvalidArgument(fmt::format(
      "expected the name of a host, such as ebb.example.org, without a scheme, a port or a path; "
      "found \"{}\"; give the option once for each name",
      text));
}

}  // namespace ebb::server

#include "src/store/store_url.h"

#include <charconv>
#include <optional>

#include "src/store/file_store.h"
#include "src/store/redis_store.h"

namespace ebb::store {
namespace {

std::optional<int> NumberOf(std::string_view text, int most) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_number = error == std::errc() && end == text.data() + text.size();
  return is_number && value >= 0 && value <= most ? std::optional(value) : std::nullopt;
}

Status Expected() {
  return InvalidArgument(
      "expected file:FOLDER, redis://[[USER]:PASSWORD@]HOST[:PORT][/DB], valkey://... or "
      "redis+unix:PATH[?db=DB]");
}

constexpr int kMostDatabase = 1'000'000;

Result<StoreUrl> ParseSocket(std::string_view rest) {
  StoreUrl url = {.kind = StoreUrl::Kind::kRedis};
  const size_t query = rest.find('?');
  url.socket = rest.substr(0, query);
  if (url.socket.empty()) return Expected();
  if (query == std::string_view::npos) return url;
  const std::string_view text = rest.substr(query + 1);
  const auto database =
      text.starts_with("db=") ? NumberOf(text.substr(3), kMostDatabase) : std::nullopt;
  if (!database.has_value()) return Expected();
  url.database = *database;
  return url;
}

Result<StoreUrl> ParseHost(std::string_view rest) {
  StoreUrl url = {.kind = StoreUrl::Kind::kRedis};
  if (const size_t at = rest.rfind('@'); at != std::string_view::npos) {
    const std::string_view login = rest.substr(0, at);
    const size_t colon = login.find(':');
    if (colon == std::string_view::npos) return Expected();
    url.user = login.substr(0, colon);
    url.password = login.substr(colon + 1);
    rest.remove_prefix(at + 1);
  }
  if (const size_t slash = rest.find('/'); slash != std::string_view::npos) {
    const std::string_view text = rest.substr(slash + 1);
    const auto database = text.empty() ? 0 : NumberOf(text, kMostDatabase);
    if (!database.has_value()) return Expected();
    url.database = *database;
    rest = rest.substr(0, slash);
  }
  // Looks for the port's colon after the brackets, because an IPv6 address in brackets contains
  // colons.
  const size_t bracket = rest.rfind(']');
  const size_t colon = rest.find(':', bracket == std::string_view::npos ? 0 : bracket);
  url.host = rest.substr(0, colon);
  if (url.host.starts_with('[') && url.host.ends_with(']')) {
    url.host = url.host.substr(1, url.host.size() - 2);
  }
  if (colon != std::string_view::npos) {
    const auto port = NumberOf(rest.substr(colon + 1), 65535);
    if (!port.has_value() || *port == 0) return Expected();
    url.port = *port;
  }
  if (url.host.empty()) return Expected();
  return url;
}

}  // namespace

Result<StoreUrl> ParseStoreUrl(std::string_view text) {
  const auto behind = [&](std::string_view prefix) -> std::optional<std::string_view> {
    return text.starts_with(prefix) ? std::optional(text.substr(prefix.size())) : std::nullopt;
  };
  if (const auto folder = behind("file:"); folder.has_value() && !folder->empty()) {
    return StoreUrl{.kind = StoreUrl::Kind::kFile, .folder = std::string(*folder)};
  }
  if (const auto path = behind("redis+unix:")) return ParseSocket(*path);
  if (const auto rest = behind("redis://")) return ParseHost(*rest);
  if (const auto rest = behind("valkey://")) return ParseHost(*rest);
  return Expected();
}

Result<std::unique_ptr<SessionStore>> OpenStore(const StoreUrl& url, const StoreLimits& limits) {
  if (url.kind == StoreUrl::Kind::kFile) return CreateFileStore(url.folder, limits);
  return CreateRedisStore(url, limits);
}

}  // namespace ebb::store

#include "apps/common/models/model_name.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <system_error>

#include <fmt/format.h>

#include "apps/common/models/gguf_names.h"
#include "apps/common/models/hub_api.h"
#include "apps/common/models/net/http_client.h"
#include "apps/common/models/net/sha256.h"

namespace ebb::cli {
namespace {

constexpr std::string_view kHubPrefix = "hf:";
constexpr std::string_view kOllamaPrefix = "ollama:";

bool IsUrl(std::string_view text) {
  return text.starts_with("https://") || text.starts_with("http://");
}

// Returns whether the text consists of letters, digits and '_', with '.' and '-' between them, as
// names of the hub and the registry do.
bool IsWord(std::string_view text) {
  const auto is_letter = [](unsigned char c) {
    return c < 0x80 && (std::isalnum(c) != 0 || c == '_');
  };
  constexpr size_t kLongest = 128;
  return !text.empty() && text.size() <= kLongest && is_letter(text.front()) &&
         is_letter(text.back()) && text.find("..") == std::string_view::npos &&
         std::ranges::all_of(text, [&](char c) { return is_letter(c) || c == '.' || c == '-'; });
}

// Returns whether the text is ORG/REPO, as the hub names repositories. "--" is refused, since it
// replaces the slash in the names of the cache's folders.
bool IsRepo(std::string_view text) {
  const size_t slash = text.find('/');
  return slash != std::string_view::npos && IsWord(text.substr(0, slash)) &&
         IsWord(text.substr(slash + 1)) && text.find("--") == std::string_view::npos;
}

// Returns whether the text is ORG/REPO or ORG/REPO:QUANT, and no file's name.
bool IsBareRepo(std::string_view text) {
  std::error_code error;
  return IsRepo(text.substr(0, text.find(':'))) && !text.ends_with(".gguf") &&
         !std::filesystem::exists(text, error);
}

Status BadName(std::string_view text, std::string_view expected) {
  return InvalidArgument(fmt::format("expected {}, found \"{}\"", expected, text));
}

Result<ModelName> ParseHubName(std::string_view text) {
  const std::string_view expected = "hf:ORG/REPO, hf:ORG/REPO:QUANT or hf:ORG/REPO/FILE.gguf";
  ModelName name = {.source = ModelName::Source::kHub, .text = std::string(text)};
  const std::string_view rest = text.substr(kHubPrefix.size());
  const size_t slash = rest.find('/');
  if (slash == std::string_view::npos) return BadName(text, expected);
  const size_t end = std::min(rest.find_first_of("/:", slash + 1), rest.size());
  if (!IsRepo(rest.substr(0, end))) return BadName(text, expected);
  name.repo = rest.substr(0, end);
  if (end == rest.size()) return name;
  const std::string_view last = rest.substr(end + 1);
  if (rest[end] == ':') {
    if (!IsWord(last)) return BadName(text, expected);
    name.quant = last;
    return name;
  }
  if (!IsSafePath(last) || !last.ends_with(".gguf")) return BadName(text, expected);
  name.file = last;
  return name;
}

Result<ModelName> ParseOllamaName(std::string_view text) {
  const std::string_view expected = "ollama:NAME, ollama:NAME:TAG or ollama:NAMESPACE/NAME:TAG";
  ModelName name = {
      .source = ModelName::Source::kOllama, .text = std::string(text), .tag = "latest"};
  std::string_view rest = text.substr(kOllamaPrefix.size());
  const size_t last_slash = rest.rfind('/');
  const size_t colon = rest.find(':', last_slash == std::string_view::npos ? 0 : last_slash);
  if (colon != std::string_view::npos) {
    name.tag = rest.substr(colon + 1);
    rest = rest.substr(0, colon);
  }
  std::string space = "library";
  if (last_slash != std::string_view::npos) {
    std::string_view before = rest.substr(0, last_slash);
    rest = rest.substr(last_slash + 1);
    if (const size_t slash = before.find('/'); slash != std::string_view::npos) {
      name.host = before.substr(0, slash);
      before = before.substr(slash + 1);
      const std::string_view host = std::string_view(name.host).substr(0, name.host.find(':'));
      if (!IsWord(host) || HostOf("https://" + name.host) != name.host) {
        return BadName(text, expected);
      }
    }
    space = before;
  }
  if (!IsWord(space) || !IsWord(rest) || !IsWord(name.tag)) return BadName(text, expected);
  name.repo = fmt::format("{}/{}", space, rest);
  return name;
}

// Returns the hf: name of a file that the URL https://ENDPOINT/ORG/REPO/resolve/main/FILE (or
// .../blob/main/..., as the hub's pages link files) names, or of a repository whose page is
// https://ENDPOINT/ORG/REPO (or .../tree/main), or an empty text.
std::string HubNameOf(const std::string& url) {
  const std::string endpoint = HubEndpoint() + "/";
  if (!url.starts_with(endpoint)) return "";
  std::string_view path = std::string_view(url).substr(endpoint.size());
  path = path.substr(0, path.find('?'));
  for (const std::string_view kind : {"/resolve/main/", "/blob/main/"}) {
    const size_t at = path.find(kind);
    if (at == std::string_view::npos || path.find('%') != std::string_view::npos) continue;
    return fmt::format("hf:{}/{}", path.substr(0, at), path.substr(at + kind.size()));
  }
  for (const std::string_view end : {"/", "/tree/main"}) {
    if (path.ends_with(end)) path.remove_suffix(end.size());
  }
  return IsRepo(path) ? fmt::format("hf:{}", path) : "";
}

bool IsLoopback(const std::string& url) {
  const std::string host = HostOf(url);
  return host.starts_with("127.0.0.1:") || host.starts_with("localhost:") || host == "127.0.0.1" ||
         host == "localhost";
}

Result<ModelName> ParseUrl(std::string_view text) {
  ModelName name = {.source = ModelName::Source::kUrl, .text = std::string(text)};
  const size_t hash = text.find('#');
  name.url = text.substr(0, hash);
  if (hash != std::string_view::npos) {
    constexpr std::string_view kKey = "#sha256=";
    const std::string_view fragment = text.substr(hash);
    if (!fragment.starts_with(kKey) || !LooksLikeSha256(fragment.substr(kKey.size()))) {
      return BadName(text, "behind the URL #sha256= and 64 hexadecimal digits");
    }
    name.sha256 = fragment.substr(kKey.size());
    std::ranges::transform(name.sha256, name.sha256.begin(),
                           [](unsigned char c) { return std::tolower(c); });
  }
  if (OriginOf(name.url).empty() || HostOf(name.url).empty()) return BadName(text, "a URL");
  if (name.sha256.empty()) {
    if (const std::string hub_name = HubNameOf(name.url); !hub_name.empty()) {
      return ParseHubName(hub_name);
    }
  }
  const std::string_view path = std::string_view(name.url).substr(0, name.url.find('?'));
  const std::string_view file = path.substr(path.rfind('/') + 1);
  const auto split = ParseSplitName(file);
  if (!split || !IsSafePath(file)) return BadName(text, "a URL that ends with .gguf");
  if (split->index != 1) return BadName(text, "the URL of the first part");
  if (split->count > 1 && !name.sha256.empty()) {
    return BadName(text, "no hash behind the URL of a model in several files");
  }
  if (name.sha256.empty() && name.url.starts_with("http:") && !IsLoopback(name.url)) {
    return BadName(text, "https, or #sha256= and the hash behind an http URL");
  }
  return name;
}

}  // namespace

bool IsModelName(std::string_view text) {
  return text.starts_with(kHubPrefix) || text.starts_with(kOllamaPrefix) || IsUrl(text) ||
         IsBareRepo(text);
}

Result<ModelName> ParseModelName(std::string_view text) {
  if (text.starts_with(kHubPrefix)) return ParseHubName(text);
  if (text.starts_with(kOllamaPrefix)) return ParseOllamaName(text);
  if (IsUrl(text)) return ParseUrl(text);
  if (IsBareRepo(text)) return ParseHubName(fmt::format("{}{}", kHubPrefix, text));
  return BadName(text, kModelNameForms);
}

}  // namespace ebb::cli

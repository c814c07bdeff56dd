#include "apps/common/models/hub_api.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "apps/common/models/gguf_names.h"
#include "apps/common/models/hub_cache.h"
#include "apps/common/models/net/sha256.h"
#include "src/base/text/near_names.h"

namespace ebb::cli {
namespace {

using HubJson = nlohmann::json;

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string TextAt(const HubJson& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

bool IsCommit(std::string_view text) {
  constexpr size_t kDigits = 40;
  return text.size() == kDigits &&
         std::ranges::all_of(text, [](unsigned char c) { return std::isxdigit(c) != 0; });
}

HttpFailure FinalFailure(Status status) { return {HttpFailure::Kind::kFinal, std::move(status)}; }

HttpRequest ApiRequest(std::string url) {
  return {.url = std::move(url), .headers = {"Accept: application/json"}, .token = HubToken()};
}

// Returns the address behind rel="next" in a Link header of the form <https://...>; rel="next", or
// an empty text.
std::string NextPage(const HttpAnswer& answer) {
  const std::string link = answer.Header("link");
  const size_t begin = link.find('<');
  const size_t end = link.find('>', begin);
  if (begin == std::string::npos || end == std::string::npos) return "";
  if (link.find("rel=\"next\"", end) == std::string::npos) return "";
  return link.substr(begin + 1, end - begin - 1);
}

// Returns repositories with GGUF files whose names are near; none if the hub does not answer.
std::vector<std::string> SimilarRepos(HttpClient* client, const std::string& repo) {
  const std::string name = repo.substr(repo.find('/') + 1);
  const auto answer = client->Get(ApiRequest(fmt::format(
      "{}/api/models?search={}&filter=gguf&limit=20", HubEndpoint(), EscapedPath(name))));
  std::vector<std::string> repos;
  if (!answer.ok() || !answer->ok()) return repos;
  const HubJson found = HubJson::parse(answer->body, nullptr, false);
  if (!found.is_array()) return repos;
  for (const HubJson& model : found) {
    if (!model.is_object()) continue;
    if (std::string id = TextAt(model, "id"); !id.empty()) repos.push_back(std::move(id));
  }
  constexpr size_t kMost = 5;
  return NearNames(repo, std::move(repos), kMost);
}

Status ExplainMissing(HttpClient* client, Status status, const std::string& repo) {
  if (status.code() != StatusCode::kNotFound) return status;
  const std::vector<std::string> similar = SimilarRepos(client, repo);
  if (similar.empty()) return status;
  return NotFound(
      fmt::format("{}; near names: hf:{}", status.message(), fmt::join(similar, ", hf:")));
}

// Parses one page of the hub's list of files and appends them to *listing.
Status ReadPage(const std::string& body, HubListing* listing) {
  const HubJson page = HubJson::parse(body, nullptr, false);
  if (!page.is_array()) return Corrupt("expected a list of files from the hub, found none");
  for (const HubJson& item : page) {
    if (!item.is_object() || TextAt(item, "type") != "file") continue;
    HubFile file = {.path = TextAt(item, "path")};
    if (!IsSafePath(file.path)) {
      ++listing->num_refused;
      continue;
    }
    const auto size = item.find("size");
    if (size != item.end() && size->is_number_unsigned()) file.bytes = size->get<uint64_t>();
    const auto lfs = item.find("lfs");
    if (lfs != item.end() && lfs->is_object()) {
      file.sha256 = TextAt(*lfs, "oid");
      if (file.sha256.starts_with("sha256:")) file.sha256.erase(0, 7);
      std::ranges::transform(file.sha256, file.sha256.begin(),
                             [](unsigned char c) { return std::tolower(c); });
      if (!LooksLikeSha256(file.sha256)) file.sha256.clear();
      const auto lfs_size = lfs->find("size");
      if (lfs_size != lfs->end() && lfs_size->is_number_unsigned()) {
        file.bytes = lfs_size->get<uint64_t>();
      }
    }
    listing->files.push_back(std::move(file));
  }
  return OkStatus();
}

}  // namespace

std::string HubEndpoint() {
  std::string endpoint = Variable("HF_ENDPOINT");
  if (endpoint.empty()) endpoint = "https://huggingface.co";
  while (endpoint.ends_with('/')) endpoint.pop_back();
  return endpoint;
}

std::string HubToken() {
  std::string token = Variable("HF_TOKEN");
  if (token.empty()) {
    std::string path = Variable("HF_TOKEN_PATH");
    if (path.empty() && !HubHome().empty()) path = HubHome() + "/token";
    std::ifstream file(path);
    std::getline(file, token);
  }
  // A line break within the token would begin another header.
  std::erase_if(token, [](unsigned char c) { return std::isgraph(c) == 0; });
  return token;
}

bool HubIsOffline() {
  std::string value = Variable("HF_HUB_OFFLINE");
  std::ranges::transform(value, value.begin(), [](unsigned char c) { return std::toupper(c); });
  return value == "1" || value == "ON" || value == "YES" || value == "TRUE";
}

Status ExplainHubAnswer(const HttpAnswer& answer, const std::string& repo) {
  constexpr long kUnauthorized = 401;
  constexpr long kForbidden = 403;
  constexpr long kNotFound404 = 404;
  const std::string code = answer.Header("x-error-code");
  const bool has_token = !HubToken().empty();
  const std::string page = fmt::format("{}/{}", HubEndpoint(), repo);
  if (code == "GatedRepo" || answer.status == kForbidden) {
    return Unsupported(
        fmt::format("hf:{} is gated: accept its licence at {}, and {}", repo, page,
                    has_token ? "set HF_TOKEN to a token that may read it (the one in use may not)"
                              : "set HF_TOKEN to a token of that account"));
  }
  if (code == "RepoNotFound" || answer.status == kUnauthorized || answer.status == kNotFound404) {
    if (code == "EntryNotFound") {
      return NotFound(fmt::format("{}: the hub has no such file", answer.url));
    }
    return NotFound(fmt::format(
        "the hub has no repository hf:{}, or it is private: check the name, or set HF_TOKEN to a "
        "token that may read it{}",
        repo, has_token ? " (the one in use may not)" : ""));
  }
  const std::string message = answer.Header("x-error-message");
  return IoError(fmt::format("{} answered {}{}{}", HostOf(answer.url), answer.status,
                             message.empty() ? "" : ": ", message));
}

Result<HubListing, HttpFailure> ListHubFiles(HttpClient* client, const std::string& repo) {
  const std::string api = fmt::format("{}/api/models/{}", HubEndpoint(), repo);
  auto answer = client->Get(ApiRequest(api));
  if (!answer.ok()) return std::move(answer).error();
  if (!answer->ok()) {
    return FinalFailure(ExplainMissing(client, ExplainHubAnswer(*answer, repo), repo));
  }
  const HubJson info = HubJson::parse(answer->body, nullptr, false);
  HubListing listing = {.commit = info.is_object() ? TextAt(info, "sha") : ""};
  if (!IsCommit(listing.commit)) {
    return FinalFailure(Corrupt(fmt::format(
        "{}: expected a commit of 40 hexadecimal digits, found \"{}\"", api, listing.commit)));
  }
  constexpr int kMostPages = 100;
  std::string url = fmt::format("{}/tree/{}?recursive=true", api, listing.commit);
  for (int page = 0; page < kMostPages && !url.empty(); ++page) {
    if (OriginOf(url) != OriginOf(api)) {
      return FinalFailure(Corrupt(fmt::format("the hub's list of files goes on at {}", url)));
    }
    answer = client->Get(ApiRequest(url));
    if (!answer.ok()) return std::move(answer).error();
    if (!answer->ok()) return FinalFailure(ExplainHubAnswer(*answer, repo));
    if (Status status = ReadPage(answer->body, &listing); !status.ok()) {
      return FinalFailure(status.WithPrefix(url));
    }
    url = NextPage(*answer);
  }
  return listing;
}

std::string HubFileUrl(const std::string& repo, const std::string& commit,
                       const std::string& path) {
  return fmt::format("{}/{}/resolve/{}/{}", HubEndpoint(), repo, commit, EscapedPath(path));
}

}  // namespace ebb::cli

#include "tests/support/hub/fake_hub.h"

#include <algorithm>
#include <array>
#include <cstdlib>

#include <fmt/format.h>
#include <sodium/crypto_hash_sha256.h>
#include <nlohmann/json.hpp>

namespace ebb {
namespace {

using Json = nlohmann::json;

ServerAnswer Error(int status, const std::string& code, const std::string& message) {
  return {.status = status,
          .headers = {{"X-Error-Code", code},
                      {"X-Error-Message", message},
                      {"Content-Type", "application/json"}},
          .body = Json({{"error", message}}).dump()};
}

ServerAnswer JsonAnswer(const Json& json) {
  return {.headers = {{"Content-Type", "application/json; charset=utf-8"}}, .body = json.dump()};
}

}  // namespace

std::string HexSha256(const std::string& bytes) {
  std::array<unsigned char, crypto_hash_sha256_BYTES> hash = {};
  crypto_hash_sha256(hash.data(), reinterpret_cast<const unsigned char*>(bytes.data()),
                     bytes.size());
  std::string text;
  for (const unsigned char byte : hash) text += fmt::format("{:02x}", byte);
  return text;
}

std::string FakeGguf(size_t size, char filler) {
  std::string bytes = "GGUF";
  while (bytes.size() < size) bytes += fmt::format("{}{}", filler, bytes.size());
  bytes.resize(size);
  return bytes;
}

FakeHub::FakeHub()
    : cdn_([this](const SeenRequest& request) {
        ServerAnswer answer = AnswerOfCdn(request);
        if (tamper_cdn) tamper_cdn(request, &answer);
        return answer;
      }),
      hub_([this](const SeenRequest& request) {
        ServerAnswer answer = AnswerOfHub(request);
        if (tamper_hub) tamper_hub(request, &answer);
        return answer;
      }) {}

bool FakeHub::HasGoodToken(const SeenRequest& request) const {
  return request.Header("authorization") == "Bearer " + good_token;
}

ServerAnswer FakeHub::AnswerOfHub(const SeenRequest& request) {
  const std::string path = request.target.substr(0, request.target.find('?'));
  if (path.starts_with("/v2/")) return Registry(path.substr(4));
  if (path == "/api/models") {
    const size_t at = request.target.find("search=");
    std::string wanted = at == std::string::npos ? "" : request.target.substr(at + 7);
    wanted.resize(std::min(wanted.find('&'), wanted.size()));
    Json found = Json::array();
    // The hub finds parts of names.
    for (const auto& [name, repo] : repos) {
      if (name.find(wanted.substr(0, 4)) != std::string::npos) found.push_back({{"id", name}});
    }
    return JsonAnswer(found);
  }
  if (path.starts_with("/api/models/")) return Api(request, path.substr(12));
  if (path.find("/resolve/") != std::string::npos) return Resolve(request, path.substr(1));
  return Error(404, "", "Sorry, we can't find the page you are looking for.");
}

// ORG/REPO, or ORG/REPO/tree/COMMIT.
ServerAnswer FakeHub::Api(const SeenRequest& request, const std::string& path) {
  const size_t end = std::min(path.find('/', path.find('/') + 1), path.size());
  const std::string name = path.substr(0, end);
  const auto repo = repos.find(name);
  if (repo == repos.end() || (repo->second.is_private && !HasGoodToken(request))) {
    const bool has_token = !request.Header("authorization").empty();
    return Error(has_token ? 404 : 401, "RepoNotFound", "Repository not found");
  }
  if (end == path.size()) {
    return JsonAnswer({{"id", name},
                       {"sha", repo->second.commit},
                       {"gated", repo->second.is_gated ? Json("manual") : Json(false)}});
  }
  if (path.substr(end) != "/tree/" + repo->second.commit) {
    return Error(404, "RevisionNotFound", "Invalid rev id");
  }
  const size_t cursor = request.target.find("cursor=");
  const size_t first =
      cursor == std::string::npos ? 0 : std::strtoull(&request.target[cursor + 7], nullptr, 10);
  return List(name, repo->second, first);
}

ServerAnswer FakeHub::List(const std::string& repo_name, const FakeRepo& repo, size_t first) const {
  Json all = Json::array();
  all.push_back({{"type", "directory"}, {"oid", std::string(40, 'd')}, {"size", 0}, {"path", "x"}});
  for (const auto& [path, bytes] : repo.files) {
    const auto false_oid = repo.false_oid.find(path);
    const std::string oid =
        false_oid == repo.false_oid.end() ? HexSha256(bytes) : false_oid->second;
    Json item = {
        {"type", "file"}, {"oid", std::string(40, 'c')}, {"size", bytes.size()}, {"path", path}};
    if (path.ends_with(".gguf") && !oid.empty()) {
      item["lfs"] = {{"oid", oid}, {"size", bytes.size()}, {"pointerSize", 135}};
    }
    all.push_back(item);
  }
  for (const std::string& path : repo.listed_only) {
    all.push_back({{"type", "file"},
                   {"oid", std::string(40, 'c')},
                   {"size", 9},
                   {"path", path},
                   {"lfs", {{"oid", std::string(64, 'e')}, {"size", 9}, {"pointerSize", 135}}}});
  }
  Json page = Json::array();
  const size_t end = std::min(first + page_size, all.size());
  for (size_t i = first; i < end; ++i) page.push_back(all[i]);
  ServerAnswer answer = JsonAnswer(page);
  if (end < all.size()) {
    answer.headers.emplace_back(
        "Link", fmt::format("<{}/api/models/{}/tree/{}?recursive=true&cursor={}>; rel=\"next\"",
                            url(), repo_name, repo.commit, end));
  }
  return answer;
}

// ORG/REPO/resolve/COMMIT/PATH.
ServerAnswer FakeHub::Resolve(const SeenRequest& request, const std::string& path) {
  const size_t at = path.find("/resolve/");
  const auto repo = repos.find(path.substr(0, at));
  const size_t slash = path.find('/', at + 9);
  if (repo == repos.end() || (repo->second.is_private && !HasGoodToken(request))) {
    return Error(401, "RepoNotFound", "Repository not found");
  }
  if (repo->second.is_gated && !HasGoodToken(request)) {
    const bool has_token = !request.Header("authorization").empty();
    return Error(has_token ? 403 : 401, "GatedRepo",
                 "Access to model is restricted. You must be authenticated to access it.");
  }
  const auto file = repo->second.files.find(path.substr(slash + 1));
  if (file == repo->second.files.end()) return Error(404, "EntryNotFound", "Entry not found");
  const std::string sha256 = HexSha256(file->second);
  return {.status = 302,
          .headers = {{"Location", fmt::format("{}/{}?signature=x", cdn_url(), sha256)},
                      {"X-Repo-Commit", repo->second.commit},
                      {"X-Linked-Etag", fmt::format("\"{}\"", sha256)},
                      {"X-Linked-Size", fmt::format("{}", file->second.size())}},
          .body = "Found. Redirecting to the CDN"};
}

// NAMESPACE/NAME/manifests/TAG, or NAMESPACE/NAME/blobs/sha256:HEX.
ServerAnswer FakeHub::Registry(const std::string& path) {
  const size_t manifests = path.find("/manifests/");
  if (manifests != std::string::npos) {
    const auto model = ollama.find(path.substr(0, manifests) + ":" + path.substr(manifests + 11));
    if (model == ollama.end()) {
      return {.status = 404,
              .body = R"({"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]})"};
    }
    const auto layer = [](const std::string& type, const std::string& bytes) {
      return Json({{"mediaType", "application/vnd.ollama.image." + type},
                   {"digest", "sha256:" + HexSha256(bytes)},
                   {"size", bytes.size()}});
    };
    Json manifest = {{"schemaVersion", 2},
                     {"mediaType", "application/vnd.docker.distribution.manifest.v2+json"},
                     {"config", layer("config", "{}")},
                     {"layers",
                      {layer("model", model->second), layer("template", "{{ .Prompt }}"),
                       layer("license", "MIT")}}};
    return JsonAnswer(manifest);
  }
  const size_t digest = path.find("sha256:");
  return {.status = 307,
          .headers = {{"Location", fmt::format("{}/{}", cdn_url(), path.substr(digest + 7))}}};
}

ServerAnswer FakeHub::AnswerOfCdn(const SeenRequest& request) {
  const std::string wanted = request.target.substr(1, 64);
  std::vector<const std::string*> contents;
  for (const auto& [name, repo] : repos) {
    for (const auto& [path, bytes] : repo.files) contents.push_back(&bytes);
  }
  for (const auto& [name, bytes] : ollama) contents.push_back(&bytes);
  for (const std::string* bytes : contents) {
    if (HexSha256(*bytes) != wanted) continue;
    const std::string etag = fmt::format("\"{}\"", wanted.substr(0, 32));
    ServerAnswer answer = {.headers = {{"ETag", etag}}, .body = *bytes};
    if (honours_ranges) {
      answer.headers.emplace_back("Accept-Ranges", "bytes");
      ApplyRange(request, etag, &answer);
    }
    return answer;
  }
  return {.status = 404, .body = "NoSuchKey"};
}

}  // namespace ebb

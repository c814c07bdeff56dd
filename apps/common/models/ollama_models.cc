#include "apps/common/models/ollama_models.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include "apps/common/models/fetch_progress.h"
#include "apps/common/models/gguf_names.h"
#include "apps/common/models/known_models.h"
#include "apps/common/models/net/file_download.h"
#include "apps/common/models/net/file_lock.h"
#include "apps/common/models/net/sha256.h"

namespace ebb::cli {
namespace {

namespace fs = std::filesystem;
using OllamaJson = nlohmann::json;

constexpr std::string_view kUsualHost = "registry.ollama.ai";
constexpr std::string_view kManifestType = "application/vnd.docker.distribution.manifest.v2+json";

std::string OwnFolder() {
  const std::string cache = CacheFolder();
  return cache.empty() ? "" : cache + "/ollama";
}

// Ollama's own folder.
std::string OllamaFolder() {
  if (const char* models = std::getenv("OLLAMA_MODELS"); models != nullptr && *models != '\0') {
    return models;
  }
  const char* home = std::getenv("HOME");
  return home == nullptr || *home == '\0' ? "" : std::string(home) + "/.ollama/models";
}

std::string HostOfName(const ModelName& name) {
  return name.host.empty() ? std::string(kUsualHost) : name.host;
}

// Returns the registry's URL; $EBB_OLLAMA_REGISTRY replaces that of the usual registry.
std::string RegistryUrl(const ModelName& name) {
  if (name.host.empty()) {
    std::string url;
    if (const char* given = std::getenv("EBB_OLLAMA_REGISTRY"); given != nullptr) url = given;
    while (url.ends_with('/')) url.pop_back();
    if (!url.empty()) return url;
  }
  return "https://" + HostOfName(name);
}

std::string ManifestPath(const std::string& folder, const ModelName& name) {
  return fmt::format("{}/manifests/{}/{}/{}", folder, HostOfName(name), name.repo, name.tag);
}

struct ModelLayer {
  std::string sha256;
  uint64_t bytes = 0;
};

// Returns the layer that holds the weights. Errors: kCorrupt, kUnsupported.
Result<ModelLayer> ReadManifest(const std::string& text) {
  const OllamaJson manifest = OllamaJson::parse(text, nullptr, false);
  const auto layers = manifest.is_object() ? manifest.find("layers") : manifest.end();
  if (!manifest.is_object() || layers == manifest.end() || !layers->is_array()) {
    return Corrupt("expected a manifest with layers, found none");
  }
  const auto text_at = [](const OllamaJson& object, const char* key) {
    const auto found = object.is_object() ? object.find(key) : object.end();
    return found != object.end() && found->is_string() ? found->get<std::string>() : "";
  };
  std::optional<ModelLayer> model;
  for (const OllamaJson& layer : *layers) {
    const std::string type = text_at(layer, "mediaType");
    if (type == "application/vnd.ollama.image.adapter") {
      return Unsupported("the model has an adapter, which ebb does not read");
    }
    if (type != "application/vnd.ollama.image.model") continue;
    if (model) return Unsupported("the model's weights lie in several layers");
    constexpr std::string_view kAlgorithm = "sha256:";
    std::string digest = text_at(layer, "digest");
    const auto size = layer.find("size");
    if (!digest.starts_with(kAlgorithm) || !LooksLikeSha256(digest.substr(kAlgorithm.size())) ||
        size == layer.end() || !size->is_number_unsigned()) {
      return Corrupt(
          fmt::format("expected a SHA-256 and a size of the model, found \"{}\"", digest));
    }
    digest.erase(0, kAlgorithm.size());
    std::ranges::transform(digest, digest.begin(), [](unsigned char c) { return std::tolower(c); });
    model = ModelLayer{.sha256 = std::move(digest), .bytes = size->get<uint64_t>()};
  }
  if (!model) return Unsupported("the model has no layer of GGUF weights");
  return *std::move(model);
}

std::string BlobPath(const std::string& folder, const ModelLayer& layer) {
  return fmt::format("{}/blobs/sha256-{}", folder, layer.sha256);
}

bool BlobIsThere(const std::string& folder, const ModelLayer& layer) {
  std::error_code error;
  return fs::file_size(BlobPath(folder, layer), error) == layer.bytes && !error;
}

Result<ModelLayer> ReadManifestFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return NotFound(fmt::format("{} is not there", path));
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  Result<ModelLayer> layer = ReadManifest(text);
  if (!layer.ok()) return layer.status().WithPrefix(path);
  return layer;
}

StoredModel StoredAs(const std::string& name, const std::string& folder, const ModelLayer& layer) {
  return {.name = name, .path = BlobPath(folder, layer), .bytes = layer.bytes};
}

Status WriteFileWhole(const std::string& path, const std::string& text) {
  std::error_code error;
  fs::create_directories(fs::path(path).parent_path(), error);
  if (error) return IoError(fmt::format("{}: {}", path, error.message()));
  const std::string draft = fmt::format("{}.{}", path, getpid());
  std::ofstream file(draft, std::ios::binary);
  file << text;
  file.close();
  if (!file) return IoError(fmt::format("cannot write {}", draft));
  fs::rename(draft, path, error);
  return error ? IoError(fmt::format("{}: {}", path, error.message())) : OkStatus();
}

Status ExplainRegistryAnswer(const ModelName& name, const HttpAnswer& answer) {
  constexpr long kUnauthorized = 401;
  constexpr long kForbidden = 403;
  constexpr long kNotFound404 = 404;
  if (answer.status == kNotFound404) {
    return NotFound(
        fmt::format("the registry has no model {}: check the name and the tag behind "
                    "the colon ({} was asked for)",
                    name.text, name.tag));
  }
  if (answer.status == kUnauthorized || answer.status == kForbidden) {
    return Unsupported(
        fmt::format("{} is private: ebb fetches public models of the registry", name.text));
  }
  return IoError(fmt::format("{} answered {}", HostOf(answer.url), answer.status));
}

// Returns a description of the layer's download that lacks the place of the file.
FileDownload DownloadOf(const ModelName& name, const ModelLayer& layer) {
  return {
      .url = fmt::format("{}/v2/{}/blobs/sha256:{}", RegistryUrl(name), name.repo, layer.sha256),
      .path = {},
      .sha256 = layer.sha256,
      .bytes = layer.bytes,
      .explain = [name](const HttpAnswer& answer) { return ExplainRegistryAnswer(name, answer); }};
}

// Asks the registry for the model's manifest.
Result<HttpAnswer, HttpFailure> GetManifest(const ModelName& name, HttpClient* client) {
  auto answer = client->Get(
      {.url = fmt::format("{}/v2/{}/manifests/{}", RegistryUrl(name), name.repo, name.tag),
       .headers = {fmt::format("Accept: {}", kManifestType)}});
  if (!answer.ok() || answer->ok()) return answer;
  return HttpFailure{HttpFailure::Kind::kFinal, ExplainRegistryAnswer(name, *answer)};
}

// Returns the layer that a manifest names. Errors: those of ReadManifest(), with its address.
Result<ModelLayer> LayerIn(const HttpAnswer& manifest) {
  Result<ModelLayer> layer = ReadManifest(manifest.body);
  if (!layer.ok()) return layer.status().WithPrefix(manifest.url);
  return layer;
}

Status FetchLayer(const ModelName& name, const ModelLayer& layer, const FetchSettings& settings,
                  HttpClient* client) {
  const std::string folder = OwnFolder();
  if (BlobIsThere(folder, layer)) return OkStatus();
  const std::string path = BlobPath(folder, layer);
  EBB_ASSIGN_OR_RETURN(const auto lock, FileLock::Take(path + ".lock", [&] {
                         if (settings.http.say) {
                           settings.http.say(fmt::format(
                               "another process is fetching {}; waiting for its end", name.text));
                         }
                       }));
  Status status;
  if (!BlobIsThere(folder, layer)) {
    constexpr uint64_t kMegabyte = 1000000;
    if (settings.http.say) {
      settings.http.say(fmt::format("fetching {} ({} MB)", name.text, layer.bytes / kMegabyte));
    }
    FetchProgress progress(name.text, settings.quiet);
    FileDownload download = DownloadOf(name, layer);
    download.path = path;
    download.on_progress = [&](uint64_t done, uint64_t total) { progress.Update(done, total); };
    const auto hash = DownloadFile(client, download);
    if (!hash.ok()) status = hash.status();
  }
  std::error_code ignored;
  fs::remove(path + ".lock", ignored);
  return status;
}

// Returns the name of the model whose manifest lies at HOST/NAMESPACE/NAME/TAG within manifests/.
std::string NameOfManifest(const fs::path& path) {
  std::vector<std::string> parts;
  for (const fs::path& part : path) parts.push_back(part.string());
  if (parts.size() != 4) return "";
  const bool is_usual = parts[0] == kUsualHost;
  const std::string before = is_usual && parts[1] == "library" ? ""
                             : is_usual                        ? parts[1] + "/"
                                        : fmt::format("{}/{}/", parts[0], parts[1]);
  return fmt::format("ollama:{}{}:{}", before, parts[2], parts[3]);
}

// Returns the manifests of ebb's own folder with the names of their models, sorted by name.
std::vector<std::pair<std::string, ModelLayer>> OwnManifests() {
  std::vector<std::pair<std::string, ModelLayer>> manifests;
  const fs::path top = OwnFolder() + "/manifests";
  std::error_code error;
  for (fs::recursive_directory_iterator entry(top, error), end; !error && entry != end;
       entry.increment(error)) {
    if (!entry->is_regular_file(error)) continue;
    const std::string name = NameOfManifest(entry->path().lexically_relative(top));
    Result<ModelLayer> layer = ReadManifestFile(entry->path());
    if (!name.empty() && layer.ok()) manifests.emplace_back(name, *std::move(layer));
  }
  std::ranges::sort(manifests, {}, &std::pair<std::string, ModelLayer>::first);
  return manifests;
}

}  // namespace

Result<StoredModel> FindOllamaModel(const ModelName& name) {
  for (const std::string& folder : {OwnFolder(), OllamaFolder()}) {
    if (folder.empty()) continue;
    const Result<ModelLayer> layer = ReadManifestFile(ManifestPath(folder, name));
    if (layer.ok() && BlobIsThere(folder, *layer)) return StoredAs(name.text, folder, *layer);
  }
  return NotFound(fmt::format("{} is not in {}", name.text, OwnFolder()));
}

Result<StoredModel> PullOllamaModel(const ModelName& name, const FetchSettings& settings) {
  if (OwnFolder().empty()) {
    return NotFound(fmt::format("a model has nowhere to go: {}", kNoCacheFolder));
  }
  HttpClient client(settings.http);
  const auto answer = GetManifest(name, &client);
  if (!answer.ok()) {
    const Result<StoredModel> stored = FindOllamaModel(name);
    if (answer.error().kind == HttpFailure::Kind::kFinal || !stored.ok()) {
      return answer.error().status;
    }
    if (settings.http.say) {
      settings.http.say(
          fmt::format("{}; using the file that is there", answer.error().status.message()));
    }
    return stored;
  }
  EBB_ASSIGN_OR_RETURN(const ModelLayer layer, LayerIn(*answer));
  if (const std::string theirs = OllamaFolder(); !theirs.empty() && BlobIsThere(theirs, layer)) {
    return StoredAs(name.text, theirs, layer);
  }
  EBB_RETURN_IF_ERROR(FetchLayer(name, layer, settings, &client));
  // The manifest is written last, so that it never names bytes that are missing.
  EBB_RETURN_IF_ERROR(WriteFileWhole(ManifestPath(OwnFolder(), name), answer->body));
  return StoredAs(name.text, OwnFolder(), layer);
}

Result<std::vector<FileDownload>> OllamaDownloads(const ModelName& name, HttpClient* client) {
  const auto answer = GetManifest(name, client);
  if (!answer.ok()) return answer.error().status;
  EBB_ASSIGN_OR_RETURN(const ModelLayer layer, LayerIn(*answer));
  FileDownload download = DownloadOf(name, layer);
  download.path = "model.gguf";
  return std::vector<FileDownload>{download};
}

std::vector<StoredModel> StoredOllamaModels() {
  std::vector<StoredModel> models;
  if (OwnFolder().empty()) return models;
  for (const auto& [name, layer] : OwnManifests()) {
    if (BlobIsThere(OwnFolder(), layer)) models.push_back(StoredAs(name, OwnFolder(), layer));
  }
  return models;
}

Result<uint64_t> RemoveOllamaModel(const ModelName& name) {
  const std::string manifest = ManifestPath(OwnFolder(), name);
  const Result<ModelLayer> layer = ReadManifestFile(manifest);
  if (!layer.ok()) return NotFound(fmt::format("{} is not in {}", name.text, OwnFolder()));
  std::error_code error;
  fs::remove(manifest, error);
  if (error) return IoError(fmt::format("{}: {}", manifest, error.message()));
  const auto others = OwnManifests();
  if (std::ranges::any_of(
          others, [&](const auto& other) { return other.second.sha256 == layer->sha256; })) {
    return uint64_t{0};
  }
  const std::string blob = BlobPath(OwnFolder(), *layer);
  const uintmax_t bytes = fs::file_size(blob, error);
  if (error) return uint64_t{0};
  fs::remove(blob, error);
  if (error) return IoError(fmt::format("{}: {}", blob, error.message()));
  return uint64_t{bytes};
}

}  // namespace ebb::cli

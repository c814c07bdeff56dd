// Parses names of models on Hugging Face's hub, in Ollama's registry, or at a URL.
#ifndef EBB_APPS_PULL_MODEL_NAME_H_
#define EBB_APPS_PULL_MODEL_NAME_H_

#include <string>
#include <string_view>

#include "ebb/status.h"

namespace ebb::cli {

// ModelName is a parsed name of a model that lies on a server.
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

// kModelNameForms lists the forms of these names, for messages and help.
inline constexpr std::string_view kModelNameForms =
    "hf:ORG/REPO[:QUANT|/FILE], ollama:NAME[:TAG], or an https URL of a GGUF file";

// Returns whether the text begins like such a name ("hf:", "ollama:", "https://", whose rest may be
// invalid), or is ORG/REPO or ORG/REPO:QUANT, a repository of the hub, where no file has that name.
[[nodiscard]] bool IsModelName(std::string_view text);

// Parses a name. Turns the URL of a file in the hub ($HF_ENDPOINT), or of a repository's page, into
// its hf: name, because the hub publishes the hashes of its files. Errors: kInvalidArgument, which
// names the expected forms.
[[nodiscard]] Result<ModelName> ParseModelName(std::string_view text);

}  // namespace ebb::cli

#endif  // EBB_APPS_PULL_MODEL_NAME_H_

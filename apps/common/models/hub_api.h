// Hugging Face's hub over HTTP: which files a repository has, and where they are fetched.
#ifndef EBB_APPS_PULL_HUB_API_H_
#define EBB_APPS_PULL_HUB_API_H_

#include <cstdint>
#include <string>
#include <vector>

#include "apps/common/models/net/http_client.h"
#include "ebb/status.h"

namespace ebb::cli {

// $HF_ENDPOINT, else https://huggingface.co; without a slash at its end.
[[nodiscard]] std::string HubEndpoint();
// $HF_TOKEN, else the file that `hf auth login` writes ($HF_TOKEN_PATH, $HF_HOME/token); empty:
// none.
[[nodiscard]] std::string HubToken();
// Whether $HF_HUB_OFFLINE forbids requests to the hub.
[[nodiscard]] bool HubIsOffline();

struct HubFile {
  std::string path;
  std::string sha256;  // empty: the hub keeps no SHA-256 of it, since it lies in git itself
  uint64_t bytes = 0;
};

struct HubListing {
  std::string commit;  // 40 hexadecimal digits
  std::vector<HubFile> files;
  int num_refused = 0;  // files whose path would leave the folder
};

// The files of the main branch. Errors: kNotFound, with repositories of similar names;
// kUnsupported where access needs a token or a licence, as the message says; kIo; kCancelled.
[[nodiscard]] Result<HubListing, HttpFailure> ListHubFiles(HttpClient* client,
                                                           const std::string& repo);

[[nodiscard]] std::string HubFileUrl(const std::string& repo, const std::string& commit,
                                     const std::string& path);
// Explains an answer of the hub that is an error.
[[nodiscard]] Status ExplainHubAnswer(const HttpAnswer& answer, const std::string& repo);

}  // namespace ebb::cli

#endif  // EBB_APPS_PULL_HUB_API_H_

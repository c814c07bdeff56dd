// Asks Hugging Face's hub over HTTP which files a repository has and where to fetch them.
#ifndef EBB_APPS_PULL_HUB_API_H_
#define EBB_APPS_PULL_HUB_API_H_

#include <cstdint>
#include <string>
#include <vector>

#include "apps/common/models/net/http_client.h"
#include "ebb/status.h"

namespace ebb::cli {

// Returns $HF_ENDPOINT, or https://huggingface.co if unset, without a slash at its end.
[[nodiscard]] std::string HubEndpoint();
// Returns $HF_TOKEN, or the content of the file that `hf auth login` writes ($HF_TOKEN_PATH, or
// token in the folder HubHome()), or an empty text.
[[nodiscard]] std::string HubToken();
// Returns whether $HF_HUB_OFFLINE forbids requests to the hub.
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

// Returns the files of the repository's main branch. Errors: kNotFound, naming repositories of
// similar names; kUnsupported if access needs a token or a licence, as the message says; kIo;
// kCancelled.
[[nodiscard]] Result<HubListing, HttpFailure> ListHubFiles(HttpClient* client,
                                                           const std::string& repo);

// Returns the URL from which the hub serves the file `path` at `commit`.
[[nodiscard]] std::string HubFileUrl(const std::string& repo, const std::string& commit,
                                     const std::string& path);
// Returns the error that an unsuccessful answer of the hub means, in words for the user.
[[nodiscard]] Status ExplainHubAnswer(const HttpAnswer& answer, const std::string& repo);

}  // namespace ebb::cli

#endif  // EBB_APPS_PULL_HUB_API_H_

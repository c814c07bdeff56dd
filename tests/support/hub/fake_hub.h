// Hugging Face's hub, a host of files that it redirects to (its CDN), and Ollama's registry, as
// their documentation says that they answer.
#ifndef EBB_TESTS_SUPPORT_HUB_FAKE_HUB_H_
#define EBB_TESTS_SUPPORT_HUB_FAKE_HUB_H_

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/support/hub/http_server.h"

namespace ebb {

// 64 hexadecimal digits.
[[nodiscard]] std::string HexSha256(const std::string& bytes);

struct FakeRepo {
  std::string commit = std::string(40, 'a');
  std::map<std::string, std::string> files;      // path: bytes
  std::vector<std::string> listed_only;          // paths that the list has besides
  bool is_gated = false;                         // files need a token that has the licence
  bool is_private = false;                       // everything needs a token
  std::map<std::string, std::string> false_oid;  // path: what the list says instead
};

// Bytes that begin as a GGUF file does.
[[nodiscard]] std::string FakeGguf(size_t size, char filler = '.');

class FakeHub {
 public:
  FakeHub();

  [[nodiscard]] std::string url() const { return hub_.url(); }
  [[nodiscard]] std::string cdn_url() const { return cdn_.url(); }
  [[nodiscard]] TestHttpServer& hub() { return hub_; }
  [[nodiscard]] TestHttpServer& cdn() { return cdn_; }

  // Set before requests come.
  std::map<std::string, FakeRepo> repos;  // "org/repo"
  std::string good_token = "hf_good";     // that may read gated and private repositories
  size_t page_size = 1000;                // of lists of files
  bool honours_ranges = true;             // of the CDN
  // name of NAMESPACE/NAME:TAG in Ollama's registry: bytes of the model
  std::map<std::string, std::string> ollama;
  // Change an answer of the hub or of the CDN before it is sent. Null: none.
  std::function<void(const SeenRequest&, ServerAnswer*)> tamper_hub;
  std::function<void(const SeenRequest&, ServerAnswer*)> tamper_cdn;

 private:
  ServerAnswer AnswerOfHub(const SeenRequest& request);
  ServerAnswer AnswerOfCdn(const SeenRequest& request);
  ServerAnswer Api(const SeenRequest& request, const std::string& path);
  ServerAnswer List(const std::string& repo_name, const FakeRepo& repo, size_t first) const;
  ServerAnswer Resolve(const SeenRequest& request, const std::string& path);
  ServerAnswer Registry(const std::string& path);
  [[nodiscard]] bool HasGoodToken(const SeenRequest& request) const;

  TestHttpServer cdn_;
  TestHttpServer hub_;
};

}  // namespace ebb

#endif  // EBB_TESTS_SUPPORT_HUB_FAKE_HUB_H_

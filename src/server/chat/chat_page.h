// The page at / on which a person talks to the model: files that the build puts into the program,
// and nothing of their own. Everything that the page shows comes from the interfaces that any other
// client uses.
//
// Thread safety: all members belong to the thread of connections.
#ifndef EBB_SERVER_CHAT_CHAT_PAGE_H_
#define EBB_SERVER_CHAT_CHAT_PAGE_H_

#include <memory>
#include <span>
#include <string_view>

#include "src/server/access/gate.h"
#include "src/server/http/http_server.h"

namespace ebb::server {

enum class ChatPageMode : uint8_t { kOff, kOn };

// A file of the page: "app.js" is served at /chat/app.js.
struct ChatFile {
  std::string_view name;
  std::string_view bytes;
};

class ChatPage {
 public:
  explicit ChatPage(ChatPageMode mode) : mode_(mode) {}

  // The files hold nothing that is secret: what they ask for needs a key.
  [[nodiscard]] static bool IsPath(std::string_view path);
  [[nodiscard]] bool Has(std::string_view path) const;
  // Answers a GET of one of its paths. False: it is none of them.
  [[nodiscard]] bool Answer(const HttpRequest& request, const std::shared_ptr<Reply>& reply) const;

 private:
  const ChatPageMode mode_;
};

}  // namespace ebb::server

#endif  // EBB_SERVER_CHAT_CHAT_PAGE_H_

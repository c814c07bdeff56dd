// The page at / on which a person talks to the model: files that the build puts into the program,
// and nothing of their own. Everything that the page shows comes from the interfaces that any other
// client uses.
#ifndef EBB_SERVER_CHAT_CHAT_PAGE_H_
#define EBB_SERVER_CHAT_CHAT_PAGE_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "src/server/access/router.h"

namespace ebb::server {

enum class ChatPageMode : uint8_t { kOff, kOn };

// A file of the page: "app.js" is served at /chat/app.js.
struct ChatFile {
  std::string_view name;
  std::string_view bytes;
};

// The tabs of the page that a server shows. At least one.
struct ChatTabs {
  bool chat = true;    // at /
  bool server = true;  // at /dashboard; alone: / leads there
};

// Adds routes to the page and its files. They hold nothing that is secret: what they ask for needs
// a key.
void AddChatRoutes(const ChatTabs& tabs, std::vector<Route>* routes);

}  // namespace ebb::server

#endif  // EBB_SERVER_CHAT_CHAT_PAGE_H_

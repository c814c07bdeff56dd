// Serves the chat page at /, on which a person talks to the model. The build embeds the page's
// files in the program. The page uses only the interfaces that any other client uses.
#ifndef EBB_SERVER_CHAT_CHAT_PAGE_H_
#define EBB_SERVER_CHAT_CHAT_PAGE_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "src/server/access/router.h"

namespace ebb::server {

enum class ChatPageMode : uint8_t { kOff, kOn };

// ChatFile is a file of the page: "app.js" is served at /chat/app.js.
struct ChatFile {
  std::string_view name;
  std::string_view bytes;
};

// ChatTabs selects the tabs of the page that the server shows, at least one.
struct ChatTabs {
  bool chat = true;    // at /
  bool server = true;  // at /dashboard; without `chat`, / redirects there
};

// Adds routes for the page and its files. They need no key, since the files hold nothing secret:
// the requests that the page sends need one.
void AddChatRoutes(const ChatTabs& tabs, std::vector<Route>* routes);

}  // namespace ebb::server

#endif  // EBB_SERVER_CHAT_CHAT_PAGE_H_

// Parses the URL by which a user names a session store, and opens the store.
#ifndef EBB_STORE_STORE_URL_H_
#define EBB_STORE_STORE_URL_H_

#include <memory>
#include <string>
#include <string_view>

#include "ebb/status.h"
#include "src/store/session_store.h"

namespace ebb::store {

struct StoreUrl {
  enum class Kind { kFile, kRedis };
  Kind kind = Kind::kFile;
  std::string folder = {};  // used by kFile
  // This member and those below are used by kRedis.
  std::string user = {};
  std::string password = {};
  std::string host = {};  // name or address; empty: `socket` is used
  int port = 6379;
  std::string socket = {};  // path of a unix socket
  int database = 0;
};

// Parses "file:FOLDER", "redis://[[USER]:PASSWORD@]HOST[:PORT][/DB]", "valkey://..." or
// "redis+unix:PATH[?db=DB]". Errors: InvalidArgument, naming the expected forms.
[[nodiscard]] Result<StoreUrl> ParseStoreUrl(std::string_view text);

// Opens the store. Errors: those of CreateFileStore() and CreateRedisStore().
[[nodiscard]] Result<std::unique_ptr<SessionStore>> OpenStore(const StoreUrl& url,
                                                              const StoreLimits& limits);

}  // namespace ebb::store

#endif  // EBB_STORE_STORE_URL_H_

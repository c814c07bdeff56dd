// The last responses, in memory, so that a later request can go on with one by its id. Each holds
// its own items and the one that it went on with, so that a conversation is there once; an answer
// follows from the tokens of the conversation alone, so that nothing else is needed to go on.
//
// Thread safety: all members may be called from any thread.
#ifndef EBB_SERVER_API_RESPONSES_RESPONSE_STORE_H_
#define EBB_SERVER_API_RESPONSES_RESPONSE_STORE_H_

#include <atomic>
#include <cstddef>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "src/base/threads/mutex.h"
#include "src/server/api/api_error.h"

namespace ebb::server {

class StoredResponse {
 public:
  // input: items of the request; response: with its output. Both in arrays or objects of JSON.
  StoredResponse(std::shared_ptr<const StoredResponse> before, const Json& input,
                 const Json& response, std::shared_ptr<std::atomic<size_t>> num_bytes);
  ~StoredResponse();
  StoredResponse(const StoredResponse&) = delete;
  StoredResponse& operator=(const StoredResponse&) = delete;

  [[nodiscard]] Json input() const { return Json::parse(input_); }
  [[nodiscard]] Json response() const { return Json::parse(response_); }
  // All items of the conversation up to this response, its output the last, in an array.
  [[nodiscard]] Json Conversation() const;

 private:
  [[nodiscard]] size_t OwnBytes() const { return input_.size() + response_.size(); }

  mutable std::shared_ptr<const StoredResponse> before_;  // null: the conversation begins here
  const std::string input_, response_;
  const std::shared_ptr<std::atomic<size_t>> num_bytes_;
};

class ResponseStore {
 public:
  // Beyond so many bytes of JSON those go that were not used for longest.
  explicit ResponseStore(size_t most_bytes) : most_bytes_(most_bytes) {}

  void Put(const std::string& id, std::shared_ptr<const StoredResponse> before, const Json& input,
           const Json& response);
  // Null: there is none. It is used now.
  [[nodiscard]] std::shared_ptr<const StoredResponse> Find(const std::string& id);
  // Returns the item of a response's output that ResponsesExchange called so; nothing: there is
  // none.
  [[nodiscard]] std::optional<Json> FindItem(const std::string& item_id);
  // False: there is none. Responses that went on with it keep what they need.
  [[nodiscard]] bool Delete(const std::string& id);
  // Bytes of all that are there, and of those that they went on with.
  [[nodiscard]] size_t num_bytes() const { return *num_bytes_; }

 private:
  struct Entry {
    std::shared_ptr<const StoredResponse> response;
    std::list<std::string>::iterator used;
  };
  void Erase(std::map<std::string, Entry>::iterator entry) EBB_REQUIRES(mutex_);

  const size_t most_bytes_;
  const std::shared_ptr<std::atomic<size_t>> num_bytes_ = std::make_shared<std::atomic<size_t>>(0);
  Mutex mutex_;
  std::map<std::string, Entry> entries_ EBB_GUARDED_BY(mutex_);
  // Ids; the one that was used last is the first.
  std::list<std::string> by_use_ EBB_GUARDED_BY(mutex_);
};

}  // namespace ebb::server

#endif  // EBB_SERVER_API_RESPONSES_RESPONSE_STORE_H_

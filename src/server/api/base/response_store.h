// ResponseStore keeps the most recently used responses in memory, so that a later request can
// continue one by its id. Each response holds its own items and refers to the one that it
// continued, so that a conversation is stored once. An answer depends only on the tokens of the
// conversation, so nothing else is needed to continue it.
//
// Thread safety: all members may be called from any thread.
#ifndef EBB_SERVER_API_BASE_RESPONSE_STORE_H_
#define EBB_SERVER_API_BASE_RESPONSE_STORE_H_

#include <atomic>
#include <cstddef>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "src/base/threads/mutex.h"
#include "src/server/api/base/api_error.h"

namespace ebb::server {

class StoredResponse {
 public:
  // `input` holds the items of the request, `response` the response with its output.
  StoredResponse(std::shared_ptr<const StoredResponse> before, const Json& input,
                 const Json& response, std::shared_ptr<std::atomic<size_t>> num_bytes);
  ~StoredResponse();
  StoredResponse(const StoredResponse&) = delete;
  StoredResponse& operator=(const StoredResponse&) = delete;

  [[nodiscard]] Json input() const { return Json::parse(input_); }
  [[nodiscard]] Json response() const { return Json::parse(response_); }
  // Returns all items of the conversation up to this response, its output last, in an array.
  [[nodiscard]] Json Conversation() const;

 private:
  [[nodiscard]] size_t OwnBytes() const { return input_.size() + response_.size(); }

  mutable std::shared_ptr<const StoredResponse> before_;  // null: the conversation begins here
  const std::string input_, response_;
  const std::shared_ptr<std::atomic<size_t>> num_bytes_;
};

class ResponseStore {
 public:
  // `most_bytes` limits the bytes of JSON; the least recently used responses are dropped first.
  explicit ResponseStore(size_t most_bytes) : most_bytes_(most_bytes) {}

  void Put(const std::string& id, std::shared_ptr<const StoredResponse> before, const Json& input,
           const Json& response);
  // Returns the response and marks it as used now; null if there is none.
  [[nodiscard]] std::shared_ptr<const StoredResponse> Find(const std::string& id);
  // Returns the item of a response's output to which ResponsesExchange gave this id; nothing if
  // there is none.
  [[nodiscard]] std::optional<Json> FindItem(const std::string& item_id);
  // Drops a response. Returns false if there is none. Responses that continued it keep the items
  // that they need.
  [[nodiscard]] bool Delete(const std::string& id);
  // Returns the bytes of all responses, with those of dropped responses that others continue.
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
  // Holds the ids, most recently used first.
  std::list<std::string> by_use_ EBB_GUARDED_BY(mutex_);
};

}  // namespace ebb::server

#endif  // EBB_SERVER_API_BASE_RESPONSE_STORE_H_

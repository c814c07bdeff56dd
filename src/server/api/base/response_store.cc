#include "src/server/api/base/response_store.h"

#include <utility>
#include <vector>

namespace ebb::server {

StoredResponse::StoredResponse(std::shared_ptr<const StoredResponse> before, const Json& input,
                               const Json& response, std::shared_ptr<std::atomic<size_t>> num_bytes)
    : before_(std::move(before)),
      input_(Dump(input)),
      response_(Dump(response)),
      num_bytes_(std::move(num_bytes)) {
  *num_bytes_ += OwnBytes();
}

// Destroys the chain of earlier responses in a loop, since recursion would be too deep for a long
// conversation.
StoredResponse::~StoredResponse() {
  *num_bytes_ -= OwnBytes();
  std::shared_ptr<const StoredResponse> next = std::move(before_);
  while (next != nullptr && next.use_count() == 1) {
    std::shared_ptr<const StoredResponse> after = std::move(next->before_);
    next = std::move(after);
  }
}

Json StoredResponse::Conversation() const {
  std::vector<const StoredResponse*> all;
  for (const StoredResponse* one = this; one != nullptr; one = one->before_.get()) {
    all.push_back(one);
  }
  Json items = Json::array();
  for (auto one = all.rbegin(); one != all.rend(); ++one) {
    Json input = (*one)->input();
    for (Json& item : input) items.push_back(std::move(item));
    Json response = (*one)->response();
    for (Json& item : response["output"]) items.push_back(std::move(item));
  }
  return items;
}

void ResponseStore::Put(const std::string& id, std::shared_ptr<const StoredResponse> before,
                        const Json& input, const Json& response) {
  auto stored =
      std::make_shared<const StoredResponse>(std::move(before), input, response, num_bytes_);
  const MutexLock lock(mutex_);
  by_use_.push_front(id);
  entries_[id] = {std::move(stored), by_use_.begin()};
  while (*num_bytes_ > most_bytes_ && !by_use_.empty()) Erase(entries_.find(by_use_.back()));
}

std::shared_ptr<const StoredResponse> ResponseStore::Find(const std::string& id) {
  const MutexLock lock(mutex_);
  const auto found = entries_.find(id);
  if (found == entries_.end()) return nullptr;
  by_use_.splice(by_use_.begin(), by_use_, found->second.used);
  return found->second.response;
}

std::optional<Json> ResponseStore::FindItem(const std::string& item_id) {
  // An item's id is "fc_<the response's id without resp_>_<number>".
  const size_t begin = item_id.find('_'), end = item_id.rfind('_');
  if (begin == end) return std::nullopt;
  const auto stored = Find("resp" + item_id.substr(begin, end - begin));
  if (stored == nullptr) return std::nullopt;
  Json response = stored->response();
  for (Json& item : response["output"]) {
    if (item["id"] == item_id) return std::move(item);
  }
  return std::nullopt;
}

bool ResponseStore::Delete(const std::string& id) {
  const MutexLock lock(mutex_);
  const auto found = entries_.find(id);
  if (found == entries_.end()) return false;
  Erase(found);
  return true;
}

void ResponseStore::Erase(std::map<std::string, Entry>::iterator entry) {
  by_use_.erase(entry->second.used);
  entries_.erase(entry);
}

}  // namespace ebb::server

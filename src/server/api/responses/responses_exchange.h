// Writes the answer to a request for /v1/responses: a response with output items, complete or as
// typed events. Pure, as Exchange is.
#ifndef EBB_SERVER_API_RESPONSES_RESPONSES_EXCHANGE_H_
#define EBB_SERVER_API_RESPONSES_RESPONSES_EXCHANGE_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "src/server/api/parts/part_exchange.h"

namespace ebb::server {

class ResponsesExchange final : public PartExchange {
 public:
  // Inherits the constructor. REQUIRES: the request has `responses`.
  using PartExchange::PartExchange;

  [[nodiscard]] std::string TakeEvents() override;
  // Returns the response so far, at any time.
  [[nodiscard]] Json Whole() const override;
  // Returns the items that the answer adds to the conversation, as an array.
  [[nodiscard]] Json Output() const;

 private:
  [[nodiscard]] const char* Status() const;
  [[nodiscard]] Json Response(std::string_view status, Json output) const;
  [[nodiscard]] std::string ItemId(size_t part) const;
  // Returns an item; an open item has no contents.
  [[nodiscard]] Json Item(size_t part, std::string_view status) const;
  [[nodiscard]] Json ClosedItem(size_t part) const;
  // Adds the name of the function that is called, and its namespace if it has one.
  void AddName(const std::string& name, Json* item) const;
  void Tell(std::string_view name, Json data, std::string* events);
  // Appends an event about one item.
  void TellOf(size_t part, std::string_view name, Json more, std::string* events);
  void TellOpened(size_t part, std::string* events);
  void TellGrown(size_t part, const std::string& text, std::string* events);
  void TellClosed(size_t part, std::string* events);

  uint64_t sequence_number_ = 0;
  bool sent_begin_ = false;
  bool sent_end_ = false;
};

}  // namespace ebb::server

#endif  // EBB_SERVER_API_RESPONSES_RESPONSES_EXCHANGE_H_

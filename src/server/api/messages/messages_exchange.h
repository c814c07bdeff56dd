// Writes the answer to a request of Anthropic's Messages API: content blocks, complete or as
// events; and errors in that API's form. Pure, as Exchange is.
#ifndef EBB_SERVER_API_MESSAGES_MESSAGES_EXCHANGE_H_
#define EBB_SERVER_API_MESSAGES_MESSAGES_EXCHANGE_H_

#include <string>
#include <string_view>

#include "src/server/api/parts/part_exchange.h"
#include "src/server/http/http_server.h"

namespace ebb::server {

class MessagesExchange final : public PartExchange {
 public:
  using PartExchange::PartExchange;

  [[nodiscard]] std::string TakeEvents() override;
  [[nodiscard]] Json Whole() const override;

 private:
  [[nodiscard]] Json Message(Json content) const;
  [[nodiscard]] Json TokenUsage() const;
  // Adds `stop_reason` and `stop_sequence`.
  void AddStop(Json* json) const;
  void Tell(const PartEvent& event, std::string* events) const;

  bool sent_begin_ = false;
  bool sent_end_ = false;
};

// Returns the signature that a client sends back with a thought. It is no proof of origin and
// protects nothing, since thoughts are not secret here.
[[nodiscard]] std::string ThoughtSignature(std::string_view thought);

// Returns the error in Anthropic's form, {"type": "error", "error": {...}}.
[[nodiscard]] Json MessagesErrorJson(int status, const std::string& message);
// Converts an error to this form; returns other answers unchanged.
[[nodiscard]] HttpAnswer AsMessagesError(HttpAnswer answer);

}  // namespace ebb::server

#endif  // EBB_SERVER_API_MESSAGES_MESSAGES_EXCHANGE_H_

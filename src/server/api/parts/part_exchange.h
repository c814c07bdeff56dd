// PartExchange is the common base of ResponsesExchange and MessagesExchange: a request with one
// answer that is sent as a sequence of parts.
#ifndef EBB_SERVER_API_PARTS_PART_EXCHANGE_H_
#define EBB_SERVER_API_PARTS_PART_EXCHANGE_H_

#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

#include "src/server/api/openai/exchange.h"
#include "src/server/api/parts/answer_parts.h"

namespace ebb::server {

class PartExchange : public Exchange {
 public:
  // Makes the exchange of `options.request`. REQUIRES: the request has one choice.
  PartExchange(std::shared_ptr<const Model> model, ExchangeOptions options);

  void Take(size_t choice, JobUpdate update) override;

 protected:
  // Returns the changes of the parts since the last call.
  [[nodiscard]] std::vector<PartEvent> TakePartEvents();
  [[nodiscard]] const std::vector<AnswerPart>& parts() const { return parts_.parts(); }
  // Returns how the job ended; null while it has not.
  [[nodiscard]] const JobEnd* end() const;
  // Adds the members `timings`, `metrics` and `ebb`. REQUIRES: end().
  void AddOwn(Json* json) const;

 private:
  AnswerParts parts_;
  std::vector<PartEvent> events_;  // not sent yet
};

// Returns a server-sent event with the lines "event: ..." and "data: ...".
[[nodiscard]] std::string NamedEvent(std::string_view name, const Json& data);

}  // namespace ebb::server

#endif  // EBB_SERVER_API_PARTS_PART_EXCHANGE_H_

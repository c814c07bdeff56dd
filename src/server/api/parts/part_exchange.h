// A request with one answer that is sent as a row of parts: the common base of Responses and
// Messages.
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
  // REQUIRES: one choice.
  PartExchange(std::shared_ptr<const Model> model, ExchangeOptions options);

  void Take(size_t choice, JobUpdate update) override;

 protected:
  // Since the last call.
  [[nodiscard]] std::vector<PartEvent> TakePartEvents();
  [[nodiscard]] const std::vector<AnswerPart>& parts() const { return parts_.parts(); }
  // Null as long as it is not over.
  [[nodiscard]] const JobEnd* end() const;
  // The members `timings`, `metrics` and `ebb`. REQUIRES: end().
  void AddOwn(Json* json) const;

 private:
  AnswerParts parts_;
  std::vector<PartEvent> events_;  // not sent yet
};

// "event: ..." and "data: ..."
[[nodiscard]] std::string NamedEvent(std::string_view name, const Json& data);

}  // namespace ebb::server

#endif  // EBB_SERVER_API_PARTS_PART_EXCHANGE_H_

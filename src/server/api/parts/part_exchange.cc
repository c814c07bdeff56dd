#include "src/server/api/parts/part_exchange.h"

#include <utility>

#include <fmt/format.h>

namespace ebb::server {

PartExchange::PartExchange(std::shared_ptr<const Model> model, ExchangeOptions options)
    : Exchange(std::move(model), std::move(options)) {}

void PartExchange::Take(size_t index, JobUpdate update) {
  Exchange::Take(index, std::move(update));
  AnswerPiece& added = request().streams ? choice(index).unsent : choice(index).whole;
  parts_.Add(std::exchange(added, {}), &events_);
  if (end() != nullptr) parts_.Close(&events_);
}

std::vector<PartEvent> PartExchange::TakePartEvents() { return std::exchange(events_, {}); }

const JobEnd* PartExchange::end() const {
  const auto& end = choice(0).end;
  return end.has_value() ? &*end : nullptr;
}

void PartExchange::AddOwn(Json* json) const {
  (*json)["timings"] = TimingsJson(*end());
  (*json)["metrics"] = MetricsJson(*end());
  (*json)["ebb"] = OwnJson(*end(), choice(0).reader.is_malformed(), request());
}

std::string NamedEvent(std::string_view name, const Json& data) {
  return fmt::format("event: {}\ndata: {}\n\n", name, EventData(data));
}

}  // namespace ebb::server

#include "src/server/api/api.h"

#include <random>
#include <utility>

#include <fmt/format.h>

#include "src/server/api/llama/llama_exchange.h"
#include "src/server/api/llama/llama_request.h"
#include "src/server/api/messages/messages_exchange.h"
#include "src/server/api/messages/messages_request.h"
#include "src/server/api/openai/openai_request.h"
#include "src/server/api/responses/responses_exchange.h"
#include "src/server/api/responses/responses_request.h"

namespace ebb::server {

ApiResult<CompletionRequest> ReadRequest(Api api, const Json& body, const RequestDefaults& defaults,
                                         ResponseStore* responses, ReadScope scope) {
  switch (api) {
    case Api::kChat:
      return ReadChat(body, defaults, scope);
    case Api::kText:
      return ReadText(body, defaults);
    case Api::kResponses:
      return ReadResponses(body, defaults, responses, scope);
    case Api::kMessages:
      return ReadMessages(body, defaults, scope);
    case Api::kLlama:
      return ReadLlama(LlamaEndpoint::kCompletion, body, defaults);
    case Api::kInfill:
      break;
  }
  return ReadLlama(LlamaEndpoint::kInfill, body, defaults);
}

std::unique_ptr<Exchange> MakeExchange(Api api, std::shared_ptr<const Model> model,
                                       ExchangeOptions options) {
  switch (api) {
    case Api::kChat:
    case Api::kText:
      return std::make_unique<Exchange>(std::move(model), std::move(options));
    case Api::kResponses:
      return std::make_unique<ResponsesExchange>(std::move(model), std::move(options));
    case Api::kMessages:
      return std::make_unique<MessagesExchange>(std::move(model), std::move(options));
    case Api::kLlama:
    case Api::kInfill:
      break;
  }
  return std::make_unique<LlamaExchange>(std::move(model), std::move(options));
}

std::string MakeId(Api api, uint64_t run, uint64_t number) {
  const std::string of_run = fmt::format("{:08x}{:08x}", run, number);
  switch (api) {
    case Api::kChat:
      return "chatcmpl-" + of_run;
    case Api::kText:
    case Api::kLlama:
    case Api::kInfill:
      return "cmpl-" + of_run;
    case Api::kMessages:
      return "msg_" + of_run;
    case Api::kResponses:
      break;
  }
  std::random_device random;
  return fmt::format("resp_{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
}

}  // namespace ebb::server

#include "src/server/api/api.h"

#include <random>
#include <utility>

#include <fmt/format.h>

#include "src/server/api/llama/llama_exchange.h"
#include "src/server/api/llama/llama_request.h"
#include "src/server/api/messages/messages_exchange.h"
#include "src/server/api/messages/messages_request.h"
#include "src/server/api/responses/responses_exchange.h"
#include "src/server/api/responses/responses_request.h"

namespace ebb::server {
namespace {

ApiResult<ApiRequest> ReadResponses(const Json& body,
                                    const std::shared_ptr<ResponseStore>& responses) {
  std::shared_ptr<const StoredResponse> before;
  const StoredItems stored = {
      .conversation = [&](const std::string& id) -> std::optional<Json> {
        before = responses->Find(id);
        if (before == nullptr) return std::nullopt;
        return before->Conversation();
      },
      .item = [&](const std::string& id) { return responses->FindItem(id); }};
  EBB_ASSIGN_OR_RETURN(ResponsesRequest request, ReadResponsesRequest(body, stored));
  ApiRequest result = {.body = std::move(request.chat),
                       .renamed = InResponses,
                       .exchange = {},
                       .ignored = std::move(request.ignored),
                       .tool_paths = std::move(request.tool_paths)};
  result.exchange = [options = ResponsesOptions{std::move(request.echo), request.wants_summary,
                                                std::move(request.namespaced)}](
                        std::shared_ptr<const Model> model, ExchangeOptions exchange) {
    return std::make_unique<ResponsesExchange>(std::move(model), std::move(exchange), options);
  };
  if (!request.stores) return result;
  result.keep = [responses, before, input = std::move(request.input)](const Exchange& exchange) {
    responses->Put(exchange.id(), before, input, exchange.Whole());
  };
  return result;
}

ApiResult<ApiRequest> ReadMessages(const Json& body) {
  EBB_ASSIGN_OR_RETURN(MessagesRequest request, ReadMessagesRequest(body, MessagesUse::kAnswer));
  ApiRequest result = {.body = std::move(request.chat),
                       .renamed = InMessages,
                       .exchange = {},
                       .ignored = std::move(request.ignored)};
  result.exchange = [stops = std::move(request.stops)](std::shared_ptr<const Model> model,
                                                       ExchangeOptions exchange) {
    return std::make_unique<MessagesExchange>(std::move(model), std::move(exchange), stops);
  };
  return result;
}

ApiResult<ApiRequest> ReadLlama(LlamaEndpoint endpoint, Json body) {
  EBB_ASSIGN_OR_RETURN(LlamaRequest request, ReadLlamaRequest(endpoint, std::move(body)));
  ApiRequest result = {.body = std::move(request.body),
                       .renamed = [](ApiError error) { return error; },
                       .exchange = {},
                       .apply = std::move(request.apply),
                       .note = std::move(request.note)};
  result.exchange = [answer = request.answer](std::shared_ptr<const Model> model,
                                              ExchangeOptions exchange) {
    return std::make_unique<LlamaExchange>(std::move(model), std::move(exchange), answer);
  };
  return result;
}

}  // namespace

Endpoint EndpointOf(Api api) {
  const bool is_text = api == Api::kText || api == Api::kLlama || api == Api::kInfill;
  return is_text ? Endpoint::kText : Endpoint::kChat;
}

ApiResult<ApiRequest> ReadApi(Api api, Json body, const std::shared_ptr<ResponseStore>& responses) {
  if (api == Api::kResponses) return ReadResponses(body, responses);
  if (api == Api::kMessages) return ReadMessages(body);
  if (api == Api::kLlama) return ReadLlama(LlamaEndpoint::kCompletion, std::move(body));
  if (api == Api::kInfill) return ReadLlama(LlamaEndpoint::kInfill, std::move(body));
  return ApiRequest{.body = std::move(body),
                    .renamed = [](ApiError error) { return error; },
                    .exchange =
                        [](std::shared_ptr<const Model> model, ExchangeOptions options) {
                          return std::make_unique<Exchange>(std::move(model), std::move(options));
                        }};
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

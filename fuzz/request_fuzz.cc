// Any bytes as the body of a request, of each interface: jobs that the engine can be given, or an
// error of the client's. Schemas become grammars and messages a prompt on the way.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "ebb/model.h"
#include "src/server/api/api.h"
#include "src/server/api/base/json_fields.h"
#include "src/server/api/openai/request.h"

namespace ebb::server {
namespace {

void Expect(bool holds) {
  if (!holds) std::abort();
}

void ExpectClients(const ApiError& error) {
  Expect(error.status >= 400 && error.status < 500);
  Expect(!error.message.empty() && !error.code.empty());
}

const std::shared_ptr<const Model>& ModelForTest() {
  static const std::shared_ptr<const Model> model = [] {
    auto loaded = Model::Load({.path = EBB_FUZZ_CORPUS "/../../training/pebble/pebble.gguf"});
    Expect(loaded.ok());
    return *std::move(loaded);
  }();
  return model;
}

void Ask(Api api, const Json& body) {
  static const auto responses = std::make_shared<ResponseStore>(size_t{1} << 20);
  static const RequestDefaults defaults = {.model_id = "pebble"};
  ApiResult<CompletionRequest> request = ReadRequest(api, body, defaults, responses.get());
  if (!request.ok()) return ExpectClients(request.error());
  const ApiResult<std::vector<Job>> jobs = Prepare(*ModelForTest(), &*request);
  if (!jobs.ok()) {
    // The model has no tokens for /infill.
    return jobs.error().status == 501 ? void() : ExpectClients(jobs.error());
  }
  for (const Job& job : *jobs) {
    Expect(!job.prompt.empty() && job.sampler != nullptr);
    Expect(std::ranges::all_of(job.prompt, [](Token token) {
      return token >= 0 && token < ModelForTest()->shape().vocab_size;
    }));
  }
}

void ReadBody(std::string_view text) {
  const ApiResult<Json> body = ParseObject(text);
  if (!body.ok()) return ExpectClients(body.error());
  for (const Api api :
       {Api::kChat, Api::kText, Api::kResponses, Api::kMessages, Api::kLlama, Api::kInfill}) {
    Ask(api, *body);
  }
}

}  // namespace
}  // namespace ebb::server

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr size_t kMaxInputBytes = size_t{1} << 16;
  if (size > kMaxInputBytes) return 0;
  ebb::server::ReadBody({reinterpret_cast<const char*>(data), size});
  return 0;
}

#include "src/server/api/error_form.h"

#include <algorithm>
#include <functional>
#include <string>
#include <utility>

#include "src/server/api/llama/llama_exchange.h"
#include "src/server/api/messages/messages_exchange.h"

namespace ebb::server {
namespace {

using ErrorForm = HttpAnswer (*)(HttpAnswer);

// Returns the conversion for errors of `path`; null: they stay in OpenAI's form.
ErrorForm FormOf(std::string_view path) {
  constexpr std::string_view kLlamaPaths[] = {"/completion", "/completions", "/infill", "/props",
                                              "/slots"};
  if (path.starts_with("/v1/messages")) return AsMessagesError;
  const bool is_llama = std::ranges::find(kLlamaPaths, path) != std::end(kLlamaPaths);
  return is_llama ? AsLlamaError : nullptr;
}

}  // namespace

HttpAnswer InFormOf(std::string_view path, HttpAnswer answer) {
  const ErrorForm form = FormOf(path);
  return form == nullptr ? answer : form(std::move(answer));
}

std::shared_ptr<Reply> WithErrorsInFormOf(std::string_view path, std::shared_ptr<Reply> reply) {
  const ErrorForm form = FormOf(path);
  return form == nullptr ? reply : WithChangedAnswers(std::move(reply), form);
}

}  // namespace ebb::server

// Makes the answers that need no step of the engine: about the model, its tokens and templates, and
// stored responses.
#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "ebb/generate.h"
#include "src/server/api/base/json_fields.h"
#include "src/server/api/openai/continued_answer.h"
#include "src/server/server_impl.h"

namespace ebb::server {
namespace {

// Returns a token's text, or an array of its bytes if it is only part of a UTF-8 character.
Json PieceJson(const std::string& piece) {
  try {
    (void)Json(piece).dump();
    return piece;
  } catch (const Json::type_error&) {
    Json bytes = Json::array();
    for (const char byte : piece) bytes.push_back(static_cast<unsigned char>(byte));
    return bytes;
  }
}

HttpAnswer NoResponse(const std::string& id) {
  return ErrorAnswer({.status = 404,
                      .message = fmt::format("there is no response \"{}\"", id),
                      .code = "not_found"});
}

}  // namespace

Json Server::Impl::ModelJson() const {
  const ModelShape& shape = model->shape();
  return {{"id", options.defaults.model_id},
          {"object", "model"},
          {"created", started},
          {"owned_by", "ebb"},
          {"max_model_len", Context()},
          {"meta",
           {{"description", model->description()},
            {"n_vocab", shape.vocab_size},
            {"n_ctx_train", shape.trained_context},
            {"size", model->weight_bytes()}}}};
}

HttpAnswer Server::Impl::Tokenize(const Json& body) const {
  std::optional<ApiError> error;
  JsonFields fields(body, "", &error);
  const auto content = fields.Text("content");
  const auto prompt = fields.Text("prompt");
  const bool add_bos = fields.Bool("add_special").value_or(false);
  const bool parse = fields.Bool("parse_special").value_or(true);
  const bool with_pieces = fields.Bool("with_pieces").value_or(false);
  if (!content.has_value() && !prompt.has_value()) {
    fields.Fail("content", "expected a text", "missing_field");
  }
  // Limits the text, since the answer has some hundred bytes for each byte of it.
  constexpr size_t kMostInPieces = size_t{256} << 10;
  const size_t bytes = content.has_value() ? content->size() : prompt.value_or("").size();
  if (with_pieces && bytes > kMostInPieces) {
    fields.Fail(
        content.has_value() ? "content" : "prompt",
        fmt::format("expected at most {} bytes with with_pieces, found {}", kMostInPieces, bytes));
  }
  if (error.has_value()) return ErrorAnswer(*error);
  const auto tokens = model->Tokenize(content.has_value() ? *content : *prompt,
                                      add_bos ? Model::AddBos::kAsModelSays : Model::AddBos::kNo,
                                      parse ? Model::Specials::kParse : Model::Specials::kAsText);
  if (!tokens.ok()) return ErrorAnswer(ErrorFrom(tokens.status()));
  Json list = *tokens;
  if (with_pieces) {
    for (Json& token : list) {
      const std::string piece = model->TokenText(token.get<Token>(), Model::ControlTokens::kShow);
      token = {{"id", token}, {"piece", PieceJson(piece)}};
    }
  }
  return JsonAnswer({{"tokens", std::move(list)}, {"count", tokens->size()}});
}

HttpAnswer Server::Impl::Detokenize(const Json& body) const {
  std::optional<ApiError> error;
  JsonFields fields(body, "", &error);
  const Json* tokens = fields.Array("tokens");
  if (tokens == nullptr) fields.Fail("tokens", "expected an array of tokens", "missing_field");
  std::string text;
  for (size_t i = 0; !error.has_value() && i < tokens->size(); ++i) {
    const Json& token = (*tokens)[i];
    if (!token.is_number_integer() || token < 0 || token >= model->shape().vocab_size) {
      fields.Fail(fmt::format("tokens[{}]", i),
                  fmt::format("expected 0 to {}", model->shape().vocab_size - 1), "out_of_range");
      break;
    }
    text += model->TokenText(token.get<Token>(), Model::ControlTokens::kShow);
  }
  if (error.has_value()) return ErrorAnswer(*error);
  return JsonAnswer({{"content", text}});
}

HttpAnswer Server::Impl::ApplyTemplate(const Json& body) const {
  ApiResult<CompletionRequest> read =
      ReadRequest(Api::kChat, body, options.defaults, /*responses=*/nullptr, ReadScope::kPrompt);
  if (!read.ok()) return ErrorAnswer(read.error());
  auto& request = *read;
  LeaveOutTools(*model, &request);
  if (request.begun.has_value() && request.begun->reasoning_content.empty()) {
    request.chat.thinking = Thinking::kOff;
  }
  Result<ChatPrompt> prompt = model->FormatChat(request.chat);
  if (!prompt.ok()) return ErrorAnswer(ErrorFrom(prompt.status()));
  std::string text = prompt->text;
  if (request.begun.has_value()) {
    for (const BegunPiece& piece : BegunPieces(*request.begun, *prompt)) text += piece.text;
  }
  HttpAnswer answer = JsonAnswer({{"prompt", std::move(text)}});
  if (!prompt->mended.empty()) {
    answer.headers.emplace_back("X-Ebb-Mended", fmt::format("{}", fmt::join(prompt->mended, ", ")));
  }
  return answer;
}

HttpAnswer Server::Impl::CountPrompt(Api api, const Json& body) const {
  ApiResult<CompletionRequest> read =
      ReadRequest(api, body, options.defaults, responses.get(), ReadScope::kPrompt);
  if (!read.ok()) return ErrorAnswer(read.error());
  CompletionRequest& request = *read;
  LeaveOutTools(*model, &request);
  const Result<Turn> turn =
      BeginChatTurn(*model, std::move(request.chat), request.begun, /*context=*/0);
  if (!turn.ok()) return ErrorAnswer(PromptError(turn.status(), request));
  Json count = {{"input_tokens", turn->tokens.size()}};
  if (api == Api::kResponses) count["object"] = "response.input_tokens";
  return JsonAnswer(count);
}

HttpAnswer Server::Impl::GetModel(const std::string& name) const {
  if (options.defaults.IsModel(name)) return JsonAnswer(ModelJson());
  return ErrorAnswer({.status = 404,
                      .message = fmt::format("there is no such model; this server has \"{}\"",
                                             options.defaults.model_id),
                      .code = "model_not_found",
                      .param = "model"});
}

HttpAnswer Server::Impl::GetResponse(const std::string& id) {
  const auto stored = responses->Find(id);
  return stored == nullptr ? NoResponse(id) : JsonAnswer(stored->response());
}

HttpAnswer Server::Impl::GetResponseInput(const std::string& id) {
  const auto stored = responses->Find(id);
  if (stored == nullptr) return NoResponse(id);
  return JsonAnswer({{"object", "list"}, {"data", stored->input()}, {"has_more", false}});
}

HttpAnswer Server::Impl::DeleteResponse(const std::string& id) {
  if (!responses->Delete(id)) return NoResponse(id);
  return JsonAnswer({{"id", id}, {"object", "response"}, {"deleted", true}});
}

HttpAnswer Server::Impl::CancelResponse(const std::string& id) {
  const bool is_response = id.starts_with("resp_");
  const auto found = std::ranges::find_if(running, [&](const auto& job) {
    const Served& served = job.second.first;
    return is_response && !served->is_over && served->exchange->id() == id;
  });
  if (found == running.end()) {
    return ErrorAnswer({.status = 404,
                        .message = fmt::format("no response \"{}\" is being made", id),
                        .code = "not_found"});
  }
  // The request that made the response gets its end once the job has ended.
  driver->Cancel(found->first);
  Json response = found->second.first->exchange->Whole();
  response["status"] = "cancelled";
  return JsonAnswer(response);
}

}  // namespace ebb::server

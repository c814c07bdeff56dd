#include "src/server/api/openai/openai_request.h"

#include <utility>

#include <fmt/format.h>

#include "src/server/api/openai/chat_fields.h"
#include "src/server/api/openai/request_reader.h"

namespace ebb::server {
namespace {

constexpr size_t kMostPrompts = 16;

class ChatRequestReader final : public RequestReader {
 public:
  ChatRequestReader(const Json& body, const RequestDefaults& defaults)
      : RequestReader(Endpoint::kChat, body, defaults) {}

  ApiResult<CompletionRequest> Read(ReadScope scope) {
    if (scope == ReadScope::kAnswer) ReadModel();
    ReadChatMessages(&fields_, &error_, &request_);
    ReadChatOptions(&fields_, &error_, {}, /*continues=*/std::nullopt, &request_);
    if (scope == ReadScope::kPrompt) return Take(scope);
    ReadChatOutput();
    ReadPrediction();
    ReadShared();
    return Take();
  }
};

class TextRequestReader final : public RequestReader {
 public:
  TextRequestReader(const Json& body, const RequestDefaults& defaults)
      : RequestReader(Endpoint::kText, body, defaults) {}

  ApiResult<CompletionRequest> Read() {
    ReadModel();
    ReadPrompts();
    if (const auto top = fields_.Integer("logprobs", 0, kMostLogprobs)) {
      request_.logprobs = static_cast<int>(*top);
    }
    ReadTextGrammar();
    ReadShared();
    return Take();
  }

 private:
  // Reads `prompt`: a text, several texts, a list of tokens, or several lists of tokens.
  void ReadPrompts() {
    const Json* prompt = fields_.Any("prompt");
    if (prompt == nullptr) return Fail("prompt", "expected a text", "missing_field");
    if (prompt->is_string()) return request_.prompts.push_back({prompt->get<std::string>()});
    if (!prompt->is_array() || prompt->empty()) {
      return Fail("prompt", "expected a string, or an array of strings or tokens", "invalid_type");
    }
    if (prompt->front().is_number()) {
      return request_.prompts.push_back({TokensOf(*prompt, "prompt")});
    }
    if (prompt->size() > kMostPrompts) {
      return Fail("prompt",
                  fmt::format("expected at most {}, found {}", kMostPrompts, prompt->size()));
    }
    const bool are_texts = prompt->front().is_string();
    for (size_t i = 0; i < prompt->size(); ++i) {
      const Json& one = (*prompt)[i];
      const std::string path = fmt::format("prompt[{}]", i);
      if (are_texts && one.is_string()) {
        request_.prompts.push_back({one.get<std::string>()});
      } else if (!are_texts && one.is_array()) {
        request_.prompts.push_back({TokensOf(one, path)});
      } else {
        return Fail(path, "expected strings or lists of tokens, all of one kind", "invalid_type");
      }
    }
  }
};

}  // namespace

ApiResult<CompletionRequest> ReadChat(const Json& body, const RequestDefaults& defaults,
                                      ReadScope scope) {
  return ChatRequestReader(body, defaults).Read(scope);
}

ApiResult<CompletionRequest> ReadText(const Json& body, const RequestDefaults& defaults) {
  return TextRequestReader(body, defaults).Read();
}

}  // namespace ebb::server

#include "src/server/api/openai/text_bytes.h"

#include <algorithm>
#include <variant>

#include <fmt/format.h>

namespace ebb::server {

size_t TextBytes(std::span<const ChatMessage> messages) {
  size_t bytes = 0;
  for (const ChatMessage& message : messages) {
    bytes += message.content.size() + message.reasoning_content.size();
    for (const ToolCall& call : message.tool_calls) bytes += call.arguments.size();
  }
  return bytes;
}

namespace {

size_t TextBytes(const MixedPrompt& prompt) {
  size_t bytes = 0;
  for (const auto& part : prompt) {
    if (const auto* text = std::get_if<std::string>(&part)) bytes += text->size();
  }
  return bytes;
}

}  // namespace

size_t TextBytes(const CompletionRequest& request) {
  size_t bytes = TextBytes(request.chat.messages);
  for (const MixedPrompt& prompt : request.prompts) bytes += TextBytes(prompt);
  return bytes;
}

std::optional<ApiError> CheckTextFits(const CompletionRequest& request, size_t bytes_per_token,
                                      int context) {
  if (request.session.past_context == PastContext::kReRotate) return std::nullopt;
  // Only the largest of several prompts counts.
  size_t bytes = 0;
  for (const ChatMessage& message : request.chat.messages) {
    if (message.role == "user" || message.role == "tool") bytes += message.content.size();
  }
  for (const MixedPrompt& prompt : request.prompts) bytes = std::max(bytes, TextBytes(prompt));
  const size_t tokens = bytes / bytes_per_token;
  if (tokens < static_cast<size_t>(context)) return std::nullopt;
  return Invalid(
      fmt::format(
          // Agents shorten their conversation when they find the words "exceeds the available
          // context size".
          "the prompt has {} bytes, at least {} tokens, which exceeds the available context size "
          "of {} tokens",
          bytes, tokens, context),
      request.prompt_field, "context_length_exceeded");
}

}  // namespace ebb::server

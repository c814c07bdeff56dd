#include "src/model/chat.h"

#include <exception>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include <chat.h>
#include <fmt/format.h>
#include <llama.h>
#include <log.h>

#include "src/model/loaded_model.h"

namespace ebb {
namespace {

// A library does not print. What the common library would log as an error it throws as well.
void SilenceLog() {
  static std::once_flag once;
  std::call_once(once, [] { common_log_set_verbosity_thold(-1); });
}

// common_chat_templates_init() rethrows a sliced exception, so that the reason is lost there.
std::string ParseError(const std::string& source) {
  try {
    common_chat_template parsed(source, "", "");
  } catch (const std::exception& error) {
    return error.what();
  }
  return "it cannot be analysed";
}

common_chat_templates_inputs InputsFor(std::span<const ChatMessage> messages,
                                       Model::Thinking thinking) {
  common_chat_templates_inputs inputs;
  for (const ChatMessage& message : messages) {
    common_chat_msg& input = inputs.messages.emplace_back();
    input.role = message.role;
    input.content = message.content;
  }
  inputs.enable_thinking = thinking == Model::Thinking::kModelDefault;
  return inputs;
}

ChatPrompt PromptFrom(const common_chat_params& params, const std::string& source) {
  ChatPrompt prompt;
  prompt.text = params.prompt;
  prompt.stops = params.additional_stops;
  if (params.supports_thinking && !params.thinking_end_tags.empty()) {
    prompt.thinking_start = params.thinking_start_tag;
    prompt.thinking_end = params.thinking_end_tags.front();
  }
  // Templates that only cut thoughts out of earlier turns (R1 distillates before February 2025)
  // tell the analysis too little: it finds no tags, or the closing one alone.
  constexpr std::string_view kStart = "<think>";
  constexpr std::string_view kEnd = "</think>";
  if (prompt.thinking_end.empty() && source.find(kEnd) != std::string::npos) {
    prompt.thinking_end = kEnd;
  }
  if (prompt.thinking_start.empty() && prompt.thinking_end == kEnd) prompt.thinking_start = kStart;
  if (prompt.thinking_start.empty() || prompt.thinking_end.empty()) {
    prompt.thinking_start.clear();
    prompt.thinking_end.clear();
    return prompt;
  }
  const std::string_view opening = params.generation_prompt;
  const size_t start = opening.rfind(prompt.thinking_start);
  const size_t end = opening.rfind(prompt.thinking_end);
  prompt.opens_in_thinking =
      start != std::string::npos && (end == std::string::npos || end < start);
  return prompt;
}

}  // namespace

Result<ChatPrompt> RenderChat(const llama_model* model, const std::string& source,
                              std::span<const ChatMessage> messages, Model::Thinking thinking) {
  SilenceLog();
  std::string text = source;
  if (text.empty()) {
    const char* own = llama_model_chat_template(model, nullptr);
    if (own == nullptr) {
      return Unsupported("the model file has no chat template; give the prompt as raw text");
    }
    text = own;
  }
  common_chat_templates_ptr templates;
  try {
    templates = common_chat_templates_init(model, source);
  } catch (const std::exception&) {
    return Corrupt(fmt::format("the chat template does not parse: {}", ParseError(text)));
  }
  common_chat_templates_inputs inputs = InputsFor(messages, thinking);
  try {
    return PromptFrom(common_chat_templates_apply(templates.get(), inputs), text);
  } catch (const std::exception&) {
    // The analysis of how the answer will look may fail where rendering alone does not.
    inputs.force_pure_content = true;
  }
  try {
    return PromptFrom(common_chat_templates_apply(templates.get(), inputs), text);
  } catch (const std::exception& error) {
    return Unsupported(fmt::format("the chat template refuses: {}", error.what()));
  }
}

Result<ChatPrompt> Model::FormatChat(std::span<const ChatMessage> messages,
                                     Thinking thinking) const {
  // The common library tells templates the time by localtime(), which is one for all threads.
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  return RenderChat(loaded_->vocab_model.get(), "", messages, thinking);
}

}  // namespace ebb

// Implements the turns of a conversation. Invariant: the conversation's messages are those of turns
// that have ended, each with its answer, so that a turn can be abandoned at any time before its
// end.

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "ebb/generate.h"
#include "ebb/state.h"

namespace ebb {
namespace {

constexpr std::string_view kBlanks = " \t\r\n";

std::string_view WithoutBlanks(std::string_view text) {
  const size_t begin = std::min(text.find_first_not_of(kBlanks), text.size());
  text.remove_prefix(begin);
  return text.substr(0, text.find_last_not_of(kBlanks) + 1);
}

// Returns an answer in the form that templates expect in a message: with both tags around the
// thought. Adds a tag that is missing because the prompt contained it or the answer was cut off.
std::string WithTags(const std::string& answer, const ChatPrompt& prompt) {
  std::string text = answer;
  if (prompt.thinking_end.empty()) return text;
  if (prompt.opens_in_thinking) text = prompt.thinking_start + "\n" + text;
  const bool is_open = text.find(prompt.thinking_start) != std::string::npos &&
                       text.find(prompt.thinking_end) == std::string::npos;
  return is_open ? text + "\n" + prompt.thinking_end : text;
}

bool EndedByItself(const GenerateResult& result) {
  return result.finish_reason == FinishReason::kStop ||
         result.finish_reason == FinishReason::kStopString;
}

std::vector<ChatMessage> WithoutLastAnswer(std::vector<ChatMessage> messages) {
  if (!messages.empty() && messages.back().role == "assistant") messages.pop_back();
  return messages;
}

Status CheckPrompt(const Turn& turn) {
  return turn.tokens.empty() ? InvalidArgument("expected a prompt, found an empty one")
                             : OkStatus();
}

// Returns the tokens that the session has read, and the last token of the answer, which was shown,
// if the session has not read it.
std::vector<Token> ReadAndShown(std::span<const Token> read, const AnswerSoFar& answer) {
  std::vector<Token> tokens(read.begin(), read.end());
  const size_t end = static_cast<size_t>(answer.begin) + answer.tokens.size();
  if (tokens.size() < end && !answer.tokens.empty()) tokens.push_back(answer.tokens.back());
  return tokens;
}

// Returns a thought without its tags, channel marks and surrounding blanks.
std::string WithoutTags(std::string_view thought, const ChatPrompt& prompt) {
  thought = WithoutThoughtEnd(WithoutBlanks(thought), prompt);
  if (thought.starts_with(prompt.thinking_start)) {
    thought.remove_prefix(prompt.thinking_start.size());
  }
  // An answer without a thought begins with its channel's mark, which is no thought.
  if (!thought.empty() && prompt.channels.answer.starts_with(thought)) return "";
  std::string text(WithoutBlanks(thought));
  JoinThoughts(MarksBetweenThoughts(prompt), &text);
  return text;
}

ChatMessage MessageOf(const Turn& turn, const GenerateResult& result,
                      const Conversation& conversation) {
  const bool has_channels = !turn.prompt.channels.empty();
  ChatMessage message = {.role = "assistant"};
  if (has_channels) {
    // Passes the thought as a separate member, because templates of models with channels refuse
    // marks in `content`.
    message.reasoning_content =
        WithoutTags(std::string_view(result.text).substr(0, result.thought_bytes), turn.prompt);
    message.content = result.text.substr(result.thought_bytes);
  } else {
    message.content = WithTags(result.text, turn.prompt);
  }
  if (conversation.request.tools.empty() || !EndedByItself(result)) return message;
  const std::string thought = result.text.substr(0, result.thought_bytes);
  Result<ChatAnswer> answer = ParseAnswer(
      turn.prompt, std::string_view(result.text).substr(thought.size()), AnswerEnd::kComplete);
  // If the answer's format is unknown, the message keeps the text as it was written.
  if (!answer.ok() || answer->tool_calls.empty()) return message;
  const bool shows_thought = !thought.empty() && !has_channels;
  message.content = (shows_thought ? WithTags(thought, turn.prompt) : "") + answer->content;
  message.tool_calls = std::move(answer->tool_calls);
  SetCallIds(CallIdSeed(conversation.request.messages), &message.tool_calls);
  return message;
}

constexpr uint32_t kVersion = 3;

void Encode(const ChatMessage& message, StateWriter* to) {
  for (const std::string* text : {&message.role, &message.content, &message.reasoning_content,
                                  &message.tool_call_id, &message.name}) {
    to->Text(*text);
  }
  to->Number<uint64_t>(message.tool_calls.size());
  for (const ToolCall& call : message.tool_calls) {
    for (const std::string* text : {&call.name, &call.arguments, &call.id}) to->Text(*text);
  }
}

ChatMessage DecodeMessage(StateReader* from) {
  ChatMessage message;
  for (std::string* text : {&message.role, &message.content, &message.reasoning_content,
                            &message.tool_call_id, &message.name}) {
    *text = from->Text();
  }
  const size_t num_calls = from->Length(3 * sizeof(uint64_t));
  for (size_t i = 0; i < num_calls && from->ok(); ++i) {
    ToolCall& call = message.tool_calls.emplace_back();
    for (std::string* text : {&call.name, &call.arguments, &call.id}) *text = from->Text();
  }
  return message;
}

}  // namespace

Status CheckPromptBytes(const Model& model, size_t bytes, size_t kept, int context) {
  const size_t least = kept + model.LeastTokens(bytes);
  if (context == 0 || least < static_cast<size_t>(context)) return OkStatus();
  return ContextFull(fmt::format(
      "the prompt has {} bytes, so at least {} tokens (none has more than {} bytes){}, which "
      "exceeds the available context size of {} tokens",
      bytes, least - kept, model.longest_token_bytes(),
      kept == 0 ? "" : fmt::format(" behind the {} of the session", kept), context));
}

Result<Turn> BeginTurn(const Model& model, const Conversation& conversation,
                       std::span<const ChatMessage> messages, int context) {
  Turn turn = {.messages = {messages.begin(), messages.end()},
               .thinking = conversation.request.thinking,
               .index = conversation.num_turns};
  ChatRequest request = conversation.request;
  request.messages.insert(request.messages.end(), messages.begin(), messages.end());
  EBB_ASSIGN_OR_RETURN(turn.prompt, model.FormatChat(request));
  EBB_RETURN_IF_ERROR(CheckPromptBytes(model, turn.prompt.text.size(), /*kept=*/0, context));
  EBB_ASSIGN_OR_RETURN(turn.tokens, model.TokenizePrompt(turn.prompt, Model::AddBos::kAsModelSays));
  EBB_RETURN_IF_ERROR(CheckPrompt(turn));
  turn.prompt.text.clear();
  turn.prompt.plain_at.clear();
  return turn;
}

Result<Turn> BeginTextTurn(const Model& model, const Conversation& conversation,
                           std::string_view text, std::span<const Token> read, int context) {
  EBB_RETURN_IF_ERROR(CheckPromptBytes(model, text.size(), read.size(), context));
  Turn turn = {.index = conversation.num_turns};
  if (conversation.num_turns == 0) {
    EBB_ASSIGN_OR_RETURN(
        turn.tokens, model.Tokenize(text, Model::AddBos::kAsModelSays, Model::Specials::kParse));
    EBB_RETURN_IF_ERROR(CheckPrompt(turn));
    return turn;
  }
  turn.tokens = ReadAndShown(read, conversation.last.so_far);
  EBB_ASSIGN_OR_RETURN(const std::vector<Token> more,
                       model.Tokenize(text, Model::AddBos::kNo, Model::Specials::kParse));
  turn.tokens.insert(turn.tokens.end(), more.begin(), more.end());
  EBB_RETURN_IF_ERROR(CheckPrompt(turn));
  return turn;
}

Result<Turn> ContinueTurn(const Model& model, const Conversation& conversation,
                          GenerateOptions::OnEnd on_end) {
  if (conversation.num_turns == 0 || conversation.last.so_far.tokens.empty()) {
    return InvalidArgument("expected a prompt: the conversation has no answer to go on with");
  }
  if (conversation.last_is_over && on_end == GenerateOptions::OnEnd::kStop) {
    return InvalidArgument(
        "expected a prompt: the last answer is over; on_end kIgnore goes on with it");
  }
  Turn turn;
  if (conversation.kind == Conversation::Kind::kChat) {
    Conversation before = conversation;
    before.request.messages = WithoutLastAnswer(std::move(before.request.messages));
    before.request.thinking = conversation.last_thinking;
    EBB_ASSIGN_OR_RETURN(turn, BeginTurn(model, before, {}));
    turn.tokens.clear();
  }
  turn.index = conversation.num_turns - 1;
  turn.goes_on = conversation.last;
  return turn;
}

GenerateOptions OptionsFor(const Turn& turn, GenerateOptions options) {
  const ChatPrompt& prompt = turn.prompt;
  options.turn_ends = prompt.stops;
  options.num_begun = turn.num_begun;
  SetTags(prompt, &options);
  if (turn.goes_on.has_value()) options.so_far = turn.goes_on->so_far;
  return options;
}

Result<std::unique_ptr<Sampler>> SamplerFor(const Turn& turn, const Model& model,
                                            SamplingOptions options) {
  options.seed += turn.index;
  if (!turn.prompt.grammar.empty()) {
    options.grammar = turn.prompt.grammar;
    options.grammar_prefix = turn.prompt.grammar_prefix;
    options.grammar_triggers = turn.prompt.grammar_triggers;
  }
  EBB_ASSIGN_OR_RETURN(std::unique_ptr<Sampler> sampler, Sampler::Create(model, options));
  if (!turn.goes_on.has_value()) return sampler;
  StateReader from(std::as_bytes(std::span(turn.goes_on->sampler)), "the sampler's state");
  EBB_RETURN_IF_ERROR(sampler->LoadState(&from));
  EBB_RETURN_IF_ERROR(from.End());
  return sampler;
}

std::string SavedState(const Sampler& sampler) {
  StateWriter to;
  sampler.SaveState(&to);
  return to.text();
}

Result<ChatMessage> AnswerMessage(const ChatPrompt& prompt, const GenerateResult& result) {
  const std::string_view text = result.text;
  const std::string_view thought = text.substr(0, result.thought_bytes);
  std::string_view rest = text.substr(result.thought_bytes);
  if (!WithoutBlanks(thought).empty()) {
    rest.remove_prefix(std::min(rest.find_first_not_of(kBlanks), rest.size()));
  }
  EBB_ASSIGN_OR_RETURN(ChatAnswer answer, ParseAnswer(prompt, rest,
                                                      EndedByItself(result) ? AnswerEnd::kComplete
                                                                            : AnswerEnd::kPartial));
  return ChatMessage{.role = "assistant",
                     .content = std::move(answer.content),
                     .reasoning_content = WithoutTags(thought, prompt),
                     .tool_calls = std::move(answer.tool_calls)};
}

void EndTurn(const Turn& turn, const GenerateResult& result, std::string sampler,
             Conversation* conversation) {
  conversation->last = {.so_far = result.answer, .sampler = std::move(sampler)};
  conversation->last_is_over = EndedByItself(result);
  conversation->last_thinking = turn.thinking;
  if (!turn.goes_on.has_value()) ++conversation->num_turns;
  if (conversation->kind == Conversation::Kind::kText) return;
  const bool has_ended = result.finish_reason != FinishReason::kCancelled &&
                         result.finish_reason != FinishReason::kError;
  if (result.answer.tokens.empty() && !has_ended) return;
  std::vector<ChatMessage>& messages = conversation->request.messages;
  if (turn.goes_on.has_value()) messages = WithoutLastAnswer(std::move(messages));
  messages.insert(messages.end(), turn.messages.begin(), turn.messages.end());
  messages.push_back(MessageOf(turn, result, *conversation));
}

std::string EncodeConversation(const Conversation& conversation) {
  StateWriter to;
  to.Number<uint32_t>(kVersion);
  to.Number<uint8_t>(static_cast<uint8_t>(conversation.kind));
  to.Number<uint8_t>(conversation.last_is_over ? 1 : 0);
  to.Number<uint8_t>(static_cast<uint8_t>(conversation.last_thinking));
  to.Number<uint64_t>(conversation.num_turns);
  to.Number<uint64_t>(conversation.request.messages.size());
  for (const ChatMessage& message : conversation.request.messages) Encode(message, &to);
  const AnswerSoFar& last = conversation.last.so_far;
  to.Number<int32_t>(last.begin);
  to.Number<uint64_t>(last.text_bytes);
  to.Numbers<Token>(last.tokens);
  to.Text(conversation.last.sampler);
  return to.text();
}

Result<Conversation> DecodeConversation(std::string_view bytes) {
  StateReader from(std::as_bytes(std::span(bytes)), "the conversation");
  if (from.Number<uint32_t>() != kVersion) from.Fail("another version");
  Conversation conversation;
  const auto kind = from.Number<uint8_t>();
  if (kind > 1) from.Fail("neither a chat nor a text");
  conversation.kind = static_cast<Conversation::Kind>(kind);
  conversation.last_is_over = from.Number<uint8_t>() != 0;
  const auto thinking = from.Number<uint8_t>();
  if (thinking > 1) from.Fail("thoughts are neither on nor off");
  conversation.last_thinking = static_cast<Thinking>(thinking);
  conversation.num_turns = from.Number<uint64_t>();
  const size_t num_messages = from.Length(6 * sizeof(uint64_t));
  for (size_t i = 0; i < num_messages && from.ok(); ++i) {
    conversation.request.messages.push_back(DecodeMessage(&from));
  }
  AnswerSoFar& last = conversation.last.so_far;
  last.begin = from.Number<int32_t>();
  last.text_bytes = from.Number<uint64_t>();
  last.tokens = from.Numbers<Token>();
  conversation.last.sampler = from.Text();
  if (last.begin < 0) from.Fail("an answer before the first token");
  EBB_RETURN_IF_ERROR(from.End());
  return conversation;
}

}  // namespace ebb

#include "src/cli/conversation.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include <fmt/format.h>

#include "ebb/session_file.h"
#include "ebb/state.h"
#include "src/cli/fit_memory.h"

namespace ebb::cli {
namespace {

constexpr uint32_t kVersion = 1;

bool HasSystem(const Conversation& conversation) {
  return !conversation.messages.empty() && conversation.messages.front().role == "system";
}

// What the template is given as the answer: templates find the thought by its tags.
std::string AsMessage(const std::string& answer, const ChatPrompt& prompt) {
  std::string text = answer;
  if (prompt.thinking_end.empty()) return text;
  if (prompt.opens_in_thinking) text = prompt.thinking_start + "\n" + text;
  const bool open = text.find(prompt.thinking_start) != std::string::npos &&
                    text.find(prompt.thinking_end) == std::string::npos;
  return open ? text + "\n" + prompt.thinking_end : text;
}

// All that has been said, for a text that follows without any template.
Result<TurnInput> ContinueRaw(const Setup& setup, const std::string& text,
                              const Conversation& conversation) {
  const std::span<const Token> known = setup.session->tokens();
  TurnInput input = {.tokens = {known.begin(), known.end()}, .prompt = {}};
  const AnswerSoFar& last = conversation.last.so_far;
  const size_t end = last.begin + last.tokens.size();
  if (known.size() < end && !last.tokens.empty()) input.tokens.push_back(last.tokens.back());
  EBB_ASSIGN_OR_RETURN(const std::vector<Token> more,
                       setup.model->Tokenize(text, Model::AddBos::kNo, Model::Specials::kParse));
  input.tokens.insert(input.tokens.end(), more.begin(), more.end());
  return input;
}

// The prompt that the last answer followed: templates open a thought or leave it out as the budget
// says, which may be another one now.
Result<TurnInput> LastInput(const Setup& setup, CliOptions options,
                            const Conversation& conversation) {
  const auto& messages = conversation.messages;
  Result<TurnInput> input = ChatInput(*setup.model, messages, options);
  if (!input.ok()) return input;
  const std::span<const Token> known = setup.session->tokens();
  const auto begin = static_cast<size_t>(conversation.last.so_far.begin);
  const auto fits = [&](const TurnInput& one) {
    return std::ranges::equal(one.tokens, known.first(std::min(begin, known.size())));
  };
  if (fits(*input)) return input;
  options.thinking_budget = options.thinking_budget == 0 ? -1 : 0;
  Result<TurnInput> other = ChatInput(*setup.model, messages, options);
  return other.ok() && fits(*other) ? std::move(other) : std::move(input);
}

Result<TurnInput> GoOn(const Setup& setup, const CliOptions& options, Conversation* conversation) {
  if (conversation->num_turns == 0 || conversation->last.so_far.tokens.empty()) {
    return InvalidArgument("expected a prompt: the session has no answer to go on with");
  }
  if (conversation->last_is_over && !options.ignore_eos) {
    return InvalidArgument(
        "expected a prompt: the session's last answer is over; --ignore-eos goes on with it");
  }
  TurnInput input;
  if (conversation->kind == Conversation::Kind::kChat) {
    std::vector<ChatMessage>& messages = conversation->messages;
    if (!messages.empty() && messages.back().role == "assistant") messages.pop_back();
    EBB_ASSIGN_OR_RETURN(input, LastInput(setup, options, *conversation));
    input.tokens.clear();
  }
  input.goes_on = conversation->last;
  return input;
}

}  // namespace

Result<Setup> OpenSessionSetup(std::shared_ptr<const Model> model, CliOptions* options) {
  if (!options->session_file.empty()) {
    const Status place = CheckSessionPlace(options->session_file);
    if (!place.ok()) {
      return Status(place.code(),
                    fmt::format("the session could not be saved: {}", place.message()));
    }
  }
  auto& tiers = options->session.policy.tiers;
  if (options->fit.memory_bytes > 0 && !tiers.has_value() && !options->session_file.empty()) {
    const Result<SessionFileInfo> info = ReadSessionInfo(options->session_file);
    if (info.ok()) options->engine.tiers = tiers = info->tiers;
    if (!info.ok() && info.status().code() != StatusCode::kNotFound) return info.status();
  }
  const int context =
      options->session.context > 0 ? options->session.context : model->shape().trained_context;
  EBB_RETURN_IF_ERROR(FitIntoMemory(*model, context / 2, options, PromptsCome::kAtAnyTime));
  EBB_ASSIGN_OR_RETURN(Setup setup, OpenSetup(std::move(model), *options));
  if (setup.resumed.has_value() && !options->quiet && !options->json) {
    fmt::print(stderr, "[session: {} tokens resumed from {}]\n", setup.session->next_position(),
               options->session_file);
  }
  return setup;
}

std::string Encode(const Conversation& conversation) {
  StateWriter to;
  to.Number<uint32_t>(kVersion);
  to.Number<uint8_t>(static_cast<uint8_t>(conversation.kind));
  to.Number<uint8_t>(conversation.last_is_over ? 1 : 0);
  to.Number<uint64_t>(conversation.num_turns);
  to.Number<uint64_t>(conversation.messages.size());
  for (const ChatMessage& message : conversation.messages) {
    to.Text(message.role);
    to.Text(message.content);
  }
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
  conversation.num_turns = from.Number<uint64_t>();
  const size_t num_messages = from.Length(2 * sizeof(uint64_t));
  for (size_t i = 0; i < num_messages && from.ok(); ++i) {
    ChatMessage& message = conversation.messages.emplace_back();
    message.role = from.Text();
    message.content = from.Text();
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

Result<Conversation> OpenConversation(const Setup& setup, const CliOptions& options,
                                      Conversation::Kind kind) {
  Conversation conversation;
  if (!setup.resumed.has_value()) {
    conversation.kind = kind;
    if (!options.system.empty()) conversation.messages.push_back({"system", options.system});
    return conversation;
  }
  EBB_ASSIGN_OR_RETURN(conversation, DecodeConversation(*setup.resumed));
  const std::string& file = options.session_file;
  if (conversation.kind != kind) {
    return InvalidArgument(fmt::format("{}: {}", file,
                                       kind == Conversation::Kind::kChat
                                           ? "the session is a text; go on with run --raw"
                                           : "the session is a conversation; leave --raw out"));
  }
  const bool same =
      HasSystem(conversation) && conversation.messages.front().content == options.system;
  if (!options.system.empty() && !same) {
    return InvalidArgument(fmt::format("{}: the session has {} system message; leave --system out",
                                       file, HasSystem(conversation) ? "another" : "no"));
  }
  return conversation;
}

Status SaveConversation(const Conversation& conversation, const CliOptions& options, Setup* setup) {
  if (options.session_file.empty()) return OkStatus();
  const Status status = SaveSession(*setup->session, options.session_file, Encode(conversation));
  if (status.ok()) return status;
  return Status(status.code(), fmt::format("the session was not saved: {}", status.message()));
}

Result<TurnInput> BeginTurn(const Setup& setup, const CliOptions& options, const std::string& text,
                            Conversation* conversation) {
  if (text.empty()) return GoOn(setup, options, conversation);
  Result<TurnInput> input = InvalidArgument("");
  if (conversation->kind == Conversation::Kind::kChat) {
    conversation->messages.push_back({"user", text});
    input = ChatInput(*setup.model, conversation->messages, options);
  } else if (conversation->num_turns == 0) {
    input = RawInput(*setup.model, text);
  } else {
    input = ContinueRaw(setup, text, *conversation);
  }
  if (input.ok()) ++conversation->num_turns;
  return input;
}

uint64_t SeedOfTurn(const CliOptions& options, const Conversation& conversation) {
  return options.sampling.seed + conversation.num_turns - 1;
}

void EndTurn(const RunFigures& figures, const TurnInput& input, Conversation* conversation) {
  const GenerateResult& result = figures.result;
  const bool chat = conversation->kind == Conversation::Kind::kChat;
  conversation->last = {.so_far = result.answer, .sampler = figures.sampler};
  conversation->last_is_over = result.finish_reason == FinishReason::kStop ||
                               result.finish_reason == FinishReason::kStopString;
  if (!chat) return;
  const bool ended = result.finish_reason != FinishReason::kCancelled &&
                     result.finish_reason != FinishReason::kError;
  if (result.answer.tokens.empty() && !ended) {
    conversation->messages.pop_back();
  } else {
    conversation->messages.push_back({"assistant", AsMessage(result.text, input.prompt)});
  }
}

}  // namespace ebb::cli

// Chat: a conversation and the requirements on its next answer (ChatRequest), the prompt that a
// model's chat template makes of them (ChatPrompt), and the parts of an answer (ChatAnswer).
//
//   EBB_ASSIGN_OR_RETURN(ChatPrompt prompt, model.FormatChat(request));
//   EBB_ASSIGN_OR_RETURN(auto tokens, model.TokenizePrompt(prompt, Model::AddBos::kAsModelSays));
//   // Generate from these tokens, under the prompt's grammar, stops and thinking tags.
//   EBB_ASSIGN_OR_RETURN(ChatAnswer answer, ParseAnswer(prompt, text, AnswerEnd::kComplete));
//
// SPDX-License-Identifier: MIT
#ifndef EBB_CHAT_H_
#define EBB_CHAT_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ebb/status.h"
#include "ebb/types.h"

namespace [[gnu::visibility("default")]] ebb {

// ToolCall describes a call of a function by the assistant.
struct ToolCall {
  std::string name;
  std::string arguments;  // a JSON object as text
  std::string id = {};    // empty: the model gave none

  friend bool operator==(const ToolCall&, const ToolCall&) = default;
};

// ChatMessage is one message of a conversation.
struct ChatMessage {
  std::string role;  // "system", "developer", "user", "assistant" or "tool"
  std::string content;
  std::string reasoning_content = {};     // the thought of an assistant's message
  std::vector<ToolCall> tool_calls = {};  // of an assistant's message
  std::string tool_call_id = {};          // of a tool's message: the call that it answers
  std::string name = {};                  // of a tool's message: the function; may be empty
};

// Returns a seed for the ids of the tool calls in the answer to `messages` followed by `more`. The
// seed differs between conversations and between turns, and is the same in every run.
[[nodiscard]] uint64_t CallIdSeed(std::span<const ChatMessage> messages,
                                  std::span<const ChatMessage> more = {});
// Returns an id, nine letters and digits, for a call to which the model gave none. `seed` is
// CallIdSeed(); `choice` numbers the answers to one request, `index` the calls of one answer.
[[nodiscard]] std::string MakeCallId(uint64_t seed, size_t choice, size_t index);
// Sets the ids of the calls that have none, as MakeCallId() makes them.
void SetCallIds(uint64_t seed, std::vector<ToolCall>* calls);

// Tool describes a function that the assistant may call.
struct Tool {
  std::string name;  // letters, digits, '_' and '-', at most 64
  std::string description = {};
  std::string parameters = {};  // a JSON schema of an object as text; empty: no parameters
};

// ResponseFormat limits the texts that an answer may be.
enum class ResponseFormat {
  kText,
  kJsonObject,  // any JSON object
  kJsonSchema,  // JSON of ChatRequest::json_schema
};

// Thinking selects whether the template is asked for thoughts. kModelDefault leaves that to the
// template.
enum class Thinking { kModelDefault, kOff };

// ChatRequest is a conversation with the requirements on its next answer.
struct ChatRequest {
  std::vector<ChatMessage> messages;
  std::vector<Tool> tools = {};
  // Names the calls that the model may make: "auto" (any or none), "none", "required" (at least
  // one), or the name of the tool that it must call.
  std::string tool_choice = "auto";
  bool parallel_tool_calls = true;  // more than one call in an answer
  // Sets the format of the answer, by a response format or a grammar. The model may call a tool
  // instead of writing such a text, unless a call is required. A grammar is refused with tools that
  // may be called.
  ResponseFormat response_format = ResponseFormat::kText;
  std::string json_schema = {};  // for kJsonSchema
  std::string grammar = {};      // GBNF with a rule "root"; empty: none
  Thinking thinking = Thinking::kModelDefault;
  // Holds variables for the template as JSON texts, for example "reasoning_effort". They do not
  // replace other members of the request.
  std::map<std::string, std::string> template_arguments = {};
  bool opens_answer = true;  // the prompt ends where the answer begins; else behind the messages
};

// GrammarTrigger is the condition that activates a lazy grammar: the answer contains a text, a
// match of a regular expression (ECMAScript), or a token.
struct GrammarTrigger {
  enum class Kind { kText, kPattern, kToken };
  Kind kind = Kind::kText;
  std::string text = {};  // of kText and kPattern
  Token token = 0;        // of kToken
};

struct AnswerSyntax;  // src/model/chat/chat.cc

// ChannelMarks holds the marks between the messages of one answer, for models that write thought
// and answer as separate messages (gpt-oss's channels). Both are empty for other models.
struct ChannelMarks {
  std::string message = {};  // begins each message behind the first, as "<|start|>assistant"
  std::string answer = {};   // begins the answer in its message: "<|channel|>final<|message|>"

  [[nodiscard]] bool empty() const { return message.empty(); }
};

// ChatPrompt is the prompt that a chat template made of a request.
struct ChatPrompt {
  std::string text;
  // Lists byte offsets of `text`, ascending, that came from the text of a message. A special token
  // whose text covers one of them is read as plain text by Model::TokenizePrompt().
  std::vector<size_t> plain_at = {};
  std::string thinking_start = {};  // the tags between which the model thinks; empty: it does not
  std::string thinking_end = {};
  bool opens_in_thinking = false;  // the prompt ends inside a thought
  ChannelMarks channels = {};
  // Holds marks that must follow the end of a thought if a grammar restricts the answer, or if the
  // end of the thought was forced; empty: none.
  std::string after_thought = {};
  std::vector<std::string> stops = {};  // further stop strings that the template asks for
  // `grammar`, `grammar_prefix` and `grammar_triggers` constrain the answer; they go into the
  // SamplingOptions of the same names.
  std::string grammar = {};  // empty: nothing
  std::string grammar_prefix = {};
  std::vector<GrammarTrigger> grammar_triggers = {};
  // Names the parts of tools' schemas whose constraints the grammar does not enforce:
  // "tools[1].parameters.properties.x".
  std::vector<std::string> widened = {};
  // Describes how FormatChat() changed messages that the template refuses as they are: "neighbours
  // of one role were joined".
  std::vector<std::string> mended = {};
  // Names the template arguments that the template does not read, or refuses.
  std::vector<std::string> unused_arguments = {};
  // Tells ParseAnswer() how to read the answer; null: the whole answer is content.
  std::shared_ptr<const AnswerSyntax> syntax = {};
};

// Returns `thought` without the tag and the channel marks that end it, also if the channel marks
// are cut off.
[[nodiscard]] std::string_view WithoutThoughtEnd(std::string_view thought,
                                                 const ChatPrompt& prompt);
// Returns the marks between two thoughts of one answer; empty: the model writes one thought.
[[nodiscard]] std::string MarksBetweenThoughts(const ChatPrompt& prompt);
// Replaces each occurrence of `marks_between` in `thought` by an empty line.
void JoinThoughts(std::string_view marks_between, std::string* thought);

// ChatAnswer holds the parts of an answer without its thought.
struct ChatAnswer {
  std::string content;
  std::vector<ToolCall> tool_calls = {};

  friend bool operator==(const ChatAnswer&, const ChatAnswer&) = default;
};

// AnswerEnd declares whether an answer's text is complete.
enum class AnswerEnd { kPartial, kComplete };

// Parses `text`, an answer without its thought. For a partial answer, returns the parts that are
// certain: the content is a prefix of the whole answer's content, and the last tool call may lack
// the end of its arguments. Errors: kInvalidArgument (tools may be called, and the text is not in
// their format). Thread safety: any number of threads may parse with one prompt.
[[nodiscard]] Result<ChatAnswer> ParseAnswer(const ChatPrompt& prompt, std::string_view text,
                                             AnswerEnd end);

}  // namespace ebb

#endif  // EBB_CHAT_H_

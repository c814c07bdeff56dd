// Chat: a conversation with the demands on the next answer, the prompt that a model's chat template
// makes of both, and the parts of an answer.
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

// A function that the assistant called.
struct ToolCall {
  std::string name;
  std::string arguments;  // a JSON object as text
  std::string id = {};    // empty: the model gave none

  friend bool operator==(const ToolCall&, const ToolCall&) = default;
};

// One message of a conversation.
struct ChatMessage {
  std::string role;  // "system", "developer", "user", "assistant" or "tool"
  std::string content;
  std::string reasoning_content = {};     // the thought of an assistant's message
  std::vector<ToolCall> tool_calls = {};  // of an assistant's message
  std::string tool_call_id = {};          // of a tool's message: the call that it answers
  std::string name = {};                  // of a tool's message: the function; may be empty
};

// Returns a number for the ids of the calls with which `messages`, and `more` behind them, are
// answered: another one for each conversation and each turn, and the same in every run.
[[nodiscard]] uint64_t CallIdSeed(std::span<const ChatMessage> messages,
                                  std::span<const ChatMessage> more = {});
// Returns an id for a call to which the model gave none: nine letters and digits. seed:
// CallIdSeed(); choice: of several answers to one request; index: of the call in its answer.
[[nodiscard]] std::string MakeCallId(uint64_t seed, size_t choice, size_t index);
// Gives the calls of an answer that have no id one.
void SetCallIds(uint64_t seed, std::vector<ToolCall>* calls);

// A function that the assistant may call.
struct Tool {
  std::string name;  // letters, digits, '_' and '-', at most 64
  std::string description = {};
  std::string parameters = {};  // a JSON schema of an object as text; empty: no parameters
};

enum class ResponseFormat {
  kText,
  kJsonObject,  // any JSON object
  kJsonSchema,  // JSON of ChatRequest::json_schema
};

// Whether the template is asked for thoughts. kModelDefault leaves it to the template.
enum class Thinking { kModelDefault, kOff };

struct ChatRequest {
  std::vector<ChatMessage> messages;
  std::vector<Tool> tools = {};
  // "auto" (the model may call), "none", "required" (it calls at least one) or the name of the tool
  // that it calls.
  std::string tool_choice = "auto";
  bool parallel_tool_calls = true;  // more than one call in an answer
  // A response format or a grammar. The model may call a tool instead of writing such a text,
  // unless a call is required; tools that may be called and a grammar exclude each other.
  ResponseFormat response_format = ResponseFormat::kText;
  std::string json_schema = {};  // for kJsonSchema
  std::string grammar = {};      // GBNF with a rule "root"; empty: none
  Thinking thinking = Thinking::kModelDefault;
  // Variables that the template may read, "reasoning_effort" among them, as JSON texts. They do not
  // replace other members of the request.
  std::map<std::string, std::string> template_arguments = {};
  bool opens_answer = true;  // the prompt ends where the answer begins; else behind the messages
};

// The trigger of a lazy grammar: the answer contains a text, a match of a regular
// expression (ECMAScript), or a token.
struct GrammarTrigger {
  enum class Kind { kText, kPattern, kToken };
  Kind kind = Kind::kText;
  std::string text = {};  // of kText and kPattern
  Token token = 0;        // of kToken
};

struct AnswerSyntax;  // src/model/chat/chat.cc

// Marks between the messages of one answer, for models that write their thought and their answer as
// messages of their own (gpt-oss's channels). Both are empty for other models.
struct ChannelMarks {
  std::string message = {};  // begins each message behind the first, as "<|start|>assistant"
  std::string answer = {};   // begins the answer in its message: "<|channel|>final<|message|>"

  [[nodiscard]] bool empty() const { return message.empty(); }
};

// A prompt that a chat template made of a request.
struct ChatPrompt {
  std::string text;
  // Offsets of bytes of `text`, ascending, that belong to the text of a message: a special token's
  // text that covers one of them is plain text. Model::TokenizePrompt() obeys them.
  std::vector<size_t> plain_at = {};
  std::string thinking_start = {};  // the tags between which the model thinks; empty: it does not
  std::string thinking_end = {};
  bool opens_in_thinking = false;  // the prompt ends inside a thought
  ChannelMarks channels = {};
  // Marks that must follow the end of a thought where a grammar restricts the answer, or where the
  // end of the thought was forced; empty: none.
  std::string after_thought = {};
  std::vector<std::string> stops = {};  // further stop strings that the template asks for
  // Constraints on the answer, for the SamplingOptions of the same names.
  std::string grammar = {};  // empty: nothing
  std::string grammar_prefix = {};
  std::vector<GrammarTrigger> grammar_triggers = {};
  // Parts of tools' schemas with constraints that the grammar leaves out, as
  // "tools[1].parameters.properties.x".
  std::vector<std::string> widened = {};
  // Changes of the messages, which the template refuses as they are: "neighbours of one role were
  // joined".
  std::vector<std::string> mended = {};
  // The template arguments that the template does not read, or refuses.
  std::vector<std::string> unused_arguments = {};
  // How ParseAnswer() reads the answer; null: all of it is content.
  std::shared_ptr<const AnswerSyntax> syntax = {};
};

// Removes the tag and the channel marks that end a thought, also where they are cut off behind the
// tag.
[[nodiscard]] std::string_view WithoutThoughtEnd(std::string_view thought,
                                                 const ChatPrompt& prompt);
// Returns the marks between two thoughts of one answer; empty: the model writes one thought.
[[nodiscard]] std::string MarksBetweenThoughts(const ChatPrompt& prompt);
// Replaces these marks by an empty line.
void JoinThoughts(std::string_view marks_between, std::string* thought);

// The parts of an answer.
struct ChatAnswer {
  std::string content;
  std::vector<ToolCall> tool_calls = {};

  friend bool operator==(const ChatAnswer&, const ChatAnswer&) = default;
};

// Whether more of an answer's text may come.
enum class AnswerEnd { kPartial, kComplete };

// Reads `text`, an answer without its thought. A partial answer gives its certain parts: its
// content is a prefix of the whole answer's, its last tool call may lack a part of its arguments.
// Errors: kInvalidArgument (of tools that may be called: a text that is not in their format).
// Thread safety: any number of threads may read with one prompt.
[[nodiscard]] Result<ChatAnswer> ParseAnswer(const ChatPrompt& prompt, std::string_view text,
                                             AnswerEnd end);

}  // namespace ebb

#endif  // EBB_CHAT_H_

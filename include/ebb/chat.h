// Chat: a conversation and what is asked of the next answer, what a model's chat template makes of
// both, and what an answer says.
//
//   EBB_ASSIGN_OR_RETURN(ChatPrompt prompt, model.FormatChat(request));
//   // Generate from prompt.text, under the prompt's grammar, stops and thinking tags.
//   EBB_ASSIGN_OR_RETURN(ChatAnswer answer, ParseAnswer(prompt, text, AnswerEnd::kComplete));
//
// SPDX-License-Identifier: MIT
#ifndef EBB_CHAT_H_
#define EBB_CHAT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ebb/engine.h"
#include "ebb/generate.h"
#include "ebb/model.h"
#include "ebb/sampler.h"
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
  // At most one of: tools that may be called, a response format, a grammar.
  ResponseFormat response_format = ResponseFormat::kText;
  std::string json_schema = {};  // for kJsonSchema
  std::string grammar = {};      // GBNF with a rule "root"; empty: none
  Thinking thinking = Thinking::kModelDefault;
  bool opens_answer = true;  // the prompt ends where the answer begins; else behind the messages
};

// What makes a lazy grammar begin to hold: the answer contains a text, a match of a regular
// expression (ECMAScript), or a token.
struct GrammarTrigger {
  enum class Kind { kText, kPattern, kToken };
  Kind kind = Kind::kText;
  std::string text = {};  // of kText and kPattern
  Token token = 0;        // of kToken
};

struct AnswerSyntax;  // src/model/chat.cc

// What a chat template made of a request.
struct ChatPrompt {
  std::string text;
  std::string thinking_start = {};  // the tags between which the model thinks; empty: it does not
  std::string thinking_end = {};
  bool opens_in_thinking = false;       // the prompt ends inside a thought
  std::vector<std::string> stops = {};  // further stop strings that the template asks for
  // What the answer obeys, for the SamplingOptions of the same names.
  std::string grammar = {};  // empty: nothing
  std::string grammar_prefix = {};
  std::vector<GrammarTrigger> grammar_triggers = {};
  // How ParseAnswer() reads the answer; null: all of it is content.
  std::shared_ptr<const AnswerSyntax> syntax = {};
};

// What an answer says.
struct ChatAnswer {
  std::string content;
  std::vector<ToolCall> tool_calls = {};

  friend bool operator==(const ChatAnswer&, const ChatAnswer&) = default;
};

// Whether more of an answer's text may come.
enum class AnswerEnd { kPartial, kComplete };

// Reads `text`, an answer without its thought. A partial answer gives what is certain: its content
// is a prefix of the whole answer's, its last tool call may lack a part of its arguments.
// Errors: kInvalidArgument (of tools that may be called: a text that is not in their format).
// Thread safety: any number of threads may read with one prompt.
[[nodiscard]] Result<ChatAnswer> ParseAnswer(const ChatPrompt& prompt, std::string_view text,
                                             AnswerEnd end);

// A conversation: what was said, what the next answer is generated from, and what an answer
// becomes. It knows messages and tokens; the session that reads them is the caller's.
//
//   Conversation talk = {.request = {.messages = {{"system", "Be brief."}}}};
//   const ChatMessage question = {"user", "Hello"};
//   EBB_ASSIGN_OR_RETURN(const Turn turn, BeginTurn(model, talk, {&question, 1}));
//   EBB_ASSIGN_OR_RETURN(const auto unread, KeepPrefix(turn.tokens, &session));  // ebb/chat.h
//   EBB_RETURN_IF_ERROR(session.Prefill(unread));
//   EBB_ASSIGN_OR_RETURN(const auto sampler, SamplerFor(turn, model, sampling));
//   const GenerateResult result = Generate(session, *sampler, OptionsFor(turn, options));
//   EBB_ASSIGN_OR_RETURN(const ChatMessage answer, AnswerMessage(turn.prompt, result));
//   EndTurn(turn, result, SavedState(*sampler), &talk);
//
// A turn that is given up leaves nothing in the conversation: only EndTurn() changes it. What the
// session has read of such a turn is forgotten by the next KeepPrefix().
//
// Thoughts: a message of the conversation holds its answer's thought between the model's own tags,
// by which chat templates find it. Most templates leave the thoughts of earlier turns out, so that
// the next turn's tokens differ from what the session has read, from the first thought on.
//
// Thread safety: values; distinct objects may be used from distinct threads.

// An answer that another turn, perhaps of another process, goes on with.
struct OpenAnswer {
  AnswerSoFar so_far;
  std::string sampler;  // SavedState() at its end; empty: the sampler was never made
};

struct Conversation {
  enum class Kind : uint8_t {
    kChat = 0,  // messages, in the form that the model's chat template gives them
    kText = 1,  // one text without messages, to which turns and answers are appended
  };
  Kind kind = Kind::kChat;
  // kChat: the messages so far, an answer that was cut off among them, and what is asked of the
  // answers to come: tools, formats, thoughts.
  ChatRequest request;
  uint64_t num_turns = 0;     // that have ended; an answer that went on belongs to the turn before
  OpenAnswer last;            // the last answer
  bool last_is_over = false;  // it ended by itself
  Thinking last_thinking = Thinking::kModelDefault;  // what its prompt was asked for
};

// What the next answer is generated from.
struct Turn {
  std::vector<ChatMessage> messages;  // that are new with this turn
  // The whole conversation up to the place where the answer begins; empty where an answer goes on.
  std::vector<Token> tokens;
  ChatPrompt prompt;  // what the answer may look like; its text is left empty
  Thinking thinking = Thinking::kModelDefault;  // what the prompt was asked for
  uint64_t index = 0;                           // of the turn; seeds of sampling count up with it
  std::optional<OpenAnswer> goes_on = {};       // the answer that goes on
};

// The turn in which the assistant answers `messages`, after those of the conversation; none, where
// the conversation ends with a message that waits for an answer. REQUIRES: a conversation of kChat.
// Errors: those of Model::FormatChat(), whose fields are those of ChatRequest; InvalidArgument (a
// prompt without tokens).
[[nodiscard]] Result<Turn> BeginTurn(const Model& model, const Conversation& conversation,
                                     std::span<const ChatMessage> messages);
// The turn that continues `text`, after the tokens that the session has read and the last answer.
// Special tokens in the text are parsed. REQUIRES: a conversation of kText. Errors:
// InvalidArgument (a prompt without tokens).
[[nodiscard]] Result<Turn> BeginTextTurn(const Model& model, const Conversation& conversation,
                                         std::string_view text, std::span<const Token> read);
// The turn that goes on with the last answer. Errors: InvalidArgument (there is none; it is over,
// which OnEnd::kIgnore overrules); those of BeginTurn().
[[nodiscard]] Result<Turn> GoOn(const Model& model, const Conversation& conversation,
                                GenerateOptions::OnEnd on_end);

// `options` with what the prompt asks for: thinking tags, further stop strings, the answer so far.
[[nodiscard]] GenerateOptions OptionsFor(const Turn& turn, GenerateOptions options);
// A sampler of `options`, with the turn's index added to the seed, and the grammar of the prompt,
// where it has one, instead of that of `options`. Where an answer goes on, it stands at its end.
// Errors: those of Sampler::Create() and Sampler::LoadState().
[[nodiscard]] Result<std::unique_ptr<Sampler>> SamplerFor(const Turn& turn, const Model& model,
                                                          SamplingOptions options);
// What Sampler::SaveState() writes.
[[nodiscard]] std::string SavedState(const Sampler& sampler);

// An answer as an assistant's message for whoever asked: the thought, without its tags and without
// blanks around it; what ParseAnswer() finds in the rest. Calls to which the model gave no id have
// none. Errors: those of ParseAnswer().
[[nodiscard]] Result<ChatMessage> AnswerMessage(const ChatPrompt& prompt,
                                                const GenerateResult& result);

// The turn's messages and its answer join the conversation; of a turn that ended before there was
// an answer, neither does. Calls of an answer that ended are told apart from its text where the
// request has tools; those to which the model gave no id get one that is unique in the
// conversation. `sampler`: SavedState() at the end; empty where there is none.
void EndTurn(const Turn& turn, const GenerateResult& result, std::string sampler,
             Conversation* conversation);

// A conversation as bytes (docs/dev/formats.md), for SaveSession(). What the request asks of
// answers to come is left out.
[[nodiscard]] std::string EncodeConversation(const Conversation& conversation);
// Errors: Corrupt (not what EncodeConversation() writes).
[[nodiscard]] Result<Conversation> DecodeConversation(std::string_view bytes);

// Prompts that begin as a session does: what the session has read of them is kept, so that only the
// rest is read. A chat's next turn begins with all the turns before it; templates that drop earlier
// thoughts change what was said, so that a session is rolled back to the place where they differ.
//
// Or a prompt begins as the one does that some session of an engine began with, and another session
// takes the rows of that beginning, with the bits of reading it: both then hold the pages.
//
// A policy decides by what it has seen: rows that it evicted while the session read what is now
// rolled back do not come back. A session that keeps every row, lossless ones among them, gives the
// logits of one that reads the whole prompt anew, up to rounding: a few tokens that are read by
// themselves take other kernels than many do.

// How many tokens at the beginning of `prompt` the session need not read again: 0 where it cannot
// be rolled back to them (Session::CanTruncateTo()). At least one token of a prompt is always left
// to be read, for its logits.
[[nodiscard]] size_t CommonPrefix(const Session& session, std::span<const Token> prompt);

// The session with the longest common prefix, as an index; of several the one that has the fewest
// other tokens. Nothing: no session has any token in common with the prompt.
[[nodiscard]] std::optional<size_t> LongestPrefix(std::span<const Session* const> sessions,
                                                  std::span<const Token> prompt);

// Rolls the session back to what it has in common with `prompt`, and returns the rest of `prompt`,
// never empty, for Session::Prefill() or BeginPrompt(). A prompt that the session was reading is
// given up. Errors: InvalidArgument (an empty prompt); those of Session::TruncateTo().
[[nodiscard]] Result<std::span<const Token>> KeepPrefix(std::span<const Token> prompt,
                                                        Session* session);

// How many tokens at the beginning of `prompt` another session of the same options may take from
// this one, which began with a prompt that begins alike; BeginPromptFrom() does. Only those count
// whose rows are all in T0 or T1 and have the bits that reading the whole prompt gives them: tokens
// that were generated have others. At least one token is left to be read. 0 for lossless sessions,
// for keys that are rotated anew, for a selector, and for a scorer that takes more from a prompt
// than its rows (Scorer::IgnoresPrompts()).
[[nodiscard]] size_t ExactPrefix(const Session& from, std::span<const Token> prompt);

// BeginPrompt() of a session without tokens, which takes the rows of the first ExactPrefix() tokens
// from another one: both hold their full pages together, and a page that is not full is copied.
// Returns how many tokens these are; prompt_left() counts the others. The session gets the bits
// that it would by itself, its hash of logits among them. Errors: InvalidArgument (a session with
// tokens, or of other options or another engine than `from`) and those of Session::BeginPrompt(),
// after which nothing has changed; ResourceExhausted and IoError where pages could not be copied,
// after which the session is good only for being destroyed, and `from` goes on.
[[nodiscard]] Result<size_t> BeginPromptFrom(Session* from, std::vector<Token> prompt,
                                             Session* session);

}  // namespace gnu::visibility("default")]]ebb

#endif  // EBB_CHAT_H_

// A conversation: what was said, what the next answer is generated from, and what an answer
// becomes. It knows messages and tokens; the session that reads them is the caller's.
//
//   Conversation talk = {.request = {.messages = {{"system", "Be brief."}}}};
//   const ChatMessage question = {"user", "Hello"};
//   EBB_ASSIGN_OR_RETURN(const Turn turn, BeginTurn(model, talk, {&question, 1}));
//   EBB_ASSIGN_OR_RETURN(const auto unread, KeepPrefix(turn.tokens, &session));  // ebb/prefix.h
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
#ifndef EBB_CONVERSATION_H_
#define EBB_CONVERSATION_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ebb/chat.h"
#include "ebb/generate.h"
#include "ebb/model.h"
#include "ebb/sampler.h"
#include "ebb/status.h"
#include "ebb/types.h"

namespace ebb {

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

// A conversation as bytes (docs/dev/formats.md), for SaveSession(). What the request asks of answers to
// come is left out.
[[nodiscard]] std::string EncodeConversation(const Conversation& conversation);
// Errors: Corrupt (not what EncodeConversation() writes).
[[nodiscard]] Result<Conversation> DecodeConversation(std::string_view bytes);

}  // namespace ebb

#endif  // EBB_CONVERSATION_H_

// Generation samples tokens from a session's logits, token by token or as a loop that feeds tokens
// back until something ends it.
//
// SPDX-License-Identifier: MIT
#ifndef EBB_GENERATE_H_
#define EBB_GENERATE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ebb/chat.h"
#include "ebb/engine.h"
#include "ebb/model.h"
#include "ebb/sampler.h"
#include "ebb/status.h"
#include "ebb/types.h"

namespace [[gnu::visibility("default")]] ebb {

enum class FinishReason { kStop, kStopString, kLength, kContext, kCap, kCancelled, kError };
// Returns "stop", "stop_string", "length", "context", "cap", "cancelled" or "error".
[[nodiscard]] std::string_view FinishReasonName(FinishReason reason);

// TextPart is the part of an answer to which a piece of text belongs.
enum class TextPart { kThought, kAnswer };

// AnswerSoFar describes an unfinished answer, so that a later call can continue it.
struct AnswerSoFar {
  Position begin = 0;         // where it begins in the session
  std::vector<Token> tokens;  // the session may still lack the last one
  size_t text_bytes = 0;      // bytes of its text that were shown
};

// GenerateOptions configure a generation: its limits, stops, tags and callbacks.
struct GenerateOptions {
  // Describes the answer that this generation continues: the text that was shown of it is not shown
  // again. Empty: a new answer.
  AnswerSoFar so_far;
  // Counts the last tokens of the prompt that already belong to the answer, for
  // SamplingOptions::PresenceScope.
  size_t num_begun = 0;
  int max_tokens = -1;  // -1: until something else ends it
  // Lists texts that end the answer; the answer is shown up to the text. Generation does not look
  // for them within the thought.
  std::vector<std::string> stops;
  std::vector<std::string> turn_ends = {};  // like stops, but in thoughts too: ChatPrompt::stops
  enum class OnEnd { kStop, kIgnore };      // kIgnore: --ignore-eos, end tokens are masked
  OnEnd on_end = OnEnd::kStop;
  std::vector<Token> stop_tokens;  // end the answer as the model's own end tokens do
  // Sets the least length of the answer in tokens. Until then end tokens and stop_tokens are
  // masked, unless a grammar admits nothing else, and `stops` are ignored.
  int min_tokens = 0;
  std::string thinking_start;  // see ChatPrompt
  std::string thinking_end;
  bool opens_in_thinking = false;
  ChannelMarks channels;
  std::string after_thought;
  int thinking_budget = -1;  // tokens of thought before thinking_end is forced; -1: no limit
  // Limits the time, if above 0: the first end of a line more than so many seconds after the first
  // token ends the generation (kLength).
  double line_seconds = 0;
  const std::atomic<bool>* cancel = nullptr;
  // Called with text as soon as it is certain: never half a UTF-8 character, never part of a stop
  // string. Tags and channel marks belong to the thought. If it returns false, for example because
  // stdout is closed, the generation ends (kCancelled).
  std::function<bool(std::string_view text, TextPart part)> on_text;
  // Called with each token while session.logits() are still the logits that the token was chosen
  // from.
  std::function<void(Token token)> on_token;
};

// Returns the text that Generate() shows for a token. Thinking tags that are control tokens, which
// have no text otherwise, are shown.
[[nodiscard]] std::string ShownText(const Model& model, Token token,
                                    std::string_view thinking_start, std::string_view thinking_end);

// Sets how the text of an answer to `prompt` is parsed: the tags of a thought and the channel
// marks.
void SetTags(const ChatPrompt& prompt, GenerateOptions* options);

// ThoughtExtent describes the thought at the beginning of an answer's text.
struct ThoughtExtent {
  size_t bytes = 0;         // of the thought, its tags and the channel marks behind it
  bool is_unended = false;  // the text ends within it
};
// Finds the thought at the beginning of `text`, an answer to `prompt`.
[[nodiscard]] ThoughtExtent FindThought(const ChatPrompt& prompt, std::string_view text);

// GenerateResult is the outcome of a generation.
struct GenerateResult {
  FinishReason finish_reason = FinishReason::kError;
  Status error;              // why, for kContext, kCap and kError
  int generated_tokens = 0;  // the end token is not counted
  int thought_tokens = 0;    // the tokens between the tags
  int decode_steps = 0;      // the last token of an answer that reached its length needs none
  double seconds = 0;        // the decode steps with sampling, without callbacks
  std::string text;          // the whole answer, thoughts included
  size_t thought_bytes = 0;  // bytes of the thought at the beginning of `text`, with its tags
  std::string stop_string;   // the stop string that was found, for kStopString
  AnswerSoFar answer;
};

// Returns the result of a generation whose prompt could not be read. REQUIRES: !error.ok().
[[nodiscard]] GenerateResult PromptFailed(const Status& error);

// Generation generates an answer token by token. Generate() is the loop around it; a caller that
// steps many sessions in one batch has a loop of its own:
//
//   while (std::optional<Token> token = generation->Next()) {
//     generation->Appended(session.Decode(*token));  // or a step of several sessions
//   }
//   GenerateResult result = generation->End();
//
// Thread safety: that of its session.
class Generation {
 public:
  // Begins or continues an answer. REQUIRES: session->logits() are the logits after the prompt, or
  // after the unfinished answer of options.so_far, whose last token the constructor appends if the
  // session lacks it; session and sampler outlive the generation. An error of session, sampler or
  // options ends the generation with kError.
  Generation(Session* session, Sampler* sampler, GenerateOptions options);
  ~Generation();
  Generation(const Generation&) = delete;
  Generation& operator=(const Generation&) = delete;

  // Chooses a token, shows its text, and returns it for the caller to append to the session;
  // nothing if the generation has ended. REQUIRES: Appended() was called for the previous token.
  [[nodiscard]] std::optional<Token> Next();
  // Receives the outcome of the step with the token that Next() returned; an error ends the
  // generation. `seconds` is the duration of that decode step.
  void Appended(const StepOutcome& outcome, double seconds = 0);
  // Ends the generation, with kCancelled if nothing else has ended it, and shows the text that was
  // held back.
  [[nodiscard]] GenerateResult End();

  // Forces the end of the thought at the next token, as a thinking budget that is spent does. A
  // thought that has not begun yet ends as soon as it begins. Does nothing without thinking_end.
  void EndThought();

  // Returns a function that guesses what this generation would append next, for Session::Decode()
  // of a lossless session; null for other sessions. most_guesses() returns how many tokens the
  // generation has room for.
  [[nodiscard]] Guess Guesses() const;
  [[nodiscard]] int most_guesses() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Appends tokens to the session until the generation ends.
[[nodiscard]] GenerateResult Generate(Session& session, Sampler& sampler,
                                      const GenerateOptions& options);

// Conversation holds messages; BeginTurn() makes the prompt of the next answer, and EndTurn()
// appends the answer as a message. The session that reads the tokens is the caller's.
//
//   Conversation talk = {.request = {.messages = {{"system", "Be brief."}}}};
//   const ChatMessage question = {"user", "Hello"};
//   EBB_ASSIGN_OR_RETURN(const Turn turn, BeginTurn(model, talk, {&question, 1}));
//   EBB_ASSIGN_OR_RETURN(const auto unread, KeepPrefix(turn.tokens, &session));
//   EBB_RETURN_IF_ERROR(session.Prefill(unread).status);
//   EBB_ASSIGN_OR_RETURN(const auto sampler, SamplerFor(turn, model, sampling));
//   const GenerateResult result = Generate(session, *sampler, OptionsFor(turn, options));
//   EBB_ASSIGN_OR_RETURN(const ChatMessage answer, AnswerMessage(turn.prompt, result));
//   EndTurn(turn, result, SavedState(*sampler), &talk);
//
// A turn that is abandoned leaves the conversation as it was, since only EndTurn() changes it. The
// next KeepPrefix() rolls the session back over the tokens of such a turn.
//
// A message keeps the answer's thought between the model's own tags, by which chat templates find
// it. Most templates drop the thoughts of earlier turns; the next turn's tokens then differ from
// the tokens that the session has read, from the first thought on.
//
// Thread safety: values; distinct objects may be used from distinct threads.

// OpenAnswer holds an answer that another turn, perhaps of another process, may continue.
struct OpenAnswer {
  AnswerSoFar so_far;
  std::string sampler;  // SavedState() at its end; empty: the sampler was never made
};

// Conversation holds the messages and the last answer; see above.
struct Conversation {
  enum class Kind : uint8_t {
    kChat = 0,  // messages, in the form that the model's chat template gives them
    kText = 1,  // one text without messages, to which turns and answers are appended
  };
  Kind kind = Kind::kChat;
  // Holds, for kChat, the messages so far, including an answer that was cut off, and the
  // requirements on the answers to come: tools, formats, thoughts.
  ChatRequest request;
  uint64_t num_turns = 0;     // turns that have ended; continuing an answer is no new turn
  OpenAnswer last;            // the last answer
  bool last_is_over = false;  // it ended by itself
  Thinking last_thinking = Thinking::kModelDefault;  // the request of its prompt
};

// Turn is the input of the next answer.
struct Turn {
  std::vector<ChatMessage> messages;  // messages that this turn adds
  // Holds the tokens of the whole conversation up to the place where the answer begins; empty if
  // the turn continues an answer.
  std::vector<Token> tokens;
  size_t num_begun = 0;                         // the last of `tokens`, which begin the answer
  ChatPrompt prompt;                            // the form of the answer; its text is left empty
  Thinking thinking = Thinking::kModelDefault;  // the request with which the prompt was made
  uint64_t index = 0;                      // the turn's number, which is added to sampling's seed
  std::optional<OpenAnswer> goes_on = {};  // the answer that goes on
};

// Begins the turn in which the assistant answers `messages`, which follow the messages of the
// conversation; `messages` may be empty if the conversation already ends with a message that waits
// for an answer. `context` is the number of tokens that the session has room for; 0: no limit.
// REQUIRES: a conversation of kChat. Errors: those of Model::FormatChat(), with fields of
// ChatRequest; InvalidArgument (a prompt without tokens); ContextFull (the prompt has more bytes
// than `context` tokens can stand for; it is then not tokenized).
[[nodiscard]] Result<Turn> BeginTurn(const Model& model, const Conversation& conversation,
                                     std::span<const ChatMessage> messages, int context = 0);
// Begins a turn that appends `text` to the tokens that the session has read, `read`, and to the
// last answer. Parses special tokens in the text. REQUIRES: a conversation of kText. Errors:
// InvalidArgument (a prompt without tokens); ContextFull as for BeginTurn().
[[nodiscard]] Result<Turn> BeginTextTurn(const Model& model, const Conversation& conversation,
                                         std::string_view text, std::span<const Token> read,
                                         int context = 0);
// Returns ContextFull if a prompt of `bytes` bytes after `kept` tokens has too many tokens for the
// context, however it is tokenized. A `context` of 0 has no limit.
[[nodiscard]] Status CheckPromptBytes(const Model& model, size_t bytes, size_t kept, int context);
// Begins a turn that continues the last answer. Errors: InvalidArgument (there is none; or it has
// ended by itself, which OnEnd::kIgnore allows); those of BeginTurn().
[[nodiscard]] Result<Turn> ContinueTurn(const Model& model, const Conversation& conversation,
                                        GenerateOptions::OnEnd on_end);

// Returns `options` with the fields that the turn determines: thinking tags, further stop strings,
// the answer to continue.
[[nodiscard]] GenerateOptions OptionsFor(const Turn& turn, GenerateOptions options);
// Returns a sampler with `options`, the turn's index added to the seed. The grammar of the prompt,
// if it has one, replaces that of `options`. If the turn continues an answer, the sampler has the
// state from the end of that answer. Errors: those of Sampler::Create() and Sampler::LoadState().
[[nodiscard]] Result<std::unique_ptr<Sampler>> SamplerFor(const Turn& turn, const Model& model,
                                                          SamplingOptions options);
// Returns the bytes that Sampler::SaveState() writes.
[[nodiscard]] std::string SavedState(const Sampler& sampler);

// Returns an answer as an assistant's message for the client: the thought, without its tags and
// surrounding blanks, and the parts that ParseAnswer() finds in the rest. Calls to which the model
// gave no id have no id. Errors: those of ParseAnswer().
[[nodiscard]] Result<ChatMessage> AnswerMessage(const ChatPrompt& prompt,
                                                const GenerateResult& result);

// Appends the turn's messages and its answer to the conversation; neither, if the turn ended before
// there was an answer. If the request has tools and the answer is complete, EndTurn() separates its
// tool calls from its text, and gives calls without an id one that is unique in the conversation.
// `sampler` is SavedState() at the end; empty if there is no sampler.
void EndTurn(const Turn& turn, const GenerateResult& result, std::string sampler,
             Conversation* conversation);

// Encodes a conversation as bytes (docs/dev/formats.md), for SaveSession(). Leaves out the
// request's requirements on answers to come.
[[nodiscard]] std::string EncodeConversation(const Conversation& conversation);
// Decodes the bytes of EncodeConversation(). Errors: Corrupt.
[[nodiscard]] Result<Conversation> DecodeConversation(std::string_view bytes);

// Prefix caching. Within one session, tokens that the session has read already are kept, so that it
// reads only the rest of a prompt. A chat's next turn begins with all the turns before it;
// templates that drop earlier thoughts change that beginning, so that the session is rolled back to
// the first difference.
//
// Between sessions of one engine, a session takes over the rows of the beginning that its prompt
// shares with another session's prompt. Both then hold the pages, and the bits are those of reading
// the prompt.
//
// A policy decides by what it has seen: a roll-back does not bring back rows that the policy
// evicted while the session read the tokens that are rolled back. A session that keeps every row,
// also a lossless one, gives the logits of a session that reads the whole prompt, up to rounding:
// short pieces of a prompt run other kernels than long ones.

// Returns how many tokens at the beginning of `prompt` the session need not read again; 0 if it
// cannot be rolled back to them (Session::CanTruncateTo()). Always leaves at least one token of the
// prompt to be read, since its logits are needed.
[[nodiscard]] size_t CommonPrefix(const Session& session, std::span<const Token> prompt);

// Returns the index of the session with the longest common prefix; of several the one with the
// fewest tokens behind the prefix. Nothing: no session shares a token with the prompt.
[[nodiscard]] std::optional<size_t> LongestPrefix(std::span<const Session* const> sessions,
                                                  std::span<const Token> prompt);

// Rolls the session back to the prefix that it shares with `prompt`, and returns the rest of
// `prompt`, never empty, for Session::Prefill() or BeginPrompt(). Abandons a prompt that the
// session was still reading. Errors: InvalidArgument (an empty prompt); those of
// Session::TruncateTo().
[[nodiscard]] Result<std::span<const Token>> KeepPrefix(std::span<const Token> prompt,
                                                        Session* session);

// Returns how many tokens at the beginning of `prompt` BeginPromptFrom() can take over from session
// `from` for another session of the same options. Counts only tokens whose rows are all in T0 or T1
// and have the bits that reading the whole prompt gives them; rows of generated tokens have other
// bits. Leaves at least one token to be read. Returns 0 for lossless sessions, for keys that are
// re-rotated, for a selector, and for a scorer whose IgnoresPrompts() is false.
[[nodiscard]] size_t ExactPrefix(const Session& from, std::span<const Token> prompt);

// Begins a prompt as Session::BeginPrompt() does, and takes the rows of its first ExactPrefix()
// tokens from another session: both sessions then hold the full pages, and a page that is not full
// is copied. Returns the number of these tokens; prompt_left() counts the others. The session gets
// the same bits as if it read the prompt itself, its hash of logits included. REQUIRES: `session`
// has no tokens. Errors, after which nothing has changed: InvalidArgument (a session with tokens,
// or of other options or another engine than `from`); those of Session::BeginPrompt(). Errors,
// after which `session` can only be destroyed and `from` continues: T0Full, OutOfMemory and
// IoError, if a page could not be copied.
[[nodiscard]] Result<size_t> BeginPromptFrom(Session* from, std::vector<Token> prompt,
                                             Session* session);

}  // namespace ebb

#endif  // EBB_GENERATE_H_

// Generation: a sampler over a session's logits, step by step or as the loop that feeds tokens back
// until something ends it.
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
[[nodiscard]] std::string_view FinishReasonName(FinishReason reason);

// Which part of an answer a piece of text belongs to.
enum class TextPart { kThought, kAnswer };

// An answer as far as it came, for a later call to go on with.
struct AnswerSoFar {
  Position begin = 0;         // where it begins in the session
  std::vector<Token> tokens;  // the session may still lack the last one
  size_t text_bytes = 0;      // of its text, that were shown
};

struct GenerateOptions {
  // An answer that goes on: what was shown of it is not shown again. Empty: a new one.
  AnswerSoFar so_far;
  // The last tokens of the prompt that begin the answer, for SamplingOptions::PresenceScope.
  size_t num_begun = 0;
  int max_tokens = -1;  // -1: until something else ends it
  // Texts that end the answer, which is shown up to there. They are looked for behind the thought.
  std::vector<std::string> stops;
  std::vector<std::string> turn_ends = {};  // the same in thoughts, too: ChatPrompt::stops
  enum class OnEnd { kStop, kIgnore };      // kIgnore: --ignore-eos, end tokens are masked
  OnEnd on_end = OnEnd::kStop;
  std::vector<Token> stop_tokens;  // end the answer as the model's own end tokens do
  // The answer has at least so many tokens: up to there end tokens and stop_tokens are masked,
  // unless a grammar admits nothing else, and stops are not looked for.
  int min_tokens = 0;
  std::string thinking_start;  // see ChatPrompt
  std::string thinking_end;
  bool opens_in_thinking = false;
  ChannelMarks channels;
  std::string after_thought;
  int thinking_budget = -1;  // tokens of thought before thinking_end is forced; -1: no limit
  // Above 0: so many seconds after the first token, the next end of a line ends the generation
  // (kLength).
  double line_seconds = 0;
  const std::atomic<bool>* cancel = nullptr;
  // Text as soon as it is certain: never half a UTF-8 character, never part of a stop string. Tags
  // and channel marks belong to the thought. Returning false ends the generation (kCancelled), e.g.
  // when stdout is closed.
  std::function<bool(std::string_view text, TextPart part)> on_text;
  // While the session's logits() are those that the token was chosen from.
  std::function<void(Token token)> on_token;
};

// The text that Generate() shows for a token. Thinking tags may be control tokens, which have no
// text of their own.
[[nodiscard]] std::string ShownText(const Model& model, Token token,
                                    std::string_view thinking_start, std::string_view thinking_end);

// Sets how the text of an answer to `prompt` is read: the tags of a thought and channel marks.
void SetTags(const ChatPrompt& prompt, GenerateOptions* options);

// How the text of an answer begins with a thought.
struct ThoughtExtent {
  size_t bytes = 0;         // of the thought, its tags and the channel marks behind it
  bool is_unended = false;  // the text ends within it
};
[[nodiscard]] ThoughtExtent FindThought(const ChatPrompt& prompt, std::string_view text);

struct GenerateResult {
  FinishReason finish_reason = FinishReason::kError;
  Status error;              // why, for kContext, kCap and kError
  int generated_tokens = 0;  // the end token is not counted
  int thought_tokens = 0;    // of them, between the tags
  int decode_steps = 0;      // the last token of an answer that reached its length needs none
  double seconds = 0;        // of the decode steps, sampling included, callbacks left out
  std::string text;          // of the whole answer, thoughts included
  size_t thought_bytes = 0;  // of text: its beginning, tags included, that is the thought
  std::string stop_string;   // of kStopString: which one
  AnswerSoFar answer;
};

// Returns the result of a generation whose prompt could not be read. REQUIRES: !error.ok().
[[nodiscard]] GenerateResult PromptFailed(const Status& error);

// A generation that is taken token by token. Generate() is the loop around it; a caller that steps
// many sessions in one batch has a loop of its own:
//
//   while (std::optional<Token> token = generation->Next()) {
//     generation->Appended(session.Decode(*token));  // or a step of several sessions
//   }
//   GenerateResult result = generation->End();
//
// Thread safety: that of its session.
class Generation {
 public:
  // The session's logits() stand after the prompt, or after an answer so far, whose last token
  // is appended where it is missing. Both outlive the generation. An error in either, or in
  // the options, ends the generation with kError.
  Generation(Session* session, Sampler* sampler, GenerateOptions options);
  ~Generation();
  Generation(const Generation&) = delete;
  Generation& operator=(const Generation&) = delete;

  // Chooses a token, shows its text, and returns it to be appended to the session; nothing where
  // the generation has ended. REQUIRES: Appended() was called for the token before.
  [[nodiscard]] std::optional<Token> Next();
  // Takes the outcome of the step with the token that Next() returned; an error ends the
  // generation. `seconds` count as the decode step's.
  void Appended(const StepOutcome& outcome, double seconds = 0);
  // Ends it, if nothing else has: kCancelled. Text that the stream held back is shown.
  [[nodiscard]] GenerateResult End();

  // Ends the thought with the next token that is chosen, as a budget that is spent would; a thought
  // that has not begun ends as soon as it does. An answer without thinking_end stays as it is.
  void EndThought();

  // For Session::Decode() of a lossless session: what this generation would probably append next,
  // and how many tokens it has room for. Null for others.
  [[nodiscard]] Guess Guesses() const;
  [[nodiscard]] int most_guesses() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Continues the session until the generation ends.
[[nodiscard]] GenerateResult Generate(Session& session, Sampler& sampler,
                                      const GenerateOptions& options);

// A conversation: its messages, the prompt of the next answer, and the message that an answer
// becomes. It knows messages and tokens; the session that reads them is the caller's.
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
  // kChat: the messages so far, an answer that was cut off among them, and the request's demands on
  // the answers to come: tools, formats, thoughts.
  ChatRequest request;
  uint64_t num_turns = 0;     // that have ended; an answer that went on belongs to the turn before
  OpenAnswer last;            // the last answer
  bool last_is_over = false;  // it ended by itself
  Thinking last_thinking = Thinking::kModelDefault;  // what its prompt was asked for
};

// The input of the next answer.
struct Turn {
  std::vector<ChatMessage> messages;  // that are new with this turn
  // The whole conversation up to the place where the answer begins; empty where an answer goes on.
  std::vector<Token> tokens;
  size_t num_begun = 0;                         // the last of `tokens`, which begin the answer
  ChatPrompt prompt;                            // the form of the answer; its text is left empty
  Thinking thinking = Thinking::kModelDefault;  // that the prompt was made with
  uint64_t index = 0;                           // of the turn; seeds of sampling count up with it
  std::optional<OpenAnswer> goes_on = {};       // the answer that goes on
};

// The turn in which the assistant answers `messages`, after those of the conversation; none, where
// the conversation ends with a message that waits for an answer. REQUIRES: a conversation of kChat.
// Errors: those of Model::FormatChat(), whose fields are those of ChatRequest; InvalidArgument (a
// prompt without tokens).
// context: tokens that the session has room for, 0: as many as there are. ContextFull (the
// prompt has more bytes than so many tokens stand for: it is not tokenized).
[[nodiscard]] Result<Turn> BeginTurn(const Model& model, const Conversation& conversation,
                                     std::span<const ChatMessage> messages, int context = 0);
// The turn that continues `text`, after the tokens that the session has read and the last answer.
// Special tokens in the text are parsed. REQUIRES: a conversation of kText. Errors:
// InvalidArgument (a prompt without tokens); ContextFull as for BeginTurn().
[[nodiscard]] Result<Turn> BeginTextTurn(const Model& model, const Conversation& conversation,
                                         std::string_view text, std::span<const Token> read,
                                         int context = 0);
// ContextFull if a prompt of so many bytes, behind `kept` tokens, has too many tokens for the
// context, whichever tokens they are. A `context` of 0 has no limit.
[[nodiscard]] Status CheckPromptBytes(const Model& model, size_t bytes, size_t kept, int context);
// The turn that goes on with the last answer. Errors: InvalidArgument (there is none; it is over,
// which OnEnd::kIgnore overrules); those of BeginTurn().
[[nodiscard]] Result<Turn> GoOn(const Model& model, const Conversation& conversation,
                                GenerateOptions::OnEnd on_end);

// `options` with those that the prompt brings: thinking tags, further stop strings, the answer so
// far.
[[nodiscard]] GenerateOptions OptionsFor(const Turn& turn, GenerateOptions options);
// A sampler of `options`, with the turn's index added to the seed, and the grammar of the prompt,
// where it has one, instead of that of `options`. Where an answer goes on, it stands at its end.
// Errors: those of Sampler::Create() and Sampler::LoadState().
[[nodiscard]] Result<std::unique_ptr<Sampler>> SamplerFor(const Turn& turn, const Model& model,
                                                          SamplingOptions options);
// The bytes that Sampler::SaveState() writes.
[[nodiscard]] std::string SavedState(const Sampler& sampler);

// An answer as an assistant's message for the client: the thought, without its tags and without
// blanks around it; what ParseAnswer() finds in the rest. Calls to which the model gave no id have
// none. Errors: those of ParseAnswer().
[[nodiscard]] Result<ChatMessage> AnswerMessage(const ChatPrompt& prompt,
                                                const GenerateResult& result);

// The turn's messages and its answer join the conversation; of a turn that ended before there was
// an answer, neither does. Calls of an answer that ended are separated from its text where the
// request has tools; those to which the model gave no id get one that is unique in the
// conversation. `sampler`: SavedState() at the end; empty where there is none.
void EndTurn(const Turn& turn, const GenerateResult& result, std::string sampler,
             Conversation* conversation);

// A conversation as bytes (docs/dev/formats.md), for SaveSession(). The request's demands on
// answers to come are left out.
[[nodiscard]] std::string EncodeConversation(const Conversation& conversation);
// Errors: Corrupt (not what EncodeConversation() writes).
[[nodiscard]] Result<Conversation> DecodeConversation(std::string_view bytes);

// Prefixes of prompts: tokens that a session has read already are kept, so that only the rest is
// read. A chat's next turn begins with all the turns before it; templates that drop earlier
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

// Rolls the session back to the prefix that it shares with `prompt`, and returns the rest of
// `prompt`, never empty, for Session::Prefill() or BeginPrompt(). A prompt that the session was
// reading is given up. Errors: InvalidArgument (an empty prompt); those of Session::TruncateTo().
[[nodiscard]] Result<std::span<const Token>> KeepPrefix(std::span<const Token> prompt,
                                                        Session* session);

// How many tokens at the beginning of `prompt` another session of the same options may take from
// this one, which began with a prompt that begins alike; BeginPromptFrom() does. Only those count
// whose rows are all in T0 or T1 and have the bits that reading the whole prompt gives them: tokens
// that were generated have others. At least one token is left to be read. 0 for lossless sessions,
// for keys that are re-rotated, for a selector, and for a scorer that takes more from a prompt
// than its rows (Scorer::IgnoresPrompts()).
[[nodiscard]] size_t ExactPrefix(const Session& from, std::span<const Token> prompt);

// BeginPrompt() of a session without tokens, which takes the rows of the first ExactPrefix() tokens
// from another one: both hold their full pages together, and a page that is not full is copied.
// Returns how many tokens these are; prompt_left() counts the others. The session gets the bits
// that it would by itself, its hash of logits among them. Errors: InvalidArgument (a session with
// tokens, or of other options or another engine than `from`) and those of Session::BeginPrompt(),
// after which nothing has changed; T0Full, OutOfMemory and IoError where pages could not be copied,
// after which the session is good only for being destroyed, and `from` goes on.
[[nodiscard]] Result<size_t> BeginPromptFrom(Session* from, std::vector<Token> prompt,
                                             Session* session);

}  // namespace ebb

#endif  // EBB_GENERATE_H_

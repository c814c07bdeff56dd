// Generation: a sampler over a session's logits, step by step or as the loop that feeds tokens back
// until something ends it.
//
// SPDX-License-Identifier: MIT
#ifndef EBB_GENERATE_H_
#define EBB_GENERATE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ebb/engine.h"
#include "ebb/model.h"
#include "ebb/sampler.h"
#include "ebb/status.h"

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
  int max_tokens = -1;  // -1: until something else ends it
  std::vector<std::string> stops;
  enum class OnEnd { kStop, kIgnore };  // kIgnore: --ignore-eos, end tokens are masked
  OnEnd on_end = OnEnd::kStop;
  std::string thinking_start;  // see ChatPrompt
  std::string thinking_end;
  bool opens_in_thinking = false;
  int thinking_budget = -1;  // tokens of thought before thinking_end is forced; -1: no limit
  const std::atomic<bool>* cancel = nullptr;
  // Text as soon as it is certain: never half a UTF-8 character, never part of a stop string. Tags
  // belong to the thought. Returning false ends the generation (kCancelled), e.g. when stdout is
  // closed.
  std::function<bool(std::string_view text, TextPart part)> on_text;
  // While the session's logits() are those that the token was chosen from.
  std::function<void(Token token)> on_token;
};

// The text that Generate() shows for a token. Thinking tags may be control tokens, which have no
// text of their own.
[[nodiscard]] std::string ShownText(const Model& model, Token token,
                                    std::string_view thinking_start, std::string_view thinking_end);

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

// The result of a generation whose prompt could not be read; `num_tokens`: of all that the session
// was to hold. An error kResourceExhausted is kContext where they exceed the session's context, and
// kCap where they do not.
// REQUIRES: !error.ok().
[[nodiscard]] GenerateResult PromptFailed(const Status& error, size_t num_tokens,
                                          const Session& session);

// A generation that is taken token by token: Generate() is the loop around it, and whoever steps
// many sessions in one batch has a loop of their own:
//
//   while (std::optional<Token> token = generation->Next()) {
//     generation->Appended(session.Decode(*token));  // or a step of several sessions
//   }
//   GenerateResult result = generation->End();
//
// Thread safety: that of its session.
class Generation {
 public:
  // Of a session whose logits() stand after the prompt, or after an answer so far, whose last token
  // is appended where it is missing. Both outlive the generation. What is wrong with either, or
  // with the options, ends the generation with kError.
  Generation(Session* session, Sampler* sampler, GenerateOptions options);
  ~Generation();
  Generation(const Generation&) = delete;
  Generation& operator=(const Generation&) = delete;

  // Chooses a token, shows its text, and returns it to be appended to the session; nothing where
  // the generation has ended. REQUIRES: Appended() was called for the token before.
  [[nodiscard]] std::optional<Token> Next();
  // What became of the token that Next() returned; an error ends the generation. `seconds` count as
  // the decode step's.
  void Appended(const Status& status, double seconds = 0);
  // Ends it, if nothing else has: kCancelled. What the stream held back is shown.
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

}  // namespace gnu::visibility("default")]]ebb

#endif  // EBB_GENERATE_H_

// Splits the text of a generation into what an answer says, piece by piece: the thought without its
// tags, the content, and calls of tools. The pieces together are the whole answer, so a stream and
// a complete answer say the same.
#ifndef EBB_SERVER_API_OPENAI_ANSWER_H_
#define EBB_SERVER_API_OPENAI_ANSWER_H_

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ebb/chat.h"
#include "ebb/generate.h"
#include "src/server/api/base/api_error.h"
#include "src/server/api/base/tool_names.h"

namespace ebb::server {

// CallPiece is a new piece of a call. Only the first piece of a call has an id and a name.
struct CallPiece {
  size_t index = 0;
  std::string id = {};
  std::string name = {};
  std::string arguments = {};

  friend bool operator==(const CallPiece&, const CallPiece&) = default;
};

struct AnswerPiece {
  std::string thought = {};
  std::string content = {};
  std::vector<CallPiece> calls = {};

  [[nodiscard]] bool empty() const { return thought.empty() && content.empty() && calls.empty(); }
  // Appends a later piece; pieces of the same call are joined.
  void Append(AnswerPiece more);
};

// Calls selects whether the text of an answer is parsed for calls.
enum class Calls { kNone, kParsed };

// CallIds holds the arguments of MakeCallId().
struct CallIds {
  uint64_t seed = 0;
  size_t choice = 0;
};

class AnswerReader {
 public:
  // `names` maps the model's names of the tools to the client's.
  AnswerReader(std::shared_ptr<const ChatPrompt> prompt, Calls calls, CallIds ids,
               ToolNames names = {});

  // Adds text that came to GenerateOptions::on_text. Returns what can be sent of the answer now.
  [[nodiscard]] AnswerPiece Add(std::string_view text, TextPart part);
  // Ends the answer and returns the text that was held back. Only an answer with
  // AnswerEnd::kComplete can be malformed; then the part that could be parsed stays, and the rest
  // becomes content, so that no text is lost. If an answer ends within its thought and the thought
  // ends with calls and nothing after them, these are the answer's calls, since there is nothing
  // else to act on.
  [[nodiscard]] AnswerPiece End(AnswerEnd end);

  // Returns whether the answer has calls that can be carried out.
  [[nodiscard]] bool has_calls() const { return num_calls_ > 0 && are_calls_whole_; }
  // Returns whether the answer was not in the model's format of calls.
  [[nodiscard]] bool is_malformed() const { return is_malformed_; }

 private:
  [[nodiscard]] std::string TakeThought();
  [[nodiscard]] std::string EndThought();
  [[nodiscard]] AnswerPiece CallsOfThought();
  // Returns the part of a malformed answer that was not sent yet.
  [[nodiscard]] AnswerPiece Rest();
  [[nodiscard]] size_t BytesOfMark(std::string_view content) const;
  [[nodiscard]] AnswerPiece Compare(const ChatAnswer& answer, AnswerEnd end);

  const std::shared_ptr<const ChatPrompt> prompt_;
  // Holds the end tag of a thought and the channel marks that may follow it.
  const std::string thought_end_;
  const std::string between_;  // MarksBetweenThoughts()
  const Calls calls_;
  const CallIds ids_;
  const ToolNames names_;
  bool has_thought_ = false;
  bool thought_is_over_ = false;
  bool thought_begun_ = false;  // a part of the thought was sent
  std::string thought_;         // not sent yet
  std::string whole_thought_;   // the whole thought; only with Calls::kParsed
  bool content_begun_ = false;  // content has begun, after the blanks behind a thought
  std::string answer_;          // the whole content; only with Calls::kParsed
  size_t parsed_bytes_ = 0;     // size of `answer_` when it was last parsed
  size_t sent_content_bytes_ = 0;
  std::vector<size_t> sent_argument_bytes_;
  size_t num_calls_ = 0;
  bool are_calls_whole_ = true;
  bool is_malformed_ = false;
  bool is_over_ = false;
};

}  // namespace ebb::server

#endif  // EBB_SERVER_API_OPENAI_ANSWER_H_

// From the text of a generation to what an answer says, piece by piece: the thought without its
// tags, the content, and calls of tools. All pieces together are the whole answer, so that a stream
// and an answer in one piece say the same.
#ifndef EBB_SERVER_API_OPENAI_ANSWER_H_
#define EBB_SERVER_API_OPENAI_ANSWER_H_

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ebb/chat.h"
#include "ebb/generate.h"
#include "src/server/api/api_error.h"
#include "src/server/api/tool_names.h"

namespace ebb::server {

// A new piece of a call. The first piece alone has an id and a name.
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
  // Appends a later piece; pieces of one call become one.
  void Append(AnswerPiece more);
};

// Whether an answer may hold calls, and is read for them.
enum class Calls { kNone, kParsed };

// Arguments of MakeCallId().
struct CallIds {
  uint64_t seed = 0;
  size_t choice = 0;
};

class AnswerReader {
 public:
  // names: the client's names of the tools.
  AnswerReader(std::shared_ptr<const ChatPrompt> prompt, Calls calls, CallIds ids,
               ToolNames names = {});

  // Text of GenerateOptions::on_text.
  [[nodiscard]] AnswerPiece Add(std::string_view text, TextPart part);
  // Returns the text that was held back. Only an answer that ended by itself can be incomplete by
  // mistake; then the part that could be parsed stays, and the rest is content, so that no text is
  // lost. Calls with which a
  // model ends in its thought, and that nothing follows, are calls: the answer has nothing else to
  // act on.
  [[nodiscard]] AnswerPiece End(AnswerEnd end);

  // It has calls that can be carried out.
  [[nodiscard]] bool has_calls() const { return num_calls_ > 0 && are_calls_whole_; }
  // The answer was not in the format of calls.
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
  const std::string thought_end_;  // the tag and the channel marks that may follow it
  const std::string between_;      // MarksBetweenThoughts()
  const Calls calls_;
  const CallIds ids_;
  const ToolNames names_;
  bool has_thought_ = false;
  bool thought_is_over_ = false;
  bool thought_begun_ = false;  // a part of it was sent
  std::string thought_;         // not sent yet
  std::string whole_thought_;   // where it is read for calls
  bool content_begun_ = false;  // behind the blanks after a thought
  std::string answer_;          // whole, where it is read for calls
  size_t parsed_bytes_ = 0;     // of it, the last time
  size_t sent_content_bytes_ = 0;
  std::vector<size_t> sent_argument_bytes_;
  size_t num_calls_ = 0;
  bool are_calls_whole_ = true;
  bool is_malformed_ = false;
  bool is_over_ = false;
};

}  // namespace ebb::server

#endif  // EBB_SERVER_API_OPENAI_ANSWER_H_

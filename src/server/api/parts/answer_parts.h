// AnswerParts splits an answer into a sequence of parts, each a thought, a text or a call of a
// tool, as Responses and Messages send it. One part is open at a time; a piece for another part
// closes it.
#ifndef EBB_SERVER_API_PARTS_ANSWER_PARTS_H_
#define EBB_SERVER_API_PARTS_ANSWER_PARTS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "src/server/api/openai/answer.h"

namespace ebb::server {

struct AnswerPart {
  enum class Kind : uint8_t { kThought, kText, kCall };
  Kind kind = Kind::kText;
  std::string text = {};     // text so far; for a call, its arguments
  std::string call_id = {};  // kCall only
  std::string name = {};     // kCall only: the tool
  size_t call_index = 0;     // kCall only: index among the calls of the answer
  bool is_open = true;
};

struct PartEvent {
  enum class Kind : uint8_t { kOpened, kGrew, kClosed };
  Kind kind = Kind::kOpened;
  size_t part = 0;        // index of the part
  std::string text = {};  // kGrew only: the new text

  friend bool operator==(const PartEvent&, const PartEvent&) = default;
};

class AnswerParts {
 public:
  // Adds `piece` to the parts and appends their changes to `events`; a part that grows twice in a
  // row gets one event.
  void Add(const AnswerPiece& piece, std::vector<PartEvent>* events);
  // Closes the open part: the answer has ended.
  void Close(std::vector<PartEvent>* events);

  [[nodiscard]] const std::vector<AnswerPart>& parts() const { return parts_; }

 private:
  void Open(AnswerPart part, std::vector<PartEvent>* events);
  void Grow(const std::string& text, std::vector<PartEvent>* events);

  std::vector<AnswerPart> parts_;
};

}  // namespace ebb::server

#endif  // EBB_SERVER_API_PARTS_ANSWER_PARTS_H_

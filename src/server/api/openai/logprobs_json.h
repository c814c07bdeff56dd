// Log-probabilities in OpenAI's forms, sent in step with the text of an answer.
#ifndef EBB_SERVER_API_OPENAI_LOGPROBS_JSON_H_
#define EBB_SERVER_API_OPENAI_LOGPROBS_JSON_H_

#include <cstddef>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "ebb/sampler.h"
#include "src/server/api/api_error.h"
#include "src/server/engine/job.h"

namespace ebb::server {

struct ToldLogprobs {
  Logprobs of;
  size_t offset = 0;  // characters of the answer before the token's text
};

// Releases each entry with the first byte of its token's text. Entries of tokens behind the text,
// with which a stop string begins, are never released: a stream and an answer in one piece have the
// same entries.
class LogprobsTeller {
 public:
  // Entries come before the text of their tokens, or with it.
  void Add(std::vector<AnswerLogprobs> entries);
  // Text that is sent, of the whole answer, thoughts included.
  void AddText(std::string_view text);
  // Appends the entries that can be sent to `told`. is_all: the text is over, and no stop string
  // ended it.
  void Take(bool is_all, std::vector<ToldLogprobs>* told);

 private:
  // Counts the whole characters before the byte `end` of the answer.
  void CountTo(size_t end);

  std::deque<AnswerLogprobs> pending_;
  std::string text_;      // sent, and not counted yet
  size_t num_bytes_ = 0;  // counted
  size_t num_chars_ = 0;  // in them
  size_t last_end_ = 0;   // of the last entry
  bool has_entries_ = false;
};

using TokenText = std::function<std::string(Token)>;
// The member `logprobs` of a chat's choice, and of a completion's. A completion names a token
// that is no UTF-8 by itself bytes:\xf0\x9f, and keeps the likeliest of alternatives of one name.
[[nodiscard]] Json ChatLogprobs(const std::vector<ToldLogprobs>& told, const TokenText& text);
[[nodiscard]] Json TextLogprobs(const std::vector<ToldLogprobs>& told, const TokenText& text);

}  // namespace ebb::server

#endif  // EBB_SERVER_API_OPENAI_LOGPROBS_JSON_H_

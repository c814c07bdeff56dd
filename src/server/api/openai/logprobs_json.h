// Formats log-probabilities as OpenAI does, in step with the text of an answer.
#ifndef EBB_SERVER_API_OPENAI_LOGPROBS_JSON_H_
#define EBB_SERVER_API_OPENAI_LOGPROBS_JSON_H_

#include <cstddef>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "ebb/sampler.h"
#include "src/server/api/base/api_error.h"
#include "src/server/engine/job.h"

namespace ebb::server {

struct ToldLogprobs {
  Logprobs of;
  size_t offset = 0;  // characters of the answer before the token's text
};

// LogprobsTeller releases each entry with the first byte of its token's text. Entries of tokens
// behind the sent text, with which a stop string begins, are never released, so a stream and a
// complete answer have the same entries.
class LogprobsTeller {
 public:
  // Adds entries, at the latest with the text of their tokens.
  void Add(std::vector<AnswerLogprobs> entries);
  // Adds text that is sent, of the whole answer with its thoughts.
  void AddText(std::string_view text);
  // Moves the entries that can be sent to `told`. `is_all`: the text has ended, and not by a stop
  // string.
  void Take(bool is_all, std::vector<ToldLogprobs>* told);

 private:
  // Counts the whole characters before the byte `end` of the answer.
  void CountTo(size_t end);

  std::deque<AnswerLogprobs> pending_;
  std::string text_;      // sent, not counted yet
  size_t num_bytes_ = 0;  // bytes of the answer that have been counted
  size_t num_chars_ = 0;  // characters in these bytes
  size_t last_end_ = 0;   // end of the last entry's token
  bool has_entries_ = false;
};

using TokenText = std::function<std::string(Token)>;
// Returns the member `logprobs` of a chat's choice; TextLogprobs() returns a completion's. A
// completion names a token that is no UTF-8 by itself as bytes:\xf0\x9f, and of alternatives with
// the same name keeps the likeliest.
[[nodiscard]] Json ChatLogprobs(const std::vector<ToldLogprobs>& told, const TokenText& text);
[[nodiscard]] Json TextLogprobs(const std::vector<ToldLogprobs>& told, const TokenText& text);

}  // namespace ebb::server

#endif  // EBB_SERVER_API_OPENAI_LOGPROBS_JSON_H_

// Writes answers of llama-server's API: an object for each prompt, complete or as an event for each
// token; and errors in that API's form. Pure, as Exchange is.
#ifndef EBB_SERVER_API_LLAMA_LLAMA_EXCHANGE_H_
#define EBB_SERVER_API_LLAMA_LLAMA_EXCHANGE_H_

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "src/server/api/openai/exchange.h"

namespace ebb::server {

class LlamaExchange final : public Exchange {
 public:
  // Makes the exchange of `options.request`. REQUIRES: the request has `llama`.
  LlamaExchange(std::shared_ptr<const Model> model, ExchangeOptions options);

  // Adds an update of a choice's job. REQUIRES: the jobs have reports_tokens.
  void Take(size_t choice, JobUpdate update) override;
  [[nodiscard]] std::string TakeEvents() override;
  // Returns an object, or an array of objects for several choices.
  [[nodiscard]] Json Whole() const override;

 private:
  struct Output {
    std::vector<JobToken> tokens;    // not sent yet; all tokens of an answer that is not streamed
    std::vector<Logprobs> logprobs;  // one for each of `tokens`, if the request asked for them
    std::vector<PromptProgress> progress;  // not sent yet
    PromptProgress read;                   // the last progress
    std::string rest;                      // text that came after the last token
    int num_tokens = 0;                    // number of tokens sent
    bool has_new_line = false;
    bool sent_end = false;
  };

  void TakeChoice(size_t index, std::string* events);
  [[nodiscard]] Json Partial(size_t index, std::string content, Json tokens) const;
  // Returns an answer that is not streamed, or the last event of a stream.
  [[nodiscard]] Json Final(size_t index, std::string content, Json tokens) const;
  [[nodiscard]] Json Times(const Output& output, double decode_seconds) const;
  [[nodiscard]] Json Probabilities(const std::vector<Logprobs>& logprobs) const;
  [[nodiscard]] Json Probability(const TokenLogprob& one) const;

  const std::shared_ptr<const Model> model_;
  const LlamaAnswer& answer_;
  std::vector<Output> outputs_;  // [choices]
  bool sent_all_ = false;
};

// Returns the error in llama-server's form, {"error": {"code": 400, "message", "type", "param"}}.
[[nodiscard]] Json LlamaErrorJson(const ApiError& error);
// Converts an error to this form; returns other answers unchanged.
[[nodiscard]] HttpAnswer AsLlamaError(HttpAnswer answer);

}  // namespace ebb::server

#endif  // EBB_SERVER_API_LLAMA_LLAMA_EXCHANGE_H_

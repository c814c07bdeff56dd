// One request and its answer in OpenAI's form: takes updates of its jobs, each of which is a
// choice, and gives the answer in one piece or as server-sent events. Pure: no connection, no
// engine, no clock.
#ifndef EBB_SERVER_API_OPENAI_EXCHANGE_H_
#define EBB_SERVER_API_OPENAI_EXCHANGE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ebb/model.h"
#include "src/server/api/api_error.h"
#include "src/server/api/openai/answer.h"
#include "src/server/api/openai/logprobs_json.h"
#include "src/server/api/openai/reasoning_field.h"
#include "src/server/api/openai/request.h"
#include "src/server/engine/job.h"

namespace ebb::server {

struct ExchangeOptions {
  CompletionRequest request;  // after Prepare()
  std::string id;             // "chatcmpl-..."
  std::string model_id;
  int64_t created = 0;      // seconds of the epoch
  std::string fingerprint;  // of the model
  ReasoningField reasoning_field = ReasoningField::kReasoningContent;
};

// It came to its end: the model ended it, or a stop string did.
[[nodiscard]] bool EndedByItself(const JobEnd& end);
// The extensions of ebb to an answer: timings, metrics, and the object `ebb`.
[[nodiscard]] Json TimingsJson(const JobEnd& end);
[[nodiscard]] Json MetricsJson(const JobEnd& end);
// llama-server's `prompt_progress`.
[[nodiscard]] Json ProgressJson(const PromptProgress& progress);
// `ebb.memory`, and `ebb.prompt`: the texts of tokens. Bytes of a character that several tokens
// make are the last one's.
[[nodiscard]] Json MemoryJson(const MemoryReport& memory);
[[nodiscard]] Json TextsJson(const Model& model, std::span<const Token> tokens);
[[nodiscard]] Json OwnJson(const JobEnd& end, bool is_malformed, const CompletionRequest& request);

class Exchange {
 public:
  Exchange(std::shared_ptr<const Model> model, ExchangeOptions options);
  virtual ~Exchange() = default;
  Exchange(Exchange&&) = default;

  virtual void Take(size_t choice, JobUpdate update);
  // It is over with this error, unless it is over already.
  void EndWith(ApiError error);

  // All choices wait for their turn or are further. Nothing was refused.
  [[nodiscard]] bool is_accepted() const;
  // Why there is no answer: a job was refused, or ended with an error. In a stream it is an event.
  [[nodiscard]] const std::optional<ApiError>& error() const { return error_; }
  [[nodiscard]] bool is_over() const;
  [[nodiscard]] const std::string& id() const { return options_.id; }
  [[nodiscard]] const CompletionRequest& request() const { return options_.request; }

  // Events for what has come since the last call; the last ones, where it is over, among them.
  [[nodiscard]] virtual std::string TakeEvents();
  // The whole answer. REQUIRES: is_over(), no error.
  [[nodiscard]] virtual Json Whole() const;

 protected:
  struct Choice {
    AnswerReader reader;
    AnswerPiece unsent;  // of a stream
    AnswerPiece whole;   // of an answer in one piece
    LogprobsTeller logprobs = {};
    std::vector<ToldLogprobs> unsent_logprobs = {};  // not sent yet, or of an answer in one piece
    std::vector<PromptProgress> progress = {};       // not sent yet, of a stream
    // With tells_memory; not sent yet, or of an answer in one piece.
    std::vector<JobToken> tokens = {};
    std::optional<std::vector<Token>> preceding = {};
    std::optional<MemoryReport> memory = {};
    std::optional<JobEnd> end = {};
    bool accepted = false;
    bool sent_end = false;
  };

  // REQUIRES: is_over(), no error.
  [[nodiscard]] Json Usage() const;
  [[nodiscard]] const ExchangeOptions& options() const { return options_; }
  [[nodiscard]] Choice& choice(size_t index) { return choices_[index]; }
  [[nodiscard]] const Choice& choice(size_t index) const { return choices_[index]; }

 private:
  [[nodiscard]] Json Frame(const char* object) const;
  // Null where there are none.
  [[nodiscard]] Json LogprobsJson(const std::vector<ToldLogprobs>& told) const;
  // Adds new tokens and the newest report of their memory to the object `own`.
  void AddMemory(const Choice& choice, Json* own) const;
  void AddThought(const std::string& thought, Json* message) const;
  void AddCalls(const std::vector<CallPiece>& calls, bool is_stream, Json* message) const;
  [[nodiscard]] const char* FinishName(const Choice& choice) const;
  [[nodiscard]] Json ChoiceFrame(size_t index, Json part) const;
  [[nodiscard]] std::string Event(Json json) const;
  void TakeChoice(size_t index, std::string* events);
  [[nodiscard]] bool is_chat() const { return request().endpoint == Endpoint::kChat; }

  const std::shared_ptr<const Model> model_;
  const ExchangeOptions options_;
  std::vector<Choice> choices_;
  std::optional<ApiError> error_;
  bool sent_roles_ = false;
  bool sent_all_ = false;
};

}  // namespace ebb::server

#endif  // EBB_SERVER_API_OPENAI_EXCHANGE_H_

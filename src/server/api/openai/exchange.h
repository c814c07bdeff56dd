// Exchange writes the answer to one request in OpenAI's form: it gets the updates of the request's
// jobs, each of which is a choice, and returns the answer complete or as server-sent events. Pure:
// no connection, no engine, no clock.
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
#include "src/server/api/base/api_error.h"
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

// Returns whether the model or a stop string ended the answer.
[[nodiscard]] bool EndedByItself(const JobEnd& end);
// Returns ebb's extension `timings` of an answer; MetricsJson() returns `metrics`.
[[nodiscard]] Json TimingsJson(const JobEnd& end);
[[nodiscard]] Json MetricsJson(const JobEnd& end);
// Returns llama-server's `prompt_progress`.
[[nodiscard]] Json ProgressJson(const PromptProgress& progress);
// Returns `ebb.memory`. TextsJson() returns `ebb.prompt`, the texts of tokens: the bytes of a
// character that several tokens make belong to the last one.
[[nodiscard]] Json MemoryJson(const MemoryReport& memory);
[[nodiscard]] Json TextsJson(const Model& model, std::span<const Token> tokens);
[[nodiscard]] Json OwnJson(const JobEnd& end, bool is_malformed, const CompletionRequest& request);

class Exchange {
 public:
  Exchange(std::shared_ptr<const Model> model, ExchangeOptions options);
  virtual ~Exchange() = default;
  Exchange(Exchange&&) = default;

  virtual void Take(size_t choice, JobUpdate update);
  // Ends the answer with `error`, unless it has ended already.
  void EndWith(ApiError error);

  // Returns whether the engine has accepted all choices.
  [[nodiscard]] bool is_accepted() const;
  // Returns why there is no answer: a job was refused or ended with an error. A stream gets the
  // error as an event.
  [[nodiscard]] const std::optional<ApiError>& error() const { return error_; }
  [[nodiscard]] bool is_over() const;
  [[nodiscard]] const std::string& id() const { return options_.id; }
  [[nodiscard]] const CompletionRequest& request() const { return options_.request; }

  // Returns the events for what has come since the last call, and the final ones if the answer has
  // ended.
  [[nodiscard]] virtual std::string TakeEvents();
  // Returns the whole answer. REQUIRES: is_over(), no error.
  [[nodiscard]] virtual Json Whole() const;

 protected:
  struct Choice {
    AnswerReader reader;
    AnswerPiece unsent;  // of a stream, not sent yet
    AnswerPiece whole;   // of an answer that is not streamed
    LogprobsTeller logprobs = {};
    std::vector<ToldLogprobs> unsent_logprobs = {};  // not sent yet; all, if not streamed
    std::vector<PromptProgress> progress = {};       // of a stream, not sent yet
    // Holds tokens that are not sent yet, or all if the answer is not streamed; with
    // reports_memory, as the next two.
    std::vector<JobToken> tokens = {};
    std::optional<std::vector<Token>> preceding = {};
    std::optional<MemoryReport> memory = {};
    std::optional<JobEnd> end = {};
    bool accepted = false;
    bool sent_end = false;
  };

  // Returns the member `usage`. REQUIRES: is_over(), no error.
  [[nodiscard]] Json Usage() const;
  [[nodiscard]] const ExchangeOptions& options() const { return options_; }
  [[nodiscard]] Choice& choice(size_t index) { return choices_[index]; }
  [[nodiscard]] const Choice& choice(size_t index) const { return choices_[index]; }

 private:
  [[nodiscard]] Json Frame(const char* object) const;
  // Returns the member `logprobs`, null if there are none.
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

// Defines CompletionRequest, which the readers of all interfaces fill from the body of an HTTP
// request, and Prepare(), which turns it into jobs for the engine, one for each answer.
#ifndef EBB_SERVER_API_OPENAI_REQUEST_H_
#define EBB_SERVER_API_OPENAI_REQUEST_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "ebb/chat.h"
#include "ebb/engine.h"
#include "ebb/generate.h"
#include "ebb/model.h"
#include "ebb/sampler.h"
#include "src/server/api/base/api_error.h"
#include "src/server/api/base/infill.h"
#include "src/server/api/base/response_store.h"
#include "src/server/api/base/tool_names.h"
#include "src/server/engine/job.h"

namespace ebb::server {

// RequestDefaults holds the defaults of a request's fields.
struct RequestDefaults {
  std::string model_id;              // the model's name
  std::vector<std::string> aliases;  // further names of the model
  bool takes_any_model = false;      // requests may name any model
  [[nodiscard]] bool IsModel(std::string_view name) const {
    return takes_any_model || name == model_id || std::ranges::find(aliases, name) != aliases.end();
  }
  SamplingOptions sampling;
  EngineOptions engine;  // options of the server's engine
  SessionOptions session;
  GenerateOptions generate;
};

enum class Endpoint { kChat, kText };

// TextBias is a bias for all tokens of a text.
struct TextBias {
  std::string text;
  float bias = 0;
};

// MixedPrompt is a prompt as sent: texts and runs of tokens, in any order.
using MixedPrompt = std::vector<std::variant<std::string, std::vector<Token>>>;

// ToolPaths holds the paths of a tool and of its schema in the body, "tools[3]" and
// "tools[3].function.parameters".
struct ToolPaths {
  std::string tool, schema;

  friend bool operator==(const ToolPaths&, const ToolPaths&) = default;
};

// NamespacedName is a function in a namespace (a tool of type namespace); NamespacedNames maps the
// models' names to them.
struct NamespacedName {
  std::string space;
  std::string name;
};
using NamespacedNames = std::map<std::string, NamespacedName>;

// ResponsesAnswer holds what an answer of /v1/responses needs of the request.
struct ResponsesAnswer {
  Json echo = {};              // members of the response that repeat the request
  Json input = {};             // the request's own items, in an array
  bool stores = true;          // clients may get and continue the response by its id
  bool wants_summary = false;  // sends thoughts as summaries too, which some clients need
  NamespacedNames namespaced = {};
  std::shared_ptr<const StoredResponse> before = {};  // the response that this one continues
};

// LlamaAnswer holds what an answer of llama-server's /completion and /infill needs of the request.
// Prepare() sets `generation_settings` and `prompts`.
struct LlamaAnswer {
  bool returns_tokens = false;
  bool post_sampling_probs = false;
  bool timings_per_token = false;
  bool returns_progress = false;
  std::vector<std::string> response_fields = {};  // fields to return; empty: all
  Json generation_settings = {};
  std::vector<std::string> prompts = {};  // [choices], as texts
};

// CompletionRequest is a request of any API. Strings that name fields hold paths in the client's
// body.
struct CompletionRequest {
  Endpoint endpoint = Endpoint::kChat;
  ChatRequest chat;                       // kChat only
  std::optional<ChatMessage> begun = {};  // kChat only: the answer that the client has begun
  bool must_continue = false;             // the client asks by name to continue it
  ToolNames tool_names = {};              // kChat only: the client's names of renamed tools
  bool answers_with_function_call =
      false;  // kChat only: a call is a `function_call`, as before tools
  std::vector<MixedPrompt> prompts = {};     // kText only
  std::optional<InfillRequest> infill = {};  // kText only, instead of `prompts`
  int num_choices = 1;                       // for each prompt
  SamplingOptions sampling;
  std::vector<TextBias> text_biases = {};   // added to the biases of `sampling`
  std::optional<uint64_t> drawn_seed = {};  // the seed of `sampling`, if it was drawn at random
  GenerateOptions generate;
  SessionOptions session;
  bool streams = false;
  bool includes_usage = false;
  bool reports_hash = false;
  std::optional<int> logprobs = {};  // top tokens to report with each token
  Job::LogprobSource logprob_source = Job::LogprobSource::kModel;
  std::string prediction = {};    // a text that the answer may repeat
  bool reports_tokens = false;    // see Job
  bool reports_progress = false;  // see Job
  bool reports_memory = false;    // see Job
  std::optional<int> priority = {};
  bool caches_prompt = true;  // prefix caching is on for its prompt
  std::string cache_salt;     // requests share rows only with an equal salt
  std::optional<double> deadline_seconds = {};
  std::string session_id = {};  // empty: none
  // Holds the body's `session_id`, which many clients send for routing and logs. See TakeSession().
  std::string session_hint = {};
  // Names the hints that gave session_id. If the session cannot be used, the request goes on
  // without it. Empty: the client named the session explicitly.
  std::vector<std::string> session_hints = {};

  std::string prompt_field = "messages";   // the field with the prompt
  std::vector<ToolPaths> tool_paths = {};  // [chat.tools]
  // Maps the names of chat.template_arguments to the client's fields.
  std::map<std::string, std::string> argument_fields = {};
  std::string format_field = {};          // the field that asks for a format; empty: none
  std::string policy_field = {};          // the field that changes the policy; empty: none
  std::vector<std::string> ignored = {};  // fields without effect

  std::vector<std::string> stop_sequences = {};     // /v1/messages: the client's stops
  std::shared_ptr<ResponsesAnswer> responses = {};  // /v1/responses only
  std::shared_ptr<LlamaAnswer> llama = {};          // /completion and /infill only

  // Determines how the answers are parsed. Prepare() and PrepareTurn() set this and the members
  // below.
  std::shared_ptr<const ChatPrompt> prompt = {};
  uint64_t call_seed = 0;    // CallIdSeed() of the conversation
  bool may_call = false;     // answers may call tools
  size_t total_choices = 1;  // choices of all prompts
  size_t prompt_tokens = 0;  // tokens of all prompts
  // Holds the stored answer of a session that is sent again, as the update that a job would send;
  // there is no job then.
  std::optional<JobUpdate> said = {};
};

// ReadScope is the purpose of reading a body: an answer, or the prompt only, to count its tokens or
// show its text.
enum class ReadScope : uint8_t { kAnswer, kPrompt };

// Returns the client's path of a field of `request.chat` that an error or a report of the library
// names: "tools[1].parameters.properties.x".
[[nodiscard]] std::string ClientField(const CompletionRequest& request, const std::string& field);

// Removes tools that the model may call but its chat template has no place for, and lists them as
// ignored. If a call is required, the template fails later.
void LeaveOutTools(const Model& model, CompletionRequest* request);
// Makes the turn in which the assistant answers a chat, or continues the answer `begun`. Errors:
// those of BeginTurn().
[[nodiscard]] Result<Turn> BeginChatTurn(const Model& model, ChatRequest chat,
                                         const std::optional<ChatMessage>& begun, int context);

// Returns the tokens that the request's session has room for; 0: unlimited.
[[nodiscard]] int ContextBound(const Model& model, const CompletionRequest& request);
// Returns the error of a sampler. It names the field that asks for the grammar instead of the
// grammar, whose text the client may never have seen.
[[nodiscard]] ApiError GrammarError(const Status& status, const CompletionRequest& request);
// Returns the error of making a prompt, by BeginTurn(), a template or a tokenizer.
[[nodiscard]] ApiError PromptError(const Status& status, const CompletionRequest& request);
// Returns the jobs of a request, one for each choice of each prompt, without ids: applies the
// template, tokenizes and makes samplers, which may take a second. Moves messages and prompts out
// of `request`. Errors: those of the library; a prompt that leaves no room in the context; 501 (the
// vocabulary has no tokens for /infill).
[[nodiscard]] ApiResult<std::vector<Job>> Prepare(const Model& model, CompletionRequest* request);
// Returns the jobs for turns that exist already and follow `num_kept` tokens of a session.
// REQUIRES: call_seed and may_call of `request` are set.
[[nodiscard]] ApiResult<std::vector<Job>> PrepareTurns(const Model& model, std::vector<Turn> turns,
                                                       size_t num_kept, CompletionRequest* request);
// Returns whether the answer may call tools.
[[nodiscard]] bool MayCall(const ChatRequest& chat);

}  // namespace ebb::server

#endif  // EBB_SERVER_API_OPENAI_REQUEST_H_

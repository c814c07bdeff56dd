// The request that the readers of all interfaces make of a body, and the jobs that are made of it.
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
#include "src/server/api/api_error.h"
#include "src/server/api/llama/infill.h"
#include "src/server/api/responses/response_store.h"
#include "src/server/api/tool_names.h"
#include "src/server/engine/job.h"

namespace ebb::server {

// Defaults of a request's fields.
struct RequestDefaults {
  std::string model_id;              // the model's name
  std::vector<std::string> aliases;  // what requests may call it too
  bool takes_any_model = false;      // requests may call it anything
  [[nodiscard]] bool IsModel(std::string_view name) const {
    return takes_any_model || name == model_id || std::ranges::find(aliases, name) != aliases.end();
  }
  SamplingOptions sampling;
  EngineOptions engine;    // whose tiers sessions have
  SessionOptions session;  // of which ShareTiers() has seen the policy
  GenerateOptions generate;
};

enum class Endpoint { kChat, kText };

// A bias of all tokens of a text.
struct TextBias {
  std::string text;
  float bias = 0;
};

// A prompt as it was sent: texts and runs of tokens, in any order.
using MixedPrompt = std::vector<std::variant<std::string, std::vector<Token>>>;

// The paths of a tool and of its schema in the body, "tools[3]" and "tools[3].function.parameters".
struct ToolPaths {
  std::string tool, schema;

  friend bool operator==(const ToolPaths&, const ToolPaths&) = default;
};

// Functions of namespaces (tools of type namespace), by the names that models get.
struct NamespacedName {
  std::string space;
  std::string name;
};
using NamespacedNames = std::map<std::string, NamespacedName>;

// The answer of /v1/responses.
struct ResponsesAnswer {
  Json echo = {};              // members of the response that repeat the request
  Json input = {};             // the request's own items, in an array
  bool stores = true;          // the response may be asked for, and continued, by its id
  bool wants_summary = false;  // of thoughts, for clients that show no other form of them
  NamespacedNames namespaced = {};
  std::shared_ptr<const StoredResponse> before = {};  // the response that this one continues
};

// The answer of llama-server's /completion and /infill. Prepare() sets `generation_settings` and
// `prompts`.
struct LlamaAnswer {
  bool returns_tokens = false;
  bool post_sampling_probs = false;
  bool timings_per_token = false;
  bool returns_progress = false;
  std::vector<std::string> response_fields = {};  // empty: all
  Json generation_settings = {};
  std::vector<std::string> prompts = {};  // [choices], as texts
};

// A request of any interface. Strings that name fields hold the paths of the client's body.
struct CompletionRequest {
  Endpoint endpoint = Endpoint::kChat;
  ChatRequest chat;                       // of kChat
  std::optional<ChatMessage> begun = {};  // of kChat: the answer that the client has begun
  bool must_continue = false;             // the client asks for that by name
  ToolNames tool_names = {};              // of kChat
  bool tells_function_call = false;       // of kChat: a call is a `function_call`, as before tools
  std::vector<MixedPrompt> prompts = {};  // of kText
  std::optional<InfillRequest> infill = {};  // of kText, in place of `prompts`
  int num_choices = 1;                       // of each prompt
  SamplingOptions sampling;
  std::vector<TextBias> text_biases = {};   // added to the biases of `sampling`
  std::optional<uint64_t> drawn_seed = {};  // the seed of `sampling`, where it was drawn
  GenerateOptions generate;
  SessionOptions session;
  bool streams = false;
  bool includes_usage = false;
  bool tells_hash = false;
  std::optional<int> logprobs = {};  // how many of the likeliest tokens come with each
  Job::LogprobSource logprob_source = Job::LogprobSource::kModel;
  bool tells_tokens = false;    // see Job
  bool tells_progress = false;  // see Job
  bool tells_memory = false;    // see Job
  std::optional<int> priority = {};
  bool caches_prompt = true;  // shares rows of its prompt with other requests
  std::string cache_salt;     // with those of the same salt alone
  std::optional<double> deadline_seconds = {};
  std::string session_id = {};  // empty: none
  // The body's `session_id`, which many clients send for routing and logs. See TakeSession().
  std::string session_hint = {};
  // The names of the hints that session_id was taken from: the request goes on without the session
  // where it cannot use it. Empty: the client gave the session by a name of ebb's.
  std::vector<std::string> session_hints = {};

  std::string prompt_field = "messages";                    // the messages, or the text
  std::vector<ToolPaths> tool_paths = {};                   // [chat.tools]
  std::map<std::string, std::string> argument_fields = {};  // of chat.template_arguments
  std::string format_field = {};          // that asks for a format of the answer; empty: none
  std::string policy_field = {};          // that changes the policy; empty: none
  std::vector<std::string> ignored = {};  // fields without effect

  std::vector<std::string> stop_sequences = {};     // of /v1/messages: the client's stops
  std::shared_ptr<ResponsesAnswer> responses = {};  // of /v1/responses
  std::shared_ptr<LlamaAnswer> llama = {};          // of /completion and /infill

  // Set by Prepare() and PrepareTurn().
  std::shared_ptr<const ChatPrompt> prompt = {};  // how the answers are read
  uint64_t call_seed = 0;                         // CallIdSeed() of the conversation
  bool may_call = false;                          // answers may call tools
  size_t total_choices = 1;                       // of all prompts
  size_t prompt_tokens = 0;                       // of all prompts
  // The update that a job would send, for a session's answer that is sent again: there is no job.
  std::optional<JobUpdate> said = {};
};

// The purpose of reading a body: an answer, or its prompt alone, whose tokens are counted or whose
// text is shown.
enum class ReadScope : uint8_t { kAnswer, kPrompt };

// Returns the client's path of a field of `request.chat` that an error or a report of the library
// names: "tools[1].parameters.properties.x".
[[nodiscard]] std::string ClientField(const CompletionRequest& request, const std::string& field);

// Leaves out tools that the model may call but its chat template has no place for, and names them.
// A call that is required is an error of the template's later.
void LeaveOutTools(const Model& model, CompletionRequest* request);
// The turn in which the assistant answers a chat, or goes on with the answer that was begun.
// Errors: those of BeginTurn().
[[nodiscard]] Result<Turn> BeginChatTurn(const Model& model, ChatRequest chat,
                                         const std::optional<ChatMessage>& begun, int context);

// The tokens that the request's session has room for; 0: without end.
[[nodiscard]] int ContextBound(const Model& model, const CompletionRequest& request);
// Returns the error of a sampler: it names the field that asks for the grammar in place of the
// grammar, whose text the client may never have seen.
[[nodiscard]] ApiError GrammarError(const Status& status, const CompletionRequest& request);
// Returns the error of making a prompt: of BeginTurn(), of a template, of a tokenizer.
[[nodiscard]] ApiError PromptError(const Status& status, const CompletionRequest& request);
// Returns the jobs of a request, one for each choice of each prompt, without their ids: applies the
// template, tokenizes and makes samplers, which may take a second. Takes messages and prompts out
// of `request`. Errors: those of the library; a prompt that leaves no room in the context; 501 (the
// vocabulary has no tokens for /infill).
[[nodiscard]] ApiResult<std::vector<Job>> Prepare(const Model& model, CompletionRequest* request);
// Prepare() for turns that are made already, behind `num_kept` tokens of a session. Its call_seed
// and may_call are set already.
[[nodiscard]] ApiResult<std::vector<Job>> PrepareTurns(const Model& model, std::vector<Turn> turns,
                                                       size_t num_kept, CompletionRequest* request);
// Whether the answer may call tools.
[[nodiscard]] bool MayCall(const ChatRequest& chat);

}  // namespace ebb::server

#endif  // EBB_SERVER_API_OPENAI_REQUEST_H_

// Requests of OpenAI's interface: from the JSON of a body to the library's options. Fields without
// effect here are named in the answer; constraints on the answer that cannot be honoured are
// refused; nothing is clamped.
#ifndef EBB_SERVER_API_OPENAI_REQUEST_H_
#define EBB_SERVER_API_OPENAI_REQUEST_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ebb/chat.h"
#include "ebb/engine.h"
#include "ebb/generate.h"
#include "ebb/model.h"
#include "ebb/sampler.h"
#include "src/server/api/api_error.h"
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

struct CompletionRequest {
  Endpoint endpoint = Endpoint::kChat;
  ChatRequest chat;                       // of kChat
  std::optional<ChatMessage> begun = {};  // of kChat: the answer that the client has begun
  bool must_continue = false;             // the client asks for that by name
  ToolNames tool_names = {};              // of kChat
  ToolPaths tool_paths = {};              // of kChat
  std::map<std::string, std::string> argument_fields = {};  // of chat.template_arguments
  bool tells_function_call = false;     // of kChat: a call is a `function_call`, as before tools
  std::vector<std::string> texts = {};  // of kText, one of both
  std::vector<std::vector<Token>> prompts = {};
  int num_choices = 1;  // of each prompt
  SamplingOptions sampling;
  std::string format_field = {};            // that asks for a format of the answer; empty: none
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
  std::vector<std::string> ignored = {};  // fields without effect
};

[[nodiscard]] ApiResult<CompletionRequest> ReadRequest(Endpoint endpoint, const Json& body,
                                                       const RequestDefaults& defaults);
// The chat in a body alone: messages, tools and formats. /apply-template needs no more.
[[nodiscard]] ApiResult<CompletionRequest> ReadChatRequest(const Json& body,
                                                           const RequestDefaults& defaults);
// Leaves out tools that the model may call but its chat template has no place for, and names them.
// A call that is required is an error of the template's later.
void LeaveOutTools(const Model& model, CompletionRequest* request);
// The turn in which the assistant answers a chat, or goes on with the answer that was begun.
// Errors: those of BeginTurn().
[[nodiscard]] Result<Turn> BeginChatTurn(const Model& model, ChatRequest chat,
                                         const std::optional<ChatMessage>& begun, int context);

// The jobs of a request: one for each choice of each prompt, without their ids.
struct Prepared {
  std::vector<Job> jobs;
  // The update that a job would send, for a session's answer that is sent again: there is no job.
  std::optional<JobUpdate> said = {};
  std::shared_ptr<const ChatPrompt> prompt;  // how the answers are read
  uint64_t call_seed = 0;                    // CallIdSeed() of the conversation
  bool may_call = false;
};
// The tokens that the request's session has room for; 0: without end.
[[nodiscard]] int ContextBound(const Model& model, const CompletionRequest& request);
// The error of a sampler: it names the field that asks for the grammar in place of the grammar,
// whose text the client may never have seen. format_field: see CompletionRequest; empty: of tools.
[[nodiscard]] ApiError GrammarError(const Status& status, const std::string& format_field);
// The error of BeginTurn() and of its kind; ContextFull: of a prompt that is too long.
[[nodiscard]] ApiError PromptError(const Status& status, Endpoint endpoint);
// Applies the template, tokenizes and makes samplers: may take a second. Errors: those of the
// library; a prompt that leaves no room in the context.
[[nodiscard]] ApiResult<Prepared> Prepare(const Model& model, CompletionRequest request);
// Prepare() for turns that are made already, behind `num_kept` tokens of a session. call_seed: see
// Prepared.
[[nodiscard]] ApiResult<Prepared> PrepareTurns(const Model& model, const CompletionRequest& request,
                                               std::vector<Turn> turns, size_t num_kept,
                                               uint64_t call_seed);
// Whether the answer may call tools.
[[nodiscard]] bool MayCall(const ChatRequest& chat);

}  // namespace ebb::server

#endif  // EBB_SERVER_API_OPENAI_REQUEST_H_

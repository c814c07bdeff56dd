// From a request that was read to jobs: the template is applied, prompts are tokenized, samplers
// made.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "src/server/api/openai/continued_answer.h"
#include "src/server/api/openai/request.h"
#include "src/server/engine/prefix_cache.h"

namespace ebb::server {
namespace {

// The prompts of a request as tokens, and how its answers are read.
ApiResult<std::vector<Turn>> TurnsOf(const Model& model, CompletionRequest* request) {
  std::vector<Turn> turns;
  const int context = ContextBound(model, *request);
  if (request->endpoint == Endpoint::kChat) {
    Result<Turn> turn = BeginChatTurn(model, std::move(request->chat), request->begun, context);
    if (!turn.ok()) return PromptError(turn.status(), request->endpoint);
    turns.push_back(*std::move(turn));
    return turns;
  }
  const Conversation talk = {.kind = Conversation::Kind::kText};
  for (const std::string& text : request->texts) {
    Result<Turn> turn = BeginTextTurn(model, talk, text, {}, context);
    if (!turn.ok()) return PromptError(turn.status(), request->endpoint);
    turns.push_back(*std::move(turn));
  }
  for (std::vector<Token>& tokens : request->prompts) {
    if (tokens.empty()) return Invalid("prompt: expected tokens, found none", "prompt");
    const int vocab_size = model.shape().vocab_size;
    const auto unknown = std::ranges::find_if(tokens, [&](Token t) { return t >= vocab_size; });
    if (unknown != tokens.end()) {
      return Invalid(
          fmt::format("prompt: expected tokens below {}, found {}", vocab_size, *unknown),
          "prompt");
    }
    turns.push_back({.tokens = std::move(tokens)});
  }
  return turns;
}

}  // namespace

int ContextBound(const Model& model, const CompletionRequest& request) {
  if (request.session.past_context == PastContext::kReRotate) return 0;
  return request.session.context > 0 ? request.session.context : model.shape().trained_context;
}

ApiError PromptError(const Status& status, Endpoint endpoint) {
  if (status.code() != StatusCode::kContextFull) return ErrorFrom(status);
  return Invalid(status.message(), endpoint == Endpoint::kChat ? "messages" : "prompt",
                 "context_length_exceeded");
}

ApiError GrammarError(const Status& status, const std::string& format_field) {
  const std::string& field = status.field();
  const bool is_of_grammar = status.code() == StatusCode::kInvalidArgument &&
                             (field.empty() || field == "grammar" || field == "grammar_prefix");
  if (!is_of_grammar) return ErrorFrom(status);
  const std::string name = format_field.empty() ? "tools" : format_field;
  // A prefix is the answer that the client's last message begins, or the template's beginning.
  if (field != "grammar_prefix") return ErrorFrom(InvalidArgument(name, status.message()));
  return ErrorFrom(InvalidArgument(
      "messages", fmt::format("{} does not admit the text that the answer is to begin with, as the "
                              "last message or the chat template has it",
                              name)));
}

void LeaveOutTools(const Model& model, CompletionRequest* request) {
  ChatRequest& chat = request->chat;
  const bool may_go = chat.tool_choice == "auto" || chat.tool_choice == "none";
  if (chat.tools.empty() || !may_go || model.TakesTools()) return;
  chat.tools.clear();
  request->ignored.emplace_back("tools");
}

Result<Turn> BeginChatTurn(const Model& model, ChatRequest chat,
                           const std::optional<ChatMessage>& begun, int context) {
  if (begun.has_value()) return BeginContinuedTurn(model, std::move(chat), *begun, context);
  const std::vector<ChatMessage> messages = std::exchange(chat.messages, {});
  return BeginTurn(model, {.request = std::move(chat)}, messages, context);
}

bool MayCall(const ChatRequest& chat) { return !chat.tools.empty() && chat.tool_choice != "none"; }

ApiResult<Prepared> Prepare(const Model& model, CompletionRequest request) {
  const uint64_t call_seed = CallIdSeed(request.chat.messages);
  const bool may_call = MayCall(request.chat);
  EBB_ASSIGN_OR_RETURN(std::vector<Turn> turns, TurnsOf(model, &request));
  EBB_ASSIGN_OR_RETURN(Prepared prepared, PrepareTurns(model, request, std::move(turns),
                                                       /*num_kept=*/0, call_seed));
  prepared.may_call = may_call;
  return prepared;
}

ApiResult<Prepared> PrepareTurns(const Model& model, const CompletionRequest& request,
                                 std::vector<Turn> turns, size_t num_kept, uint64_t call_seed) {
  Prepared prepared = {.call_seed = call_seed, .may_call = MayCall(request.chat)};
  const int vocab_size = model.shape().vocab_size;
  for (const Token token : request.generate.stop_tokens) {
    if (token < vocab_size) continue;
    return Invalid(
        fmt::format("stop_token_ids: expected tokens below {}, found {}", vocab_size, token),
        "stop_token_ids", "out_of_range");
  }
  SamplingOptions biased = request.sampling;
  for (const TextBias& of : request.text_biases) {
    const auto tokens = model.Tokenize(of.text, Model::AddBos::kNo, Model::Specials::kAsText);
    if (!tokens.ok()) return ErrorFrom(tokens.status());
    for (const Token token : *tokens) biased.logit_bias[token] = of.bias;
  }
  const int context = ContextBound(model, request);
  for (Turn& turn : turns) {
    const size_t size = num_kept + turn.tokens.size();
    if (context > 0 && size >= static_cast<size_t>(context)) {
      const Status status = ContextFull(
          fmt::format("the prompt has {} tokens, which exceeds the available context size "
                      "of {} tokens, one of them for the answer",
                      size, context));
      return PromptError(status, request.endpoint);
    }
    for (int choice = 0; choice < request.num_choices; ++choice) {
      SamplingOptions sampling = biased;
      sampling.seed += static_cast<uint64_t>(choice);
      Result<std::unique_ptr<Sampler>> sampler = SamplerFor(turn, model, std::move(sampling));
      if (!sampler.ok()) return GrammarError(sampler.status(), request.format_field);
      Job& job = prepared.jobs.emplace_back();
      job.priority = request.priority.value_or(0);
      job.deadline_seconds = request.deadline_seconds;
      job.prompt = turn.tokens;
      job.session = request.session;
      if (request.caches_prompt) job.prefix_key = PrefixKey(request.cache_salt, request.session);
      job.sampler = *std::move(sampler);
      job.generate = OptionsFor(turn, request.generate);
      job.logprobs = request.logprobs;
      job.logprob_source = request.logprob_source;
      job.tells_tokens = request.tells_tokens;
      job.tells_progress = request.tells_progress;
      job.tells_memory = request.tells_memory;
    }
    prepared.prompt = std::make_shared<const ChatPrompt>(std::move(turn.prompt));
  }
  return prepared;
}

}  // namespace ebb::server

// Makes jobs from a request: applies the template, tokenizes prompts and makes samplers.
#include <algorithm>
#include <charconv>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "src/server/api/openai/continued_answer.h"
#include "src/server/api/openai/llama_settings.h"
#include "src/server/api/openai/request.h"
#include "src/server/engine/prefix_cache.h"

namespace ebb::server {
namespace {

// Returns how many tokens of the context the prompt of /infill may use.
size_t MostInfillTokens(const Model& model, const CompletionRequest& request) {
  const int given = request.session.context;
  const int context = given > 0 ? given : model.shape().trained_context;
  const int wanted = request.generate.max_tokens;
  const int kept = wanted < 0 ? context / 4 : std::min(wanted, context / 2);
  return static_cast<size_t>(std::max(1, context - kept - 1));
}

// Tokenizes a prompt of texts and tokens.
ApiResult<std::vector<Token>> TokensOf(const Model& model, const MixedPrompt& prompt) {
  std::vector<Token> tokens;
  for (const auto& part : prompt) {
    if (const auto* run = std::get_if<std::vector<Token>>(&part)) {
      tokens.insert(tokens.end(), run->begin(), run->end());
      continue;
    }
    const bool is_first = &part == &prompt.front();
    const Result<std::vector<Token>> more = model.Tokenize(
        std::get<std::string>(part), is_first ? Model::AddBos::kAsModelSays : Model::AddBos::kNo,
        Model::Specials::kParse);
    if (!more.ok()) return ErrorFrom(more.status());
    tokens.insert(tokens.end(), more->begin(), more->end());
  }
  if (tokens.empty()) return Invalid("prompt: expected tokens, found none", "prompt");
  const int vocab_size = model.shape().vocab_size;
  const auto unknown = std::ranges::find_if(tokens, [&](Token t) { return t >= vocab_size; });
  if (unknown == tokens.end()) return tokens;
  return Invalid(fmt::format("prompt: expected tokens below {}, found {}", vocab_size, *unknown),
                 "prompt");
}

// Returns the prompts of a request as tokens, and how its answers are read.
ApiResult<std::vector<Turn>> TurnsOf(const Model& model, CompletionRequest* request) {
  std::vector<Turn> turns;
  const int context = ContextBound(model, *request);
  if (request->endpoint == Endpoint::kChat) {
    Result<Turn> turn = BeginChatTurn(model, std::move(request->chat), request->begun, context);
    if (!turn.ok()) return PromptError(turn.status(), *request);
    turns.push_back(*std::move(turn));
    return turns;
  }
  if (request->infill.has_value()) {
    EBB_ASSIGN_OR_RETURN(std::vector<Token> tokens,
                         InfillPrompt(model, *request->infill, MostInfillTokens(model, *request)));
    turns.push_back({.tokens = std::move(tokens)});
  }
  for (const MixedPrompt& prompt : std::exchange(request->prompts, {})) {
    if (prompt.size() == 1 && std::holds_alternative<std::string>(prompt.front())) {
      const Conversation talk = {.kind = Conversation::Kind::kText};
      Result<Turn> turn =
          BeginTextTurn(model, talk, std::get<std::string>(prompt.front()), {}, context);
      if (!turn.ok()) return PromptError(turn.status(), *request);
      turns.push_back(*std::move(turn));
    } else {
      EBB_ASSIGN_OR_RETURN(std::vector<Token> tokens, TokensOf(model, prompt));
      turns.push_back({.tokens = std::move(tokens)});
    }
  }
  return turns;
}

}  // namespace

int ContextBound(const Model& model, const CompletionRequest& request) {
  if (request.session.past_context == PastContext::kReRotate) return 0;
  return request.session.context > 0 ? request.session.context : model.shape().trained_context;
}

std::string ClientField(const CompletionRequest& request, const std::string& field) {
  constexpr std::string_view kMessages = "messages", kTools = "tools[", kSchema = "].parameters";
  if (field.starts_with(kMessages)) return request.prompt_field + field.substr(kMessages.size());
  if (!field.starts_with(kTools)) return field;
  size_t index = 0;
  const char* const end = field.data() + field.size();
  const auto [stop, error] = std::from_chars(field.data() + kTools.size(), end, index);
  if (error != std::errc() || stop == end || *stop != ']' || index >= request.tool_paths.size()) {
    return field;
  }
  const ToolPaths& paths = request.tool_paths[index];
  const std::string_view rest(stop, end);
  if (rest.starts_with(kSchema)) return paths.schema + std::string(rest.substr(kSchema.size()));
  return paths.tool + std::string(rest.substr(1));
}

ApiError PromptError(const Status& status, const CompletionRequest& request) {
  if (status.code() == StatusCode::kContextFull) {
    return Invalid(status.message(), request.prompt_field, "context_length_exceeded");
  }
  const bool is_of_prompt = status.field().empty() && status.code() == StatusCode::kInvalidArgument;
  return ErrorFrom(Status(
      status.code(), is_of_prompt ? request.prompt_field : ClientField(request, status.field()),
      status.message()));
}

ApiError GrammarError(const Status& status, const CompletionRequest& request) {
  const std::string& field = status.field();
  const bool is_of_grammar = status.code() == StatusCode::kInvalidArgument &&
                             (field.empty() || field == "grammar" || field == "grammar_prefix");
  if (!is_of_grammar) return ErrorFrom(status);
  const std::string name = request.format_field.empty() ? "tools" : request.format_field;
  // The prefix is the answer that the client's last message begins, or the template's beginning of
  // answers.
  if (field != "grammar_prefix") return ErrorFrom(InvalidArgument(name, status.message()));
  return ErrorFrom(InvalidArgument(
      request.prompt_field,
      fmt::format(
          "{} does not admit the text that the answer is to begin with, as the last message "
          "or the chat template has it",
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

ApiResult<std::vector<Job>> Prepare(const Model& model, CompletionRequest* request) {
  request->call_seed = CallIdSeed(request->chat.messages);
  request->may_call = MayCall(request->chat);
  EBB_ASSIGN_OR_RETURN(std::vector<Turn> turns, TurnsOf(model, request));
  return PrepareTurns(model, std::move(turns), /*num_kept=*/0, request);
}

ApiResult<std::vector<Job>> PrepareTurns(const Model& model, std::vector<Turn> turns,
                                         size_t num_kept, CompletionRequest* request) {
  const int vocab_size = model.shape().vocab_size;
  for (const Token token : request->generate.stop_tokens) {
    if (token < vocab_size) continue;
    return Invalid(
        fmt::format("stop_token_ids: expected tokens below {}, found {}", vocab_size, token),
        "stop_token_ids", "out_of_range");
  }
  for (const TextBias& of : request->text_biases) {
    const auto tokens = model.Tokenize(of.text, Model::AddBos::kNo, Model::Specials::kAsText);
    if (!tokens.ok()) return ErrorFrom(tokens.status());
    for (const Token token : *tokens) request->sampling.logit_bias[token] = of.bias;
  }
  const auto prediction =
      model.Tokenize(request->prediction, Model::AddBos::kNo, Model::Specials::kAsText);
  if (!prediction.ok()) return ErrorFrom(prediction.status());
  std::vector<Job> jobs;
  const int context = ContextBound(model, *request);
  for (Turn& turn : turns) {
    const size_t size = num_kept + turn.tokens.size();
    if (context > 0 && size >= static_cast<size_t>(context)) {
      const Status status = ContextFull(
          fmt::format("the prompt has {} tokens, which exceeds the available context size "
                      "of {} tokens, one of them for the answer",
                      size, context));
      return PromptError(status, *request);
    }
    request->prompt_tokens += turn.tokens.size();
    for (int choice = 0; choice < request->num_choices; ++choice) {
      SamplingOptions sampling = request->sampling;
      sampling.seed += static_cast<uint64_t>(choice);
      Result<std::unique_ptr<Sampler>> sampler = SamplerFor(turn, model, std::move(sampling));
      if (!sampler.ok()) return GrammarError(sampler.status(), *request);
      Job& job = jobs.emplace_back();
      job.priority = request->priority.value_or(0);
      job.deadline_seconds = request->deadline_seconds;
      job.prompt = turn.tokens;
      job.session = request->session;
      if (request->caches_prompt) {
        job.prefix_key = PrefixKey(request->cache_salt, request->session);
      }
      job.sampler = *std::move(sampler);
      job.generate = OptionsFor(turn, request->generate);
      job.logprobs = request->logprobs;
      job.logprob_source = request->logprob_source;
      job.prediction = *prediction;
      job.reports_tokens = request->reports_tokens;
      job.reports_progress = request->reports_progress;
      job.reports_memory = request->reports_memory;
    }
    request->prompt = std::make_shared<const ChatPrompt>(std::move(turn.prompt));
  }
  request->total_choices = jobs.size();
  if (request->llama != nullptr) DescribeLlamaJobs(model, jobs, request);
  return jobs;
}

}  // namespace ebb::server

#include "src/server/api/openai/exchange.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "src/base/text/utf8.h"

namespace ebb::server {

bool EndedByItself(const JobEnd& end) {
  return end.finish == FinishReason::kStop || end.finish == FinishReason::kStopString;
}

namespace {

const char* TroubleCode(SessionTrouble trouble) {
  switch (trouble) {
    case SessionTrouble::kNone:
      break;
    case SessionTrouble::kMismatch:
      return "session_mismatch";
    case SessionTrouble::kCorrupt:
      return "session_corrupt";
    case SessionTrouble::kConflict:
      return "session_conflict";
    case SessionTrouble::kLeaseLost:
      return "session_lease_lost";
  }
  return "";
}

// Returns the error of a job that ended without an answer; nothing if it has one.
std::optional<ApiError> ErrorOf(const JobEnd& end, bool was_accepted,
                                const CompletionRequest& request) {
  if (end.error.ok() || end.finish == FinishReason::kContext) return std::nullopt;
  // Apart from a grammar that allows no token, an error of a job concerns the server's state and
  // not the request, whatever its code.
  const bool is_of_grammar =
      end.error.code() == StatusCode::kInvalidArgument && end.error.field() == "grammar";
  if (is_of_grammar) return GrammarError(end.error, request);
  ApiError error = ErrorFrom(end.error);
  const std::string text = end.error.Text();
  error.message = WithoutPaths(text);
  if (error.message != text) error.detail = text;
  if (end.trouble != SessionTrouble::kNone) {
    error.status = 409;
    error.code = TroubleCode(end.trouble);
    error.param = "ebb.session";
    return error;
  }
  if (!was_accepted) {
    // The session did not open: only the policy can be the request's fault.
    const bool is_of_policy = error.status == 400 && error.param.empty() &&
                              end.error.code() == StatusCode::kInvalidArgument;
    if (is_of_policy && !request.policy_field.empty()) {
      error.param = request.policy_field;
      error.message = request.policy_field + ": " + error.message;
    }
    return error;
  }
  if (end.finish == FinishReason::kCap) {
    error.status = 503;
    error.code = "out_of_memory";
  } else if (end.finish != FinishReason::kCancelled) {
    error.status = 500;
    error.code = "internal_error";
  }
  return error;
}

Json CallsJson(const std::vector<CallPiece>& calls, bool is_stream) {
  Json array = Json::array();
  for (const CallPiece& call : calls) {
    Json json;
    if (is_stream) json["index"] = call.index;
    // Clients concatenate later pieces: a name sent again would be doubled.
    if (!call.id.empty()) json["id"] = call.id;
    if (!call.id.empty()) json["type"] = "function";
    if (!call.name.empty()) json["function"]["name"] = call.name;
    json["function"]["arguments"] = call.arguments;
    array.push_back(std::move(json));
  }
  return array;
}

double PerSecond(double count, double seconds) { return seconds > 0 ? count / seconds : 0; }

}  // namespace

Json TimingsJson(const JobEnd& end) {
  constexpr double kMs = 1000;
  const int read_tokens = end.prompt_tokens - end.cached_tokens;
  // The last step of the prompt yields the first token, so it is not decoded.
  const int decoded_tokens = std::max(0, end.generated_tokens - 1);
  const auto each_ms = [](double seconds, int count) {
    return count > 0 ? seconds * kMs / count : 0.0;
  };
  return {{"cache_n", end.cached_tokens},
          {"prompt_n", read_tokens},
          {"prompt_ms", end.prompt_seconds * kMs},
          {"prompt_per_token_ms", each_ms(end.prompt_seconds, read_tokens)},
          {"prompt_per_second", PerSecond(read_tokens, end.prompt_seconds)},
          {"predicted_n", end.generated_tokens},
          {"predicted_ms", end.decode_seconds * kMs},
          {"predicted_per_token_ms", each_ms(end.decode_seconds, decoded_tokens)},
          {"predicted_per_second", PerSecond(decoded_tokens, end.decode_seconds)},
          {"draft_n", end.guesses.drafted},
          {"draft_n_accepted", end.guesses.accepted}};
}

Json MetricsJson(const JobEnd& end) {
  constexpr double kMs = 1000;
  return {{"queue_time_ms", end.queue_seconds * kMs},
          {"time_to_first_token_ms", end.first_token_seconds * kMs}};
}

Json ProgressJson(const PromptProgress& progress) {
  constexpr double kMs = 1000;
  return {{"total", progress.total},
          {"cache", progress.cached},
          {"processed", progress.processed},
          {"time_ms", progress.seconds * kMs}};
}

Json MemoryJson(const MemoryReport& memory) {
  Json json = {{"tokens", memory.num_tokens},
               {"rows", memory.rows},
               {"bytes", Json::array()},
               {"full_bytes", memory.full_bytes}};
  for (int t = 0; t < kNumTiers - 1; ++t) json["bytes"].push_back(memory.page_bytes[t]);
  if (!memory.tiers.empty()) json["tiers"] = memory.tiers;
  return json;
}

Json TextsJson(const Model& model, std::span<const Token> tokens) {
  Json texts = Json::array();
  std::string text;
  for (const Token token : tokens) {
    text += model.TokenText(token, Model::ControlTokens::kShow);
    const size_t whole = text.size() - IncompleteUtf8Suffix(text);
    texts.push_back(text.substr(0, whole));
    text.erase(0, whole);
  }
  return texts;
}

Json OwnJson(const JobEnd& end, bool is_malformed, const CompletionRequest& request) {
  Json own = {{"finish", FinishReasonName(end.finish)}, {"parks", end.num_parks}};
  if (is_malformed) own["parse"] = "failed";
  if (request.drawn_seed.has_value()) own["seed"] = *request.drawn_seed;
  if (request.reports_hash) own["logits_hash"] = fmt::format("{:016x}", end.logits_hash);
  if (end.session.has_value()) {
    Json& session = own["session"] = {{"id", end.session->id},
                                      {"saved", end.session->is_saved},
                                      {"tokens", end.session->num_tokens}};
    if (!end.session->is_saved) session["error"] = WithoutPaths(end.session->error);
  }
  return own;
}

Exchange::Exchange(std::shared_ptr<const Model> model, ExchangeOptions options)
    : model_(std::move(model)), options_(std::move(options)) {
  const CompletionRequest& asked = options_.request;
  for (size_t i = 0; i < asked.total_choices; ++i) {
    const CallIds ids = {asked.call_seed, i % static_cast<size_t>(asked.num_choices)};
    choices_.push_back({.reader = {asked.prompt, asked.may_call ? Calls::kParsed : Calls::kNone,
                                   ids, asked.tool_names}});
  }
}

void Exchange::Take(size_t index, JobUpdate update) {
  Choice& choice = choices_[index];
  choice.accepted = choice.accepted || update.accepted;
  AnswerPiece added;
  choice.logprobs.Add(std::move(update.logprobs));
  for (const JobPiece& piece : update.pieces) {
    added.Append(choice.reader.Add(piece.text, piece.part));
    choice.logprobs.AddText(piece.text);
  }
  const bool ended = update.end.has_value();
  const bool at_stop = ended && update.end->finish == FinishReason::kStopString;
  if (update.end.has_value()) {
    const bool by_itself = EndedByItself(*update.end);
    added.Append(choice.reader.End(by_itself ? AnswerEnd::kComplete : AnswerEnd::kPartial));
    if (!error_.has_value()) error_ = ErrorOf(*update.end, choice.accepted, request());
    choice.end = std::move(update.end);
  }
  if (request().reports_memory) {
    std::ranges::move(update.tokens, std::back_inserter(choice.tokens));
    if (update.preceding.has_value()) choice.preceding = std::move(update.preceding);
    if (update.memory.has_value()) choice.memory = std::move(update.memory);
  }
  (request().streams ? choice.unsent : choice.whole).Append(std::move(added));
  choice.logprobs.Take(/*is_all=*/ended && !at_stop, &choice.unsent_logprobs);
  if (request().streams) std::ranges::copy(update.progress, std::back_inserter(choice.progress));
}

void Exchange::EndWith(ApiError error) {
  if (!is_over()) error_ = std::move(error);
}

bool Exchange::is_accepted() const {
  return std::ranges::all_of(choices_, [](const Choice& choice) { return choice.accepted; });
}

bool Exchange::is_over() const {
  return error_.has_value() ||
         std::ranges::all_of(choices_, [](const Choice& choice) { return choice.end.has_value(); });
}

Json Exchange::Frame(const char* object) const {
  return {{"id", options_.id},
          {"object", object},
          {"created", options_.created},
          {"model", options_.model_id},
          {"system_fingerprint", options_.fingerprint}};
}

Json Exchange::Usage() const {
  int prompt = 0, cached = 0, generated = 0, thought = 0;
  SpeculationReport guesses;
  for (size_t i = 0; i < choices_.size(); ++i) {
    const JobEnd& end = *choices_[i].end;
    // The choices of one prompt share it, so it counts once.
    if (i % static_cast<size_t>(request().num_choices) == 0) {
      prompt += end.prompt_tokens;
      cached += end.cached_tokens;
    }
    generated += end.generated_tokens;
    thought += end.thought_tokens;
    guesses.drafted += end.guesses.drafted;
    guesses.accepted += end.guesses.accepted;
  }
  return {{"prompt_tokens", prompt},
          {"completion_tokens", generated},
          {"total_tokens", prompt + generated},
          {"prompt_tokens_details", {{"cached_tokens", cached}}},
          {"completion_tokens_details",
           {{"reasoning_tokens", thought},
            {"accepted_prediction_tokens", guesses.accepted},
            {"rejected_prediction_tokens", guesses.drafted - guesses.accepted}}}};
}

Json Exchange::LogprobsJson(const std::vector<ToldLogprobs>& told) const {
  if (told.empty()) return nullptr;
  const TokenText text = [this](Token token) {
    return model_->TokenText(token, Model::ControlTokens::kShow);
  };
  return is_chat() ? ChatLogprobs(told, text) : TextLogprobs(told, text);
}

void Exchange::AddMemory(const Choice& choice, Json* own) const {
  if (choice.preceding.has_value()) (*own)["prompt"] = TextsJson(*model_, *choice.preceding);
  for (const JobToken& token : choice.tokens) {
    Json& json = (*own)["tokens"].emplace_back(Json{{"id", token.token}, {"text", token.text}});
    if (token.guessed) json["guessed"] = true;
  }
  if (choice.memory.has_value()) (*own)["memory"] = MemoryJson(*choice.memory);
}

void Exchange::AddThought(const std::string& thought, Json* message) const {
  if (thought.empty()) return;
  const ReasoningField field = options_.reasoning_field;
  if (field != ReasoningField::kReasoning) (*message)["reasoning_content"] = thought;
  if (field != ReasoningField::kReasoningContent) (*message)["reasoning"] = thought;
}

void Exchange::AddCalls(const std::vector<CallPiece>& calls, bool is_stream, Json* message) const {
  if (calls.empty()) return;
  Json json = CallsJson(calls, is_stream);
  if (request().answers_with_function_call) {
    (*message)["function_call"] = std::move(json[0]["function"]);
  } else {
    (*message)["tool_calls"] = std::move(json);
  }
}

// Returns a finish reason of OpenAI's API.
const char* Exchange::FinishName(const Choice& choice) const {
  if (!EndedByItself(*choice.end)) return "length";
  if (!choice.reader.has_calls()) return "stop";
  return request().answers_with_function_call ? "function_call" : "tool_calls";
}

Json Exchange::ChoiceFrame(size_t index, Json part) const {
  Json frame = Frame(is_chat() ? "chat.completion.chunk" : "text_completion");
  Json choice = {{"index", index}};
  choice.update(part);
  frame["choices"] = Json::array({std::move(choice)});
  if (request().includes_usage) frame["usage"] = nullptr;
  return frame;
}

std::string Exchange::Event(Json json) const {
  return fmt::format("data: {}\n\n", EventData(json));
}

void Exchange::TakeChoice(size_t index, std::string* events) {
  Choice& choice = choices_[index];
  for (const PromptProgress& progress : std::exchange(choice.progress, {})) {
    Json part;
    is_chat() ? part["delta"] = Json::object() : part["text"] = "";
    part["logprobs"] = part["finish_reason"] = nullptr;
    Json frame = ChoiceFrame(index, std::move(part));
    frame["prompt_progress"] = ProgressJson(progress);
    *events += Event(std::move(frame));
  }
  const AnswerPiece piece = std::exchange(choice.unsent, {});
  const std::vector<ToldLogprobs> logprobs = std::exchange(choice.unsent_logprobs, {});
  Json own;
  AddMemory(choice, &own);
  choice.tokens.clear();
  choice.preceding.reset();
  choice.memory.reset();
  if (!piece.empty() || !logprobs.empty() || !own.empty()) {
    Json part;
    if (is_chat()) {
      Json& delta = part["delta"] = Json::object();
      AddThought(piece.thought, &delta);
      if (!piece.content.empty()) delta["content"] = piece.content;
      AddCalls(piece.calls, /*is_stream=*/true, &delta);
    } else {
      part["text"] = piece.content;
    }
    part["logprobs"] = LogprobsJson(logprobs);
    part["finish_reason"] = nullptr;
    Json frame = ChoiceFrame(index, std::move(part));
    if (!own.empty()) frame["ebb"] = std::move(own);
    *events += Event(std::move(frame));
  }
  if (!choice.end.has_value() || choice.sent_end || error_.has_value()) return;
  choice.sent_end = true;
  Json part;
  is_chat() ? part["delta"] = Json::object() : part["text"] = "";
  part["logprobs"] = nullptr;
  part["finish_reason"] = FinishName(choice);
  Json frame = ChoiceFrame(index, std::move(part));
  frame["timings"] = TimingsJson(*choice.end);
  frame["metrics"] = MetricsJson(*choice.end);
  frame["ebb"] = OwnJson(*choice.end, choice.reader.is_malformed(), request());
  *events += Event(std::move(frame));
}

std::string Exchange::TakeEvents() {
  std::string events;
  if (sent_all_ || !is_accepted()) return events;
  if (!sent_roles_ && is_chat()) {
    // Sends roles in order of index: clients create choices by the first piece of each.
    for (size_t i = 0; i < choices_.size(); ++i) {
      events += Event(ChoiceFrame(i, {{"delta", {{"role", "assistant"}, {"content", ""}}},
                                      {"logprobs", nullptr},
                                      {"finish_reason", nullptr}}));
    }
  }
  sent_roles_ = true;
  for (size_t i = 0; i < choices_.size(); ++i) TakeChoice(i, &events);
  if (!is_over()) return events;
  sent_all_ = true;
  // A stream that ends with an error gets no [DONE], so that clients do not take it for complete.
  if (error_.has_value()) return events += Event(ErrorJson(*error_));
  if (request().includes_usage) {
    Json frame = Frame(is_chat() ? "chat.completion.chunk" : "text_completion");
    frame["choices"] = Json::array();
    frame["usage"] = Usage();
    // Clients of llama-server look for timings in this frame. They are the last choice's, as in an
    // answer that is not streamed.
    frame["timings"] = TimingsJson(*choices_.back().end);
    events += Event(std::move(frame));
  }
  return events += "data: [DONE]\n\n";
}

Json Exchange::Whole() const {
  Json whole = Frame(is_chat() ? "chat.completion" : "text_completion");
  whole["choices"] = Json::array();
  for (size_t i = 0; i < choices_.size(); ++i) {
    const Choice& choice = choices_[i];
    const AnswerPiece& said = choice.whole;
    Json json = {{"index", i}};
    if (is_chat()) {
      Json& message = json["message"] = {{"role", "assistant"}};
      const bool only_calls = said.content.empty() && !said.calls.empty();
      message["content"] = only_calls ? Json() : Json(said.content);
      message["refusal"] = nullptr;
      AddThought(said.thought, &message);
      AddCalls(said.calls, /*is_stream=*/false, &message);
    } else {
      json["text"] = said.content;
    }
    json["logprobs"] = LogprobsJson(choice.unsent_logprobs);
    json["finish_reason"] = FinishName(choice);
    whole["choices"].push_back(std::move(json));
  }
  whole["usage"] = Usage();
  // The format has one place for timings: those of the last choice are sent.
  const Choice& last = choices_.back();
  whole["timings"] = TimingsJson(*last.end);
  whole["metrics"] = MetricsJson(*last.end);
  whole["ebb"] = OwnJson(*last.end, last.reader.is_malformed(), request());
  AddMemory(last, &whole["ebb"]);
  return whole;
}

}  // namespace ebb::server

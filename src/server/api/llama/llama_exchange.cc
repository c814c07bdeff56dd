#include "src/server/api/llama/llama_exchange.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace ebb::server {
namespace {

const char* StopType(const JobEnd& end) {
  switch (end.finish) {
    case FinishReason::kStop:
      return "eos";
    case FinishReason::kStopString:
      return "word";
    default:
      return "limit";
  }
}

Json TokenIds(const std::vector<JobToken>& tokens) {
  Json ids = Json::array();
  for (const JobToken& token : tokens) ids.push_back(token.token);
  return ids;
}

// Returns the fields in `names`; "a/b" names the member b of a.
Json SelectFields(const std::vector<std::string>& names, Json json) {
  if (names.empty()) return json;
  Json selected = Json::object();
  for (const std::string& name : names) {
    const Json* at = &json;
    for (size_t begin = 0; at != nullptr && begin <= name.size();) {
      const size_t end = std::min(name.find('/', begin), name.size());
      const auto found = at->is_object() ? at->find(name.substr(begin, end - begin)) : at->end();
      at = at->is_object() && found != at->end() ? &*found : nullptr;
      begin = end + 1;
    }
    if (at != nullptr) selected[name] = *at;
  }
  return selected;
}

std::string LlamaEvent(const Json& json) { return fmt::format("data: {}\n\n", EventData(json)); }

Json LlamaErrorOf(int status, const std::string& message, const std::string& type,
                  const Json& param) {
  Json error = {{"code", status}, {"message", message}, {"type", type}};
  if (!param.is_null()) error["param"] = param;
  return {{"error", std::move(error)}};
}

// Converts the members of an error in OpenAI's form.
Json AsLlama(int status, const Json& error) {
  std::string type = error.value("type", "server_error");
  if (error.value("code", Json()) == "context_length_exceeded") type = "exceed_context_size_error";
  if (status == 501) type = "not_supported_error";
  if (status == 503) type = "unavailable_error";
  return LlamaErrorOf(status, error.value("message", ""), type, error.value("param", Json()));
}

}  // namespace

LlamaExchange::LlamaExchange(std::shared_ptr<const Model> model, ExchangeOptions options)
    : Exchange(model, std::move(options)),
      model_(std::move(model)),
      answer_(*request().llama),
      outputs_(request().total_choices) {}

void LlamaExchange::Take(size_t index, JobUpdate update) {
  Output& output = outputs_[index];
  for (const JobPiece& piece : update.pieces) {
    output.has_new_line = output.has_new_line || piece.text.find('\n') != std::string::npos;
    if (update.tokens.empty()) output.rest += piece.text;
  }
  std::ranges::move(update.tokens, std::back_inserter(output.tokens));
  for (AnswerLogprobs& one : std::exchange(update.logprobs, {})) {
    output.logprobs.push_back(std::move(one.of));
  }
  std::ranges::move(std::exchange(update.progress, {}), std::back_inserter(output.progress));
  Exchange::Take(index, std::move(update));
  choice(index).unsent = {};  // TakeChoice() sends the tokens instead
}

Json LlamaExchange::Probability(const TokenLogprob& one) const {
  const std::string text = model_->TokenText(one.token, Model::ControlTokens::kShow);
  Json bytes = Json::array();
  for (const char c : text) bytes.push_back(static_cast<unsigned char>(c));
  Json json = {{"id", one.token}, {"token", text}, {"bytes", std::move(bytes)}};
  if (answer_.post_sampling_probs) {
    json["prob"] = std::exp(one.logprob);
  } else {
    json["logprob"] =
        std::isfinite(one.logprob) ? one.logprob : double{std::numeric_limits<float>::lowest()};
  }
  return json;
}

Json LlamaExchange::Probabilities(const std::vector<Logprobs>& logprobs) const {
  Json list = Json::array();
  for (const Logprobs& one : logprobs) {
    Json json = Probability(one.chosen);
    Json& top = json[answer_.post_sampling_probs ? "top_probs" : "top_logprobs"] = Json::array();
    for (const TokenLogprob& other : one.top) top.push_back(Probability(other));
    list.push_back(std::move(json));
  }
  return list;
}

Json LlamaExchange::Partial(size_t index, std::string content, Json tokens) const {
  return {{"index", index},
          {"content", std::move(content)},
          {"tokens", std::move(tokens)},
          {"stop", false},
          {"id_slot", -1},
          {"tokens_predicted", outputs_[index].num_tokens},
          {"tokens_evaluated", outputs_[index].read.total}};
}

Json LlamaExchange::Final(size_t index, std::string content, Json tokens) const {
  const JobEnd& end = *choice(index).end;
  Json settings = answer_.generation_settings;
  if (settings.contains("seed")) {
    settings["seed"] =
        settings["seed"].get<uint64_t>() + index % static_cast<size_t>(request().num_choices);
  }
  return {{"index", index},
          {"content", std::move(content)},
          {"tokens", std::move(tokens)},
          {"id_slot", -1},
          {"stop", true},
          {"model", options().model_id},
          {"tokens_predicted", end.generated_tokens},
          {"tokens_evaluated", end.prompt_tokens},
          {"generation_settings", std::move(settings)},
          {"prompt", index < answer_.prompts.size() ? answer_.prompts[index] : ""},
          {"has_new_line", outputs_[index].has_new_line},
          {"truncated", end.finish == FinishReason::kContext},
          {"stop_type", StopType(end)},
          {"stopping_word", end.stop_string},
          {"tokens_cached", end.cached_tokens},
          {"timings", TimingsJson(end)},
          {"ebb", OwnJson(end, /*is_malformed=*/false, request())}};
}

Json LlamaExchange::Times(const Output& output, double decode_seconds) const {
  return TimingsJson({.prompt_tokens = output.read.processed,
                      .cached_tokens = output.read.cached,
                      .generated_tokens = output.num_tokens,
                      .prompt_seconds = output.read.seconds,
                      .decode_seconds = decode_seconds});
}

void LlamaExchange::TakeChoice(size_t index, std::string* events) {
  Output& output = outputs_[index];
  for (const PromptProgress& progress : std::exchange(output.progress, {})) {
    output.read = progress;
    if (!answer_.returns_progress) continue;
    Json event = Partial(index, "", Json::array());
    if (answer_.timings_per_token) event["timings"] = Times(output, 0);
    event["prompt_progress"] = ProgressJson(progress);
    *events += LlamaEvent(event);
  }
  const std::vector<Logprobs> logprobs = std::exchange(output.logprobs, {});
  size_t place = 0;
  for (JobToken& token : std::exchange(output.tokens, {})) {
    ++output.num_tokens;
    Json event = Partial(index, std::move(token.text), Json::array({token.token}));
    if (answer_.timings_per_token) event["timings"] = Times(output, token.seconds);
    if (place < logprobs.size())
      event["completion_probabilities"] = Probabilities({logprobs[place]});
    ++place;
    *events += LlamaEvent(event);
  }
  if (!choice(index).end.has_value() || output.sent_end || error().has_value()) return;
  output.sent_end = true;
  *events += LlamaEvent(
      SelectFields(answer_.response_fields, Final(index, std::move(output.rest), Json::array())));
}

std::string LlamaExchange::TakeEvents() {
  std::string events;
  if (sent_all_ || !is_accepted()) return events;
  for (size_t i = 0; i < outputs_.size(); ++i) TakeChoice(i, &events);
  if (!is_over()) return events;
  sent_all_ = true;
  if (error().has_value()) events += LlamaEvent(LlamaErrorJson(*error()));
  return events;
}

Json LlamaExchange::Whole() const {
  Json answers = Json::array();
  for (size_t i = 0; i < outputs_.size(); ++i) {
    const Output& output = outputs_[i];
    Json json = Final(i, choice(i).whole.content,
                      answer_.returns_tokens ? TokenIds(output.tokens) : Json::array());
    if (!output.logprobs.empty()) json["completion_probabilities"] = Probabilities(output.logprobs);
    answers.push_back(SelectFields(answer_.response_fields, std::move(json)));
  }
  return answers.size() == 1 ? answers.front() : answers;
}

Json LlamaErrorJson(const ApiError& error) {
  return AsLlama(error.status, ErrorJson(error)["error"]);
}

HttpAnswer AsLlamaError(HttpAnswer answer) {
  if (answer.status < 400) return answer;
  const Json body = Json::parse(answer.body, nullptr, /*allow_exceptions=*/false);
  const bool is_known = body.is_object() && body.contains("error") && body["error"].is_object();
  if (is_known) answer.body = Dump(AsLlama(answer.status, body["error"]));
  return answer;
}

}  // namespace ebb::server

// Tests endpoints, answers and errors.
#include <map>

#include "tests/server/server_fixture.h"

namespace ebb::server {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

class ApiTest : public ServerTest {
 protected:
  void SetUp() override { Start(); }
  ClientAnswer Get(const std::string& path) { return Client(port()).Get(path); }
  ClientAnswer Post(const std::string& path, const json& body) {
    return Client(port()).Post(path, body);
  }
  ClientAnswer Chat(const json& body) { return Post("/v1/chat/completions", body); }
};

struct StreamedChoice {
  std::string thought, other_thought, content, finish;
  int num_chunks = 0;
};

// Joins the chunks of a stream as a client does.
std::map<int, StreamedChoice> Put(const std::vector<std::string>& events) {
  std::map<int, StreamedChoice> choices;
  for (const std::string& event : events) {
    if (event == "[DONE]") continue;
    const json chunk = json::parse(event);
    EXPECT_EQ(chunk["object"], "chat.completion.chunk");
    for (const json& choice : chunk["choices"]) {
      StreamedChoice& to = choices[choice["index"]];
      const json& delta = choice["delta"];
      if (to.num_chunks++ == 0) {
        EXPECT_EQ(delta["role"], "assistant");
      }
      to.thought += delta.value("reasoning_content", "");
      to.other_thought += delta.value("reasoning", "");
      to.content += delta.value("content", "");
      if (!choice["finish_reason"].is_null()) to.finish = choice["finish_reason"];
    }
  }
  return choices;
}

TEST_F(ApiTest, AnAnswerIsThatOfTheLibraryToTheBit) {
  const Solo solo = RunAlone(1, {});
  ASSERT_EQ(solo.result.finish_reason, FinishReason::kStop);
  const ClientAnswer answer = Chat(ServerTest::Chat(1));
  ASSERT_EQ(answer.status, 200) << answer.body;
  const json body = answer.json();
  EXPECT_EQ(body["object"], "chat.completion");
  EXPECT_EQ(body["model"], "pebble");
  EXPECT_EQ(body["id"], answer.headers.at("x-request-id"));
  const json& choice = body["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "stop");
  EXPECT_EQ(choice["message"]["role"], "assistant");
  EXPECT_EQ(choice["message"]["content"], solo.content);
  EXPECT_EQ(choice["message"]["reasoning_content"], solo.thought);
  EXPECT_FALSE(choice["message"].contains("reasoning"));
  EXPECT_EQ(body["ebb"]["logits_hash"], solo.hash);
  const json& usage = body["usage"];
  EXPECT_EQ(usage["completion_tokens"], solo.result.generated_tokens);
  EXPECT_EQ(usage["completion_tokens_details"]["reasoning_tokens"], solo.result.thought_tokens);
  EXPECT_EQ(usage["prompt_tokens_details"]["cached_tokens"], 0);
  EXPECT_EQ(usage["total_tokens"].get<int>(),
            usage["prompt_tokens"].get<int>() + solo.result.generated_tokens);
  EXPECT_GT(body["timings"]["predicted_per_second"], 0.0);
}

TEST_F(ApiTest, AStreamSaysWhatAWholeAnswerSays) {
  const json whole = Chat(ServerTest::Chat(2)).json();
  const ClientAnswer answer =
      Chat(ServerTest::Chat(2, {{"stream", true}, {"stream_options", {{"include_usage", true}}}}));
  ASSERT_EQ(answer.status, 200);
  EXPECT_THAT(answer.headers.at("content-type"), HasSubstr("text/event-stream"));
  const std::vector<std::string> events = answer.events();
  ASSERT_GT(events.size(), 10u);
  EXPECT_EQ(events.back(), "[DONE]");
  EXPECT_THAT(answer.body, testing::Not(HasSubstr("id:")));
  const StreamedChoice choice = Put(events)[0];
  const json& message = whole["choices"][0]["message"];
  EXPECT_EQ(choice.content, message["content"]);
  EXPECT_EQ(choice.thought, message["reasoning_content"]);
  EXPECT_EQ(choice.other_thought, "");
  EXPECT_EQ(choice.finish, "stop");
  const json usage = json::parse(events[events.size() - 2]);
  EXPECT_EQ(usage["choices"].size(), 0u);
  EXPECT_EQ(usage["usage"], whole["usage"]);
  EXPECT_EQ(json::parse(events[events.size() - 3])["ebb"]["logits_hash"],
            whole["ebb"]["logits_hash"]);
}

TEST_F(ApiTest, SeveralChoicesComeInOrderAndDifferBySeed) {
  const json more = {{"n", 2}, {"temperature", 1}, {"max_tokens", 30}, {"seed", 5}};
  const json both = Chat(ServerTest::Chat(3, more)).json();
  ASSERT_EQ(both["choices"].size(), 2u);
  EXPECT_EQ(both["choices"][1]["index"], 1);
  EXPECT_EQ(both["usage"]["completion_tokens"], 60);
  json second = ServerTest::Chat(3, more);
  second["n"] = 1;
  second["seed"] = 6;
  const json alone = Chat(second).json();
  EXPECT_EQ(alone["choices"][0]["message"], both["choices"][1]["message"]);
  EXPECT_EQ(alone["usage"]["prompt_tokens"], both["usage"]["prompt_tokens"]);
  json streamed = ServerTest::Chat(3, more);
  streamed["stream"] = true;
  auto choices = Put(Chat(streamed).events());
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(choices[i].thought, both["choices"][i]["message"]["reasoning_content"]);
    EXPECT_EQ(choices[i].finish, "length");
  }
}

TEST_F(ApiTest, TextsAreContinuedAsTheyAre) {
  const json body = {{"prompt", {"Question: First", "Question: Then"}}, {"max_tokens", 8}};
  const ClientAnswer answer = Post("/v1/completions", body);
  ASSERT_EQ(answer.status, 200) << answer.body;
  const json whole = answer.json();
  EXPECT_EQ(whole["object"], "text_completion");
  ASSERT_EQ(whole["choices"].size(), 2u);
  EXPECT_FALSE(whole["choices"][0]["text"].get<std::string>().empty());
  EXPECT_EQ(whole["choices"][0]["finish_reason"], "length");
  const json tokens =
      Post("/tokenize", {{"content", "Question: First"}, {"add_special", true}}).json();
  const ClientAnswer streamed =
      Post("/v1/completions", {{"prompt", tokens["tokens"]}, {"max_tokens", 8}, {"stream", true}});
  std::string text;
  for (const std::string& event : streamed.events()) {
    if (event != "[DONE]") text += json::parse(event)["choices"][0]["text"];
  }
  EXPECT_EQ(text, whole["choices"][0]["text"]);
}

TEST_F(ApiTest, LogprobsAreThoseOfTheModel) {
  const json whole =
      Chat(ServerTest::Chat(1, {{"logprobs", true}, {"top_logprobs", 2}, {"max_tokens", 5}}))
          .json();
  const json& content = whole["choices"][0]["logprobs"]["content"];
  ASSERT_EQ(content.size(), 5u);
  for (const json& token : content) {
    // Sampling is greedy, so the token is the likeliest one.
    EXPECT_EQ(token["logprob"], token["top_logprobs"][0]["logprob"]);
    EXPECT_LE(token["top_logprobs"][1]["logprob"], token["logprob"]);
    EXPECT_LE(token["logprob"], 0.0);
    EXPECT_EQ(token["bytes"].size(), token["token"].get<std::string>().size());
  }
  const json text =
      Post("/v1/completions", {{"prompt", "Question:"}, {"logprobs", 1}, {"max_tokens", 3}}).json();
  EXPECT_EQ(text["choices"][0]["logprobs"]["tokens"].size(), 3u);
  EXPECT_EQ(text["choices"][0]["logprobs"]["top_logprobs"][0].size(), 1u);
}

TEST_F(ApiTest, AGrammarHoldsForTheAnswer) {
  const json whole = Chat(ServerTest::Chat(1, {{"grammar", "root ::= \"yes\" | \"no\""},
                                               {"thinking_budget_tokens", 3}}))
                         .json();
  EXPECT_THAT(whole["choices"][0]["message"]["content"].get<std::string>(),
              testing::AnyOf("yes", "no"));
  EXPECT_EQ(whole["usage"]["completion_tokens_details"]["reasoning_tokens"], 3);
  const json format = Chat(ServerTest::Chat(1, {{"response_format", {{"type", "json_object"}}},
                                                {"thinking_budget_tokens", 0},
                                                {"max_tokens", 60}}))
                          .json();
  EXPECT_THAT(format["choices"][0]["message"]["content"].get<std::string>(),
              testing::StartsWith("{"));
  testing::internal::CaptureStderr();
  const ClientAnswer bad = Chat(ServerTest::Chat(1, {{"grammar", "root ::= ("}}));
  EXPECT_EQ(bad.status, 400) << bad.body;
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

// Checks that a complete grammar ends the answer, and that a grammar that allows no token is an
// error of the client's field.
TEST_F(ApiTest, AGrammarWithoutAWayOnEndsTheAnswerOrTheRequest) {
  for (const bool streams : {false, true}) {
    const json ends = {{"ignore_eos", true},
                       {"guided_choice", {"yes"}},
                       {"stream", streams},
                       {"thinking_budget_tokens", 0}};
    const ClientAnswer answer = Chat(ServerTest::Chat(1, ends));
    EXPECT_EQ(answer.status, 200) << answer.body;
    EXPECT_THAT(answer.body, HasSubstr(R"("finish_reason":"stop")"));
    // No token of the vocabulary holds the second character.
    const json none = {{"guided_choice", {std::string("y\0s", 3)}},
                       {"stream", streams},
                       {"thinking_budget_tokens", 0}};
    const ClientAnswer refused = Chat(ServerTest::Chat(1, none));
    if (!streams) {
      EXPECT_EQ(refused.status, 400) << refused.body;
      EXPECT_EQ(refused.json()["error"]["param"], "guided_choice");
    }
    EXPECT_THAT(refused.body, HasSubstr("guided_choice: the grammar admits no further token"));
    EXPECT_THAT(refused.body, HasSubstr("invalid_request_error"));
  }
}

TEST_F(ApiTest, AnAnswerEndsAtItsStopOrItsContext) {
  // A stop string within the thought does not end the answer.
  const json whole = Chat(ServerTest::Chat(1)).json()["choices"][0]["message"];
  const json stopped = Chat(ServerTest::Chat(1, {{"stop", {"makes", "answer"}}})).json();
  EXPECT_EQ(stopped["choices"][0]["finish_reason"], "stop");
  const json& message = stopped["choices"][0]["message"];
  EXPECT_EQ(message["reasoning_content"], whole["reasoning_content"]);
  EXPECT_THAT(message["reasoning_content"].get<std::string>(), HasSubstr("makes"));
  EXPECT_THAT(whole["content"].get<std::string>(), HasSubstr("answer"));
  EXPECT_EQ(message["content"].get<std::string>(),
            whole["content"].get<std::string>().substr(
                0, whole["content"].get<std::string>().find("answer")));
  server_.reset();
  ServerOptions options = Options();
  options.defaults.session.context = 300;
  Start(options);
  const json full = Chat(ServerTest::Chat(1, {{"ignore_eos", true}})).json();
  EXPECT_EQ(full["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(full["ebb"]["finish"], "context");
  const ClientAnswer long_one =
      Post("/v1/completions", {{"prompt", std::string(5000, 'x')}, {"max_tokens", 1}});
  EXPECT_EQ(long_one.status, 400);
  EXPECT_EQ(long_one.json()["error"]["code"], "context_length_exceeded");
}

TEST_F(ApiTest, ModelsHealthAndMetrics) {
  EXPECT_EQ(Get("/v1/models").json()["data"][0]["id"], "pebble");
  EXPECT_EQ(Get("/v1/models/pebble").json()["object"], "model");
  EXPECT_EQ(Get("/v1/models/other").status, 404);
  for (const char* path : {"/health", "/health/live", "/health/ready"}) {
    EXPECT_EQ(Get(path).json()["status"], "ok");
  }
  (void)Chat(ServerTest::Chat(1, {{"max_tokens", 4}}));
  const std::string metrics = Get("/metrics").body;
  for (const char* line :
       {"# TYPE ebb_kv_bytes gauge", "ebb_kv_bytes{tier=\"T0\"} ",
        "ebb_kv_cap_bytes{tier=\"T0\"} 0\n", "ebb_requests_running 0",
        "ebb_generated_tokens_total 4", "ebb_requests_total{finish=\"length\"} 1",
        "ebb_time_to_first_token_seconds_bucket{le=\"+Inf\"} 1"}) {
    EXPECT_THAT(metrics, HasSubstr(line));
  }
  EXPECT_THAT(metrics, testing::Not(HasSubstr("vllm:")));
  server_.reset();
  ServerOptions options = Options();
  options.metrics_alias = MetricsAlias::kVllm;
  Start(options);
  EXPECT_THAT(Get("/metrics").body, HasSubstr("vllm:num_requests_running 0"));
}

TEST_F(ApiTest, TokensAndTemplates) {
  const json tokens = Post("/tokenize", {{"content", "First Ada"}}).json();
  EXPECT_EQ(tokens["count"], tokens["tokens"].size());
  EXPECT_EQ(Post("/detokenize", {{"tokens", tokens["tokens"]}}).json()["content"], "First Ada");
  EXPECT_EQ(Post("/tokenize", json::object()).json()["error"]["param"], "content");
  EXPECT_EQ(Post("/detokenize", json::object()).json()["error"]["param"], "tokens");
  EXPECT_EQ(Post("/detokenize", {{"tokens", {1 << 20}}}).json()["error"]["param"], "tokens[0]");
  EXPECT_THAT(Post("/apply-template", ServerTest::Chat(1)).json()["prompt"].get<std::string>(),
              HasSubstr(Question(1)));
  EXPECT_EQ(Post("/apply-template", {{"messages", json::array()}}).status, 400);
  const json pieces = Post("/tokenize", {{"content", "First Ada"}, {"with_pieces", true}}).json();
  std::string text;
  for (size_t i = 0; i < pieces["tokens"].size(); ++i) {
    EXPECT_EQ(pieces["tokens"][i]["id"], tokens["tokens"][i]);
    text += pieces["tokens"][i]["piece"].get<std::string>();
  }
  EXPECT_EQ(text, "First Ada");
}

TEST_F(ApiTest, TemplatesHaveTheServersDefaults) {
  server_.reset();
  ServerOptions options = Options();
  options.defaults.generate.thinking_budget = 0;
  Start(options);
  const auto prompt = [&](const json& more) {
    return Post("/apply-template", ServerTest::Chat(1, more)).json()["prompt"].get<std::string>();
  };
  const std::string by_default = prompt(json::object());
  EXPECT_EQ(by_default, prompt({{"chat_template_kwargs", {{"enable_thinking", false}}}}));
  const std::string unopened = prompt({{"add_generation_prompt", false}});
  EXPECT_LT(unopened.size(), by_default.size());
  EXPECT_TRUE(by_default.starts_with(unopened));
}

TEST_F(ApiTest, TheModelMayHaveOtherNames) {
  server_.reset();
  ServerOptions options = Options();
  options.defaults.model_id = "thinker";
  options.defaults.aliases = {"thinker", "pebble"};
  Start(options);
  for (const char* name : {"thinker", "pebble"}) {
    const json answer = Chat(ServerTest::Chat(1, {{"model", name}, {"n_predict", 3}})).json();
    EXPECT_EQ(answer["model"], "thinker") << name;
    EXPECT_EQ(answer["usage"]["completion_tokens"], 3) << name;
    EXPECT_EQ(Get("/v1/models/" + std::string(name)).json()["id"], "thinker");
  }
  EXPECT_EQ(Chat(ServerTest::Chat(1, {{"model", "other"}})).status, 404);
  EXPECT_EQ(Get("/models").json(), Get("/v1/models").json());
  EXPECT_EQ(Get("/v1/health").status, 200);
}

TEST_F(ApiTest, TellsHowManyTokensAnInputHas) {
  const std::string path = "/v1/responses/input_tokens";
  const json one = Post(path, {{"input", Question(1)}}).json();
  EXPECT_EQ(one["object"], "response.input_tokens");
  EXPECT_EQ(one["input_tokens"],
            Chat(ServerTest::Chat(1, {{"max_tokens", 1}})).json()["usage"]["prompt_tokens"]);
  EXPECT_EQ(Post(path, {{"input", 5}}).json()["error"]["param"], "input");
}

TEST_F(ApiTest, AControlTokensTextInAMessageIsText) {
  const std::string mark = "<|end|>";
  const size_t more =
      Post("/tokenize", {{"content", mark}, {"parse_special", false}}).json()["count"];
  ASSERT_GT(more, 1u);
  const auto messages = [](const std::string& text) {
    return json{{{"role", "user"}, {"content", text}}};
  };
  const auto in_chat = [&](const std::string& text) -> size_t {
    return Chat({{"messages", messages(text)}, {"max_tokens", 1}}).json()["usage"]["prompt_tokens"];
  };
  const auto in_responses = [&](const std::string& text) -> size_t {
    return Post("/v1/responses/input_tokens", {{"input", text}}).json()["input_tokens"];
  };
  const auto in_messages = [&](const std::string& text) -> size_t {
    return Post("/v1/messages/count_tokens", {{"messages", messages(text)}}).json()["input_tokens"];
  };
  EXPECT_EQ(in_chat("five" + mark), in_chat("five") + more);
  EXPECT_EQ(in_responses("five" + mark), in_responses("five") + more);
  EXPECT_EQ(in_messages("five" + mark), in_messages("five") + more);
  // Special tokens in a raw prompt are parsed.
  const auto in_text = [&](const std::string& text) -> size_t {
    return Post("/v1/completions", {{"prompt", text}, {"max_tokens", 1}})
        .json()["usage"]["prompt_tokens"];
  };
  EXPECT_EQ(in_text("five" + mark), in_text("five") + 1);
}

TEST_F(ApiTest, APromptOfFarTooManyBytesIsRefusedByThem) {
  const std::string text(3'000'000, 'a');
  const json chat = Chat({{"messages", {{{"role", "user"}, {"content", text}}}}}).json()["error"];
  EXPECT_EQ(chat["code"], "context_length_exceeded");
  EXPECT_EQ(chat["param"], "messages");
  EXPECT_THAT(chat["message"].get<std::string>(), HasSubstr("bytes, at least "));
  const json prompt = Post("/v1/completions", {{"prompt", text}}).json()["error"];
  EXPECT_EQ(prompt["code"], "context_length_exceeded");
  EXPECT_EQ(prompt["param"], "prompt");
  const json response = Post("/v1/responses", {{"input", text}}).json()["error"];
  EXPECT_EQ(response["code"], "context_length_exceeded");
  EXPECT_EQ(response["param"], "input");
}

TEST_F(ApiTest, ErrorsHaveOpenAisForm) {
  struct Case {
    json body;
    std::string param, code;
  };
  const json user = {{{"role", "user"}, {"content", "hi"}}};
  const Case cases[] = {
      {{{"messages", json::array()}}, "messages", "invalid_value"},
      {{{"messages", {{{"role", "wizard"}, {"content", "hi"}}}}},
       "messages[0].role",
       "invalid_value"},
      {{{"messages", user}, {"temperature", 9}}, "temperature", "out_of_range"},
      {{{"messages", user}, {"model", "other"}}, "model", "model_not_found"},
      {{{"messages", user}, {"ebb", {{"policy", "fly"}}}}, "ebb.policy", "invalid_value"},
      {{{"messages", user}, {"logit_bias", {{"99999", 1}}}}, "logit_bias", "invalid_value"},
      {{{"messages", user}, {"tool_choice", "required"}}, "tool_choice", "invalid_value"},
  };
  for (const Case& one : cases) {
    for (const bool stream : {false, true}) {
      json body = one.body;
      body["stream"] = stream;
      const ClientAnswer answer = Chat(body);
      EXPECT_EQ(answer.status, one.code == "model_not_found" ? 404 : 400) << answer.body;
      const json error = answer.json()["error"];
      EXPECT_FALSE(error["message"].get<std::string>().empty());
      EXPECT_EQ(error["code"], one.code) << answer.body;
      EXPECT_EQ(error["param"], one.param) << answer.body;
    }
  }
}

TEST_F(ApiTest, WhatIsNotThereIsSaid) {
  EXPECT_EQ(Get("/nothing").status, 404);
  const ClientAnswer wrong = Get("/v1/chat/completions");
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(wrong.headers.at("allow"), "POST");
  for (const char* path : {"/", "/dashboard", "/v1/ebb/status", "/v1/models/pebble"}) {
    const ClientAnswer posted = Post(path, json::object());
    EXPECT_EQ(posted.status, 405) << path;
    EXPECT_EQ(posted.headers.at("allow"), "GET") << path;
  }
  EXPECT_EQ(Get("/v1/requests/x").status, 405);
  EXPECT_EQ(Post("/v1/embeddings", {{"input", "x"}}).status, 501);
  Client client(port());
  client.Send(
      Client::Request("POST", "/v1/chat/completions", "{}", "Content-Type: text/plain\r\n"));
  EXPECT_EQ(client.Receive().status, 415);
}

TEST_F(ApiTest, ABodyWithoutATypeOrWithThatOfCurlIsReadAsJson) {
  const std::string body = ServerTest::Chat(1, {{"max_tokens", 1}}).dump();
  for (const char* type : {"", "Content-Type: application/x-www-form-urlencoded\r\n"}) {
    Client client(port());
    client.Send(Client::Request("POST", "/v1/chat/completions", body, type));
    EXPECT_EQ(client.Receive().status, 200) << type;
  }
}

TEST_F(ApiTest, ABiasReachesTheTokenThatItNames) {
  const auto first = [&](const json& biases) {
    const json answer = Chat(ServerTest::Chat(1, {{"max_tokens", 1},
                                                  {"logprobs", true},
                                                  {"top_logprobs", 2},
                                                  {"logit_bias", biases}}))
                            .json();
    return answer["choices"][0]["logprobs"]["content"][0];
  };
  const json plain = first(json::object());
  const std::string likeliest = plain["top_logprobs"][0]["token"];
  const std::string second = plain["top_logprobs"][1]["token"];
  EXPECT_EQ(plain["token"], likeliest);
  const json tokens = Post("/tokenize", {{"content", likeliest}}).json()["tokens"];
  ASSERT_EQ(tokens.size(), 1u);
  const std::string id = std::to_string(tokens[0].get<int>());
  for (const json& biases : {json{{id, -100}}, json::array({{tokens[0], -100}}),
                             json::array({{tokens[0], false}}), json::array({{likeliest, -100}})}) {
    EXPECT_EQ(first(biases)["token"], second) << biases.dump();
  }
  const int vocab_size = model_->shape().vocab_size;
  for (const json& biases :
       {json{{std::to_string(vocab_size), 1}}, json::array({{vocab_size, 1}})}) {
    const ClientAnswer refused = Chat(ServerTest::Chat(1, {{"logit_bias", biases}}));
    EXPECT_EQ(refused.status, 400);
    EXPECT_EQ(refused.json()["error"]["param"], "logit_bias") << refused.body;
  }
  EXPECT_EQ(Chat(ServerTest::Chat(
                     1, {{"max_tokens", 1}, {"logit_bias", {{std::to_string(vocab_size - 1), 1}}}}))
                .status,
            200);
}

TEST_F(ApiTest, ASeedThatIsDrawnIsToldAndGivesTheSameAnswer) {
  const json more = {{"seed", -1}, {"temperature", 2}, {"top_k", 0},
                     {"top_p", 1}, {"min_p", 0},       {"max_tokens", 20}};
  const json one = Chat(ServerTest::Chat(1, more)).json();
  const json other = Chat(ServerTest::Chat(1, more)).json();
  ASSERT_TRUE(one["ebb"].contains("seed")) << one.dump();
  EXPECT_NE(one["ebb"]["seed"], other["ebb"]["seed"]);
  json again = ServerTest::Chat(1, more);
  again["seed"] = one["ebb"]["seed"];
  const json replayed = Chat(again).json();
  EXPECT_EQ(replayed["choices"][0]["message"], one["choices"][0]["message"]);
  EXPECT_FALSE(replayed["ebb"].contains("seed"));
}

TEST_F(ApiTest, LogprobsAreThoseOfTheTextThatIsTold) {
  json body = {{"prompt", Question(1) + " "}, {"max_tokens", 40}, {"logprobs", 2}};
  const std::string whole_text = Post("/v1/completions", body).json()["choices"][0]["text"];
  // The stop string is in the middle of the answer.
  body["stop"] = whole_text.substr(whole_text.size() / 2, 6);
  const json whole = Post("/v1/completions", body).json()["choices"][0];
  EXPECT_EQ(whole["finish_reason"], "stop");
  body["stream"] = true;
  json tokens = json::array(), offsets = json::array();
  for (const std::string& event : Post("/v1/completions", body).events()) {
    if (event == "[DONE]") continue;
    const json logprobs = json::parse(event)["choices"][0]["logprobs"];
    if (logprobs.is_null()) continue;
    for (const json& token : logprobs["tokens"]) tokens.push_back(token);
    for (const json& offset : logprobs["text_offset"]) offsets.push_back(offset);
  }
  EXPECT_EQ(tokens, whole["logprobs"]["tokens"]);
  EXPECT_EQ(offsets, whole["logprobs"]["text_offset"]);
  const std::string text = whole["text"];
  ASSERT_GT(tokens.size(), 0u);
  for (size_t i = 0; i < tokens.size(); ++i) {
    ASSERT_LT(offsets[i], text.size());
    // The last token may hold the first bytes of the stop string.
    const std::string rest = text.substr(offsets[i]);
    const std::string token = tokens[i];
    EXPECT_TRUE(rest.starts_with(token) || (i + 1 == tokens.size() && token.starts_with(rest)));
  }
}

TEST_F(ApiTest, AnAnswerEndsAtTokensAndNotBeforeItsLeastLength) {
  const json chat = Chat(ServerTest::Chat(1, {{"logprobs", true}})).json();
  const json& content = chat["choices"][0]["logprobs"]["content"];
  const std::string text = content[5]["token"];
  const int id = Post("/tokenize", {{"content", text}}).json()["tokens"][0];
  size_t first = 0;
  while (content[first]["token"] != text) ++first;
  const json stopped = Chat(ServerTest::Chat(1, {{"stop_token_ids", {id}}})).json();
  EXPECT_EQ(stopped["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(stopped["usage"]["completion_tokens"], first);
  const json message =
      Post("/v1/messages", ServerTest::Chat(1, {{"stop_token_ids", {id}}, {"max_tokens", 1000}}))
          .json();
  EXPECT_EQ(message["stop_reason"], "end_turn");
  EXPECT_EQ(message["usage"]["output_tokens"], first);
  const json response =
      Post("/v1/responses", {{"input", Question(1)}, {"stop_token_ids", {id}}}).json();
  EXPECT_EQ(response["usage"]["output_tokens"], first);
  const int whole = chat["usage"]["completion_tokens"];
  const json longer = Chat(ServerTest::Chat(1, {{"min_tokens", whole + 3}})).json();
  EXPECT_GE(longer["usage"]["completion_tokens"], whole + 3);
  EXPECT_EQ(Chat(ServerTest::Chat(1, {{"stop_token_ids", {1 << 30}}})).json()["error"]["param"],
            "stop_token_ids");
}

TEST_F(ApiTest, AnAnswerThatWasBegunGoesOn) {
  const json whole = Chat(ServerTest::Chat(1)).json()["choices"][0]["message"];
  const std::string content = whole["content"];
  const std::string begun = content.substr(0, content.find(' ', content.size() / 2));
  json body = ServerTest::Chat(1);
  body["messages"].push_back({{"role", "assistant"},
                              {"content", begun},
                              {"reasoning_content", whole["reasoning_content"]}});
  const json rest = Chat(body).json()["choices"][0]["message"];
  EXPECT_EQ(begun + rest["content"].get<std::string>(), content);
  EXPECT_FALSE(rest.contains("reasoning_content"));
  // Continues the message as vLLM's and Anthropic's APIs ask for it.
  body["continue_final_message"] = true;
  body["add_generation_prompt"] = false;
  EXPECT_EQ(Chat(body).json()["choices"][0]["message"], rest);
  body["stream"] = true;
  EXPECT_EQ(Put(Chat(body).events())[0].content, rest["content"]);
  const json blocks = {{{"type", "thinking"}, {"thinking", whole["reasoning_content"]}},
                       {{"type", "text"}, {"text", begun}}};
  const json messages = {{{"role", "user"}, {"content", Question(1)}},
                         {{"role", "assistant"}, {"content", blocks}}};
  const json message = Post("/v1/messages", {{"messages", messages}, {"max_tokens", 100}}).json();
  ASSERT_EQ(message["content"].size(), 1u) << message.dump();
  EXPECT_EQ(message["content"][0]["text"], rest["content"]);
  const json counted = Post("/v1/messages/count_tokens", {{"messages", messages}}).json();
  EXPECT_EQ(counted["input_tokens"], message["usage"]["input_tokens"].get<int>() +
                                         message["usage"]["cache_read_input_tokens"].get<int>());
  const std::string prompt =
      Post("/apply-template", {{"messages", body["messages"]}}).json()["prompt"];
  EXPECT_TRUE(prompt.ends_with(begun)) << prompt;
}

TEST_F(ApiTest, AThoughtThatWasBegunGoesOn) {
  const json whole = Chat(ServerTest::Chat(1)).json()["choices"][0]["message"];
  const std::string thought = whole["reasoning_content"];
  const std::string begun = thought.substr(0, thought.find(' ', thought.size() / 2));
  json body = ServerTest::Chat(1);
  body["messages"].push_back(
      {{"role", "assistant"}, {"content", ""}, {"reasoning_content", begun}});
  const json rest = Chat(body).json()["choices"][0]["message"];
  EXPECT_EQ(begun + " " + rest["reasoning_content"].get<std::string>(), thought);
  EXPECT_EQ(rest["content"], whole["content"]);
}

TEST_F(ApiTest, ToolsAreLeftOutWhereTheTemplateHasNoPlaceForThem) {
  const json tool = {{"type", "function"}, {"function", {{"name", "f"}}}};
  const ClientAnswer answer = Chat(ServerTest::Chat(1, {{"tools", {tool}}, {"max_tokens", 1}}));
  EXPECT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(answer.headers.at("x-ebb-ignored"), "tools");
  const json plain = Post("/apply-template", ServerTest::Chat(1)).json();
  EXPECT_EQ(Post("/apply-template", ServerTest::Chat(1, {{"tools", {tool}}})).json(), plain);
  const ClientAnswer needed =
      Chat(ServerTest::Chat(1, {{"tools", {tool}}, {"tool_choice", "required"}}));
  EXPECT_EQ(needed.status, 400);
  EXPECT_EQ(needed.json()["error"]["param"], "tools");
}

TEST_F(ApiTest, FieldsWithoutEffectAreNamedInAHeader) {
  const ClientAnswer answer =
      Chat(ServerTest::Chat(1, {{"max_tokens", 1}, {"user", "u"}, {"color\n", 1}}));
  ASSERT_EQ(answer.status, 200);
  EXPECT_EQ(answer.headers.at("x-ebb-ignored"), "color?, user");
}

TEST_F(ApiTest, NothingInABodyBringsItDown) {
  const std::string chat = ServerTest::Chat(1).dump();
  std::vector<std::string> bodies = {
      "",
      "{",
      "[]",
      "null",
      "{}",
      "\"\\ud800\"",
      "{\"messages\": \"\xff\xfe\"}",
      "{\"messages\": [{\"role\": \"user\", \"content\": \"\xc3\"}]}",
      R"({"messages": {"role": "user"}})",
      R"({"messages": [null]})",
      R"({"messages": [[[[]]]]})",
      R"({"prompt": {"a": 1}})",
      R"({"prompt": [1e400]})",
      R"({"prompt": [-5, 99999999999]})",
      "{\"messages\": " + std::string(100'000, '[') + "}"};
  for (size_t i = 0; i < chat.size(); i += 7) bodies.push_back(chat.substr(0, i));
  for (const char* path :
       {"/v1/chat/completions", "/v1/completions", "/tokenize", "/detokenize", "/apply-template"}) {
    Client client(port());
    for (const std::string& body : bodies) {
      const ClientAnswer answer = client.Post(path, body);
      EXPECT_EQ(answer.status, 400) << path << " " << body.substr(0, 200) << " " << answer.body;
    }
  }
  EXPECT_EQ(Get("/health").status, 200);
}

TEST_F(ApiTest, PoliciesAndLosslessAnswersAreAskedForByRequest) {
  json body = ServerTest::Chat(1, {{"max_tokens", 200}});
  const json full = Chat(body).json();
  body["ebb"]["lossless"] = true;
  const json lossless = Chat(body).json();
  EXPECT_EQ(lossless["choices"], full["choices"]);
  EXPECT_EQ(lossless["ebb"]["logits_hash"], full["ebb"]["logits_hash"]);
  body = ServerTest::Chat(1, {{"max_tokens", 200}});
  body["ebb"]["policy"] = "random";
  body["ebb"]["budget"] = "10%";
  const json thin = Chat(body).json();
  EXPECT_NE(thin["ebb"]["logits_hash"], full["ebb"]["logits_hash"]);
}

TEST_F(ApiTest, ADeadlineEndsARequest) {
  json body = ServerTest::Chat(1, {{"ignore_eos", true}});
  body["ebb"]["deadline_ms"] = 1;
  const ClientAnswer answer = Chat(body);
  EXPECT_EQ(answer.status, 503) << answer.body;
  EXPECT_EQ(answer.json()["error"]["code"], "deadline_exceeded");
  EXPECT_EQ(answer.json()["error"]["message"], "the deadline of the request is exceeded");
  // The header stops clients, which retry 503 by themselves.
  EXPECT_EQ(answer.headers.at("x-should-retry"), "false");
}

TEST_F(ApiTest, AnswersThatWouldBeManyTimesTheirRequestAreRefused) {
  const json body = {{"content", std::string(300000, '1')}, {"with_pieces", true}};
  const ClientAnswer answer = Client(port()).Post("/tokenize", body);
  EXPECT_EQ(answer.status, 400);
  EXPECT_EQ(answer.json()["error"]["param"], "content");
  json pairs;
  for (int i = 0; i < 17; ++i) pairs[std::to_string(i)] = "x";
  for (const json& metadata : {pairs, json{{"a", std::string(600, 'x')}}, json{{"a", 5}}}) {
    const ClientAnswer refused = Client(port()).Post(
        "/v1/responses", {{"input", "tide"}, {"max_output_tokens", 2}, {"metadata", metadata}});
    EXPECT_EQ(refused.status, 400) << refused.body;
    EXPECT_EQ(refused.json()["error"]["param"], "metadata");
  }
}

TEST_F(ApiTest, WhatNeverFitsIntoTheQueueIsNotToldToComeBack) {
  json prompts = json::array();
  for (int i = 0; i < 16; ++i) prompts.push_back("tide");
  const ClientAnswer answer =
      Client(port()).Post("/v1/completions", {{"prompt", prompts}, {"n", 5}, {"max_tokens", 1}});
  EXPECT_EQ(answer.status, 400) << answer.body;
  EXPECT_EQ(answer.json()["error"]["param"], "n");
  EXPECT_FALSE(answer.headers.contains("retry-after"));
}

std::string Times(int count, const std::string& text) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

std::string Nested(const std::string& begin, int depth) {
  return Times(depth, begin) + "{}" + std::string(depth, '}');
}

// Checks grammars that once stopped the server or kept it busy forever.
TEST_F(ApiTest, GrammarsAndSchemasThatTakeForEverAreRefused) {
  std::string doubled = "root ::= a0\n";
  for (int i = 0; i < 60; ++i) doubled += fmt::format("a{0} ::= a{1} | a{1}\n", i, i + 1);
  json products;
  for (int i = 0; i < 30; ++i) {
    const auto one = [i](const char* name) {
      return json{{"properties", {{name + std::to_string(i), {{"type", "null"}}}}}};
    };
    products["allOf"].push_back({{"anyOf", {one("a"), one("b")}}});
  }
  const auto schema = [](const json& of) {
    return json{{"type", "json_schema"}, {"json_schema", {{"name", "x"}, {"schema", of}}}};
  };
  const json long_name = {{"type", "object"},
                          {"properties", {{std::string(200000, '_'), json::object()}}}};
  for (const json& more :
       {json{{"grammar", "root ::= " + std::string(100000, '(')}},
        json{{"grammar", "root ::= " + Times(1000, ".{2000} ")}},
        json{{"guided_json", Nested("{\"not\":", 100000)}},
        json{{"structured_outputs", {{"json", Nested("{\"properties\":", 100000)}}}},
        json{{"response_format", schema(products)}},
        json{{"response_format", schema(long_name)}}}) {
    json body = ServerTest::Chat(1, {{"max_tokens", 2}});
    body.update(more);
    const ClientAnswer answer = Chat(body);
    EXPECT_EQ(answer.status, 400) << answer.body.substr(0, 300);
  }
  // Nested lists of types, and a reference to itself, once took forever and are accepted.
  json nested = {{"type", "string"}};
  for (int i = 0; i < 25; ++i) nested = {{"type", {"array", "array"}}, {"items", nested}};
  const json itself = {{"allOf", {{{"$ref", "#/a"}}}}, {"a", {{"$ref", "#/a"}}}};
  const json doubled_well = {{"max_tokens", 2}, {"grammar", doubled + "a60 ::= \"x\""}};
  EXPECT_EQ(Chat(ServerTest::Chat(1, doubled_well)).status, 200);
  for (const json& well : {nested, itself}) {
    const json more = {{"max_tokens", 2}, {"response_format", schema(well)}};
    EXPECT_EQ(Chat(ServerTest::Chat(1, more)).status, 200) << well.dump().substr(0, 100);
  }
}

}  // namespace
}  // namespace ebb::server

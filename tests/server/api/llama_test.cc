// Tests llama-server's API over HTTP: /completion, /infill, /props, /slots and what they share with
// OpenAI's API.
#include <memory>
#include <string>
#include <vector>

#include <gguf.h>

#include "tests/server/server_fixture.h"
#include "tests/support/gguf_edit.h"
#include "tests/support/random_gguf.h"
#include "tests/support/temp_folder.h"

namespace ebb::server {
namespace {

using nlohmann::json;
using testing::Contains;
using testing::HasSubstr;

class LlamaTest : public ServerTest {
 protected:
  ClientAnswer Ask(const json& body, const std::string& path = "/completion") {
    return Client(port()).Post(path, body);
  }
  static json Body(const json& more = json::object()) {
    json body = {{"prompt", "Question: First the tide"}, {"n_predict", 12}, {"ignore_eos", true}};
    body.update(more);
    return body;
  }
  static std::vector<json> Events(const ClientAnswer& answer) {
    std::vector<json> events;
    for (const std::string& event : answer.events()) events.push_back(json::parse(event));
    return events;
  }
};

TEST_F(LlamaTest, ACompletionIsThatOfOpenAIsInterfaceToTheBit) {
  Start();
  const json more = {{"ebb", {{"logits_hash", true}}}, {"return_tokens", true}};
  const ClientAnswer answer = Ask(Body(more));
  ASSERT_EQ(answer.status, 200) << answer.body;
  const json own = answer.json();
  json as_openai = Body({{"ebb", {{"logits_hash", true}}}});
  const json openai = Client(port()).Post("/v1/completions", as_openai).json();
  EXPECT_EQ(own["content"], openai["choices"][0]["text"]);
  EXPECT_EQ(own["ebb"]["logits_hash"], openai["ebb"]["logits_hash"]);
  EXPECT_EQ(own["tokens_predicted"], 12);
  EXPECT_EQ(own["tokens"].size(), 12u);
  EXPECT_EQ(own["stop_type"], "limit");
  EXPECT_EQ(own["generation_settings"]["n_predict"], 12);
  EXPECT_THAT(own["prompt"].get<std::string>(), HasSubstr("First the tide"));
  const json text = Client(port()).Post("/detokenize", json{{"tokens", own["tokens"]}}).json();
  EXPECT_EQ(text["content"], own["content"]);
}

TEST_F(LlamaTest, AStreamSaysWhatAWholeAnswerSays) {
  Start();
  const json more = {{"n_probs", 3}};
  const json whole = Ask(Body(more)).json();
  json streamed = Body(more);
  streamed["stream"] = true;
  const std::vector<json> events = Events(Ask(streamed));
  ASSERT_EQ(events.size(), 13u);
  std::string content;
  json probabilities = json::array();
  for (const json& event : events) {
    content += event["content"];
    EXPECT_EQ(event["stop"], &event == &events.back());
    if (event["stop"]) continue;
    EXPECT_EQ(event["tokens"].size(), 1u);
    ASSERT_EQ(event["completion_probabilities"].size(), 1u);
    probabilities.push_back(event["completion_probabilities"][0]);
  }
  EXPECT_EQ(content, whole["content"]);
  EXPECT_EQ(probabilities, whole["completion_probabilities"]);
  EXPECT_EQ(probabilities[0]["top_logprobs"].size(), 3u);
  // Sampling is greedy, so the likeliest token was chosen.
  EXPECT_EQ(probabilities[0]["id"], probabilities[0]["top_logprobs"][0]["id"]);
  EXPECT_EQ(events.back()["tokens_evaluated"], events.front()["tokens_evaluated"]);
}

TEST_F(LlamaTest, SharesOfTheSamplerAddUpToOne) {
  Start();
  const json answer = Ask(Body({{"n_probs", 100},
                                {"post_sampling_probs", true},
                                {"temperature", 1},
                                {"top_k", 5},
                                {"min_p", 0},
                                {"top_p", 1}}))
                          .json();
  for (const json& token : answer["completion_probabilities"]) {
    ASSERT_EQ(token["top_probs"].size(), 5u);
    double total = 0;
    bool has_drawn = false;
    for (const json& one : token["top_probs"]) {
      total += one["prob"].get<double>();
      has_drawn = has_drawn || (one["id"] == token["id"] && one["prob"] == token["prob"]);
    }
    EXPECT_NEAR(total, 1, 1e-6);
    EXPECT_TRUE(has_drawn);
  }
}

TEST_F(LlamaTest, PromptsOfAllFormsAreAnsweredInTheirOrder) {
  Start();
  const std::string text = "Question: First the tide";
  const json tokens =
      Client(port()).Post("/tokenize", json{{"content", text}, {"add_special", true}}).json();
  const json one = Ask(Body()).json();
  const json several =
      Ask(Body({{"prompt",
                 json::array({tokens["tokens"], "Another", json{{"prompt_string", text}}})}}))
          .json();
  ASSERT_EQ(several.size(), 3u);
  EXPECT_EQ(several[0]["content"], one["content"]);
  EXPECT_EQ(several[2]["content"], one["content"]);
  EXPECT_EQ(several[2]["prompt"], one["prompt"]);
  EXPECT_NE(several[1]["prompt"], one["prompt"]);
}

TEST_F(LlamaTest, APromptIsReadWithoutAnAnswer) {
  ServerOptions options = Options();
  options.driver.prefix_cache_bytes = size_t{1} << 26;
  Start(options);
  const std::string words = Question(1);
  const json read = Ask(Body({{"prompt", words}, {"n_predict", 0}})).json();
  EXPECT_EQ(read["tokens_predicted"], 0);
  EXPECT_EQ(read["content"], "");
  EXPECT_EQ(read["stop_type"], "limit");
  const json next = Ask(Body({{"prompt", words}, {"n_predict", 1}})).json();
  EXPECT_GT(next["tokens_cached"], 0);
}

TEST_F(LlamaTest, ProgressOfAPromptIsTold) {
  ServerOptions options = Options();
  options.defaults.engine.prefill_chunk = 16;
  Start(options);
  std::string words;
  for (int i = 0; i < 60; ++i) words += "tide ";
  const auto check = [](const std::vector<json>& events) {
    std::vector<int> processed;
    for (const json& event : events) {
      if (!event.contains("prompt_progress")) continue;
      const json& progress = event["prompt_progress"];
      processed.push_back(progress["processed"]);
      EXPECT_EQ(progress["total"], events.front()["prompt_progress"]["total"]);
    }
    ASSERT_GT(processed.size(), 2u);
    EXPECT_EQ(processed.front(), events.front()["prompt_progress"]["cache"]);
    EXPECT_EQ(processed.back(), events.front()["prompt_progress"]["total"]);
    EXPECT_TRUE(std::ranges::is_sorted(processed));
  };
  check(Events(Ask(Body({{"prompt", words}, {"stream", true}, {"return_progress", true}}))));
  std::vector<std::string> chat =
      Client(port())
          .Post("/v1/chat/completions", json{{"messages", {{{"role", "user"}, {"content", words}}}},
                                             {"max_tokens", 2},
                                             {"stream", true},
                                             {"return_progress", true}})
          .events();
  ASSERT_GT(chat.size(), 3u);
  chat.pop_back();           // [DONE]
  chat.erase(chat.begin());  // the role
  std::vector<json> events;
  for (const std::string& event : chat) events.push_back(json::parse(event));
  check(events);
}

TEST_F(LlamaTest, ErrorsAreInItsForm) {
  ServerOptions options = Options();
  options.defaults.session.context = 64;
  Start(options);
  std::string words;
  for (int i = 0; i < 200; ++i) words += "tide ";
  const ClientAnswer too_long = Ask(Body({{"prompt", words}}));
  EXPECT_EQ(too_long.status, 400);
  EXPECT_EQ(too_long.json()["error"]["type"], "exceed_context_size_error");
  EXPECT_THAT(too_long.json()["error"]["message"].get<std::string>(),
              HasSubstr("exceeds the available context size"));
  const json wrong = Ask(Body({{"n_predict", "many"}})).json();
  EXPECT_EQ(wrong["error"]["code"], 400);
  EXPECT_EQ(wrong["error"]["param"], "n_predict");
  EXPECT_EQ(Client(port()).Get("/completion").json()["error"]["code"], 405);
  const ClientAnswer full = Ask(Body({{"n_predict", -1}}));
  EXPECT_EQ(full.json()["truncated"], true) << full.body;
}

TEST_F(LlamaTest, PropsAndSlotsTellWhatTheServerIs) {
  ServerOptions options = Options();
  options.driver.most_running = 2;
  options.defaults.session.context = 512;
  options.defaults.sampling.seed = 42;
  options.model_file = "pebble.gguf";
  Start(options);
  const json props = Client(port()).Get("/props").json();
  EXPECT_EQ(props["total_slots"], 2);
  EXPECT_EQ(props["model_path"], "pebble.gguf");
  EXPECT_EQ(props["default_generation_settings"]["n_ctx"], 512);
  EXPECT_EQ(props["default_generation_settings"]["params"]["seed"], 42);
  EXPECT_THAT(props["chat_template"].get<std::string>(), HasSubstr("messages"));
  EXPECT_EQ(props["ebb"]["thinks"], true);
  EXPECT_EQ(props["ebb"]["sessions"], false);
  EXPECT_EQ(props["ebb"]["policy"], "full");
  EXPECT_TRUE(props["ebb"]["tiers"].is_null());
  EXPECT_GT(props["ebb"]["policies"].size(), 10u);
  Client streaming(port());
  streaming.Send(Client::Request("POST", "/completion",
                                 Body({{"n_predict", -1}, {"stream", true}}).dump(),
                                 "Content-Type: application/json\r\n"));
  Await([](const Figures& figures) { return figures.decoding == 1; });
  const json slots = Client(port()).Get("/slots").json();
  ASSERT_EQ(slots.size(), 2u);
  EXPECT_EQ(slots[0]["n_ctx"], 512);
  EXPECT_EQ(slots[0]["is_processing"], true);
  EXPECT_EQ(slots[1]["is_processing"], false);
}

TEST_F(LlamaTest, TokensOfAChatAreCounted) {
  Start();
  const json body = {{"messages", {{{"role", "user"}, {"content", Question(1)}}}}};
  const json counted = Client(port()).Post("/v1/chat/completions/input_tokens", body).json();
  const json chat =
      Client(port()).Post("/v1/chat/completions", Chat(1, {{"max_tokens", 1}})).json();
  EXPECT_EQ(counted["input_tokens"], chat["usage"]["prompt_tokens"]);
}

TEST_F(LlamaTest, AnyNameOfAModelIsTakenWhereTheServerIsToldTo) {
  Start();
  EXPECT_EQ(Ask(Body({{"model", "gpt-3.5-turbo"}})).status, 404);
  ServerOptions options = Options();
  options.defaults.takes_any_model = true;
  Start(options);
  const json answer = Ask(Body({{"model", "gpt-3.5-turbo"}})).json();
  EXPECT_EQ(answer["model"], "pebble");
}

// InfillTest has a model whose vocabulary has tokens for prefixes, suffixes and middles.
class InfillTest : public LlamaTest {
 protected:
  static constexpr Token kPrefix = 300, kSuffix = 301, kMiddle = 302, kRepository = 303,
                         kFile = 304;

  static void SetUpTestSuite() {
    const TempFolder folder;
    ASSERT_TRUE(WriteRandomGguf({.num_layers = 1}, folder.File("plain.gguf")).ok());
    auto edit = GgufEdit::Open(folder.File("plain.gguf"));
    ASSERT_TRUE(edit.ok());
    const std::pair<const char*, Token> marks[] = {{"tokenizer.ggml.fim_pre_token_id", kPrefix},
                                                   {"tokenizer.ggml.fim_suf_token_id", kSuffix},
                                                   {"tokenizer.ggml.fim_mid_token_id", kMiddle},
                                                   {"tokenizer.ggml.fim_rep_token_id", kRepository},
                                                   {"tokenizer.ggml.fim_sep_token_id", kFile}};
    for (const auto& [key, token] : marks) {
      gguf_set_val_u32(edit->metadata(), key, static_cast<uint32_t>(token));
    }
    ASSERT_TRUE(edit->Save(folder.File("infill.gguf")).ok());
    auto model = Model::Load({.path = folder.File("infill.gguf")});
    ASSERT_TRUE(model.ok()) << model.status().ToString();
    model_ = *model;
  }

  static std::vector<Token> Tokens(const std::string& text) {
    return *model_->Tokenize(text, Model::AddBos::kNo, Model::Specials::kAsText);
  }
  static std::string Text(const std::vector<std::variant<Token, std::string>>& parts) {
    std::string text;
    for (const auto& part : parts) {
      const auto* token = std::get_if<Token>(&part);
      text += token == nullptr ? std::get<std::string>(part)
                               : model_->TokenText(*token, Model::ControlTokens::kShow);
    }
    return text;
  }
};

TEST_F(InfillTest, ThePromptIsThatOfLlamaServer) {
  Start();
  const ClientAnswer answer =
      Ask({{"input_prefix", "int a"},
           {"input_suffix", "z end"},
           {"prompt", "lpha"},
           {"input_extra", {{{"filename", "b.h"}, {"text", "extra"}}, {{"text", "more"}}}},
           {"n_predict", 2}},
          "/infill");
  ASSERT_EQ(answer.status, 200) << answer.body;
  const std::string prompt = answer.json()["prompt"];
  const std::string begin = Text(
      {kRepository, "myproject\n", kFile, "b.h\nextra", kFile, "tmp\nmore", kFile, "filename\n"});
  EXPECT_EQ(prompt.substr(0, begin.size()), begin);
  const std::string end = Text({kPrefix, "int alpha", kSuffix, "z end", kMiddle});
  ASSERT_GE(prompt.size(), end.size());
  EXPECT_EQ(prompt.substr(prompt.size() - end.size()), end);
}

TEST_F(InfillTest, WhatIsFarFromTheMiddleIsLeftOutOfALongPrompt) {
  ServerOptions options = Options();
  options.defaults.session.context = 128;
  Start(options);
  const std::string prefix = std::string(500, 'p') + "Q", suffix = "R" + std::string(500, 's');
  const ClientAnswer answer = Ask({{"input_prefix", prefix},
                                   {"input_suffix", suffix},
                                   {"input_extra", {{{"text", std::string(500, 'x')}}}},
                                   {"n_predict", 16}},
                                  "/infill");
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(answer.json()["tokens_predicted"], 16);
  const std::string prompt = answer.json()["prompt"];
  EXPECT_THAT(prompt, HasSubstr("Q" + Text({kSuffix}) + "R"));
  EXPECT_THAT(prompt, testing::Not(HasSubstr("x")));
  EXPECT_GT(std::ranges::count(prompt, 'p'), std::ranges::count(prompt, 's'));
  EXPECT_GT(std::ranges::count(prompt, 's'), 10);
}

TEST_F(LlamaTest, InfillNeedsAVocabularyForIt) {
  Start();
  const ClientAnswer answer = Ask({{"input_prefix", "a"}, {"input_suffix", "b"}}, "/infill");
  EXPECT_EQ(answer.status, 501);
  EXPECT_EQ(answer.json()["error"]["type"], "not_supported_error");
}

}  // namespace
}  // namespace ebb::server

// Tests reports of a request's memory: `"ebb": {"memory": true}`.
#include <string>
#include <vector>

#include "tests/server/server_fixture.h"
#include "tests/support/child_process.h"

namespace ebb::server {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class MemoryReportTest : public ServerTest {
 protected:
  void StartWithTiers() {
    ServerOptions options = Options();
    TierSetting tiers;
    tiers.engine.t1 = T1Place::kHost;
    SetTiers(tiers, &options.defaults.engine, &options.defaults.session);
    Start(options);
  }
  static json Asking(json own, json more = json::object()) {
    own["memory"] = true;
    own["logits_hash"] = true;
    more.update({{"max_tokens", 400}, {"ignore_eos", true}, {"ebb", own}});
    return Chat(1, more);
  }
};

TEST_F(MemoryReportTest, RowsAddUpToTheFullCache) {
  StartWithTiers();
  const json answer =
      Client(port()).Post("/v1/chat/completions", Asking({{"t0", "20%"}, {"evict", "10%"}})).json();
  const json& own = answer["ebb"];
  const json& memory = own["memory"];
  const int num_prompt = answer["usage"]["prompt_tokens"];
  const int num_answer = answer["usage"]["completion_tokens"];
  ASSERT_EQ(num_answer, 400);
  EXPECT_EQ(own["prompt"].size(), static_cast<size_t>(num_prompt));
  EXPECT_EQ(own["tokens"].size(), 400u);
  // The last token has been chosen but not read.
  const int num_read = num_prompt + num_answer - 1;
  EXPECT_NEAR(memory["tokens"].get<int>(), num_read, 1);
  EXPECT_EQ(memory["tiers"].get<std::string>().size(), memory["tokens"].get<size_t>());
  const ModelShape& shape = model_->shape();
  int64_t num_rows = 0;
  for (const json& rows : memory["rows"]) num_rows += rows.get<int64_t>();
  EXPECT_EQ(num_rows % memory["tokens"].get<int64_t>(), 0);
  EXPECT_GE(num_rows / memory["tokens"].get<int64_t>(), shape.num_layers);
  for (const int tier : {0, 1, 3}) EXPECT_GT(memory["rows"][tier].get<int64_t>(), 0) << tier;
  EXPECT_EQ(memory["rows"][2], 0);
  EXPECT_LT(memory["bytes"][0].get<size_t>(), memory["full_bytes"].get<size_t>());
  for (const char tier : {'0', '1', '3'}) {
    EXPECT_NE(memory["tiers"].get<std::string>().find(tier), std::string::npos) << tier;
  }
}

TEST_F(MemoryReportTest, TheTiersThatARequestMayChangeAreInTheProps) {
  StartWithTiers();
  const json tiers = Client(port()).Get("/props").json()["ebb"]["tiers"];
  EXPECT_EQ(tiers["t0"], "50%");
  EXPECT_EQ(tiers["t1"], "host");
  EXPECT_EQ(tiers["t2"], "0%:int8");
  EXPECT_EQ(tiers["evict"], "0%");
}

TEST_F(MemoryReportTest, ATokenOfARunningRequestIsExplained) {
  StartWithTiers();
  Client asking(port());
  json body = Asking({{"t0", "20%"}, {"evict", "10%"}}, {{"stream", true}});
  body["max_tokens"] = -1;
  asking.Send(Client::Request("POST", "/v1/chat/completions", body.dump(),
                              "Content-Type: application/json\r\nX-Request-Id: mine\r\n"));
  Await([](const Figures& figures) { return figures.generated_tokens > 300; });
  Client client(port());
  const json prompt = client.Get("/v1/requests/mine/tokens/3").json();
  EXPECT_EQ(prompt["position"], 3);
  EXPECT_GT(prompt["tokens"].get<int>(), 200);
  ASSERT_FALSE(prompt["groups"].empty()) << prompt.dump();
  for (const json& group : prompt["groups"]) {
    EXPECT_EQ(group["tier"], "T0");
    EXPECT_EQ(group["why"], "protected: a token of a prompt");
  }
  // The policy moved some of the tokens after the prompt, and evicted some.
  std::string all;
  for (int position = 60; position < 160; position += 4) {
    const json one = client.Get(fmt::format("/v1/requests/mine/tokens/{}", position)).json();
    for (const json& group : one["groups"]) {
      all += fmt::format("{}: {}\n", group["tier"].get<std::string>(),
                         group["why"].get<std::string>());
    }
  }
  EXPECT_THAT(all, HasSubstr("T1: score "));
  EXPECT_THAT(all, HasSubstr("from the lowest: 1 to "));
  EXPECT_THAT(all, HasSubstr("T3: an earlier decision evicted it"));
  EXPECT_EQ(client.Get("/v1/requests/mine/tokens/100000").status, 400);
  EXPECT_EQ(client.Get("/v1/requests/mine/tokens/x").status, 400);
  EXPECT_EQ(client.Get("/v1/requests/other/tokens/3").json()["error"]["code"], "not_in_memory");
}

TEST_F(MemoryReportTest, ATokenOfASessionInMemoryIsExplained) {
  const TemporaryFolder folder;
  ServerOptions options = Options();
  options.sessions = store::StoreUrl{.kind = store::StoreUrl::Kind::kFile, .folder = folder.path()};
  options.defaults.engine.tiers = EngineTiers{.t1 = T1Place::kHost};
  options.defaults.session.policy.tiers = TierShares();
  Start(options);
  Client client(port());
  json body = Asking({{"session", "s"}});
  body["max_tokens"] = 40;
  ASSERT_EQ(client.Post("/v1/chat/completions", body).status, 200);
  const json token = client.Get("/v1/sessions/s/tokens/2").json();
  EXPECT_EQ(token["object"], "token.reasons");
  EXPECT_EQ(token["groups"][0]["why"], "protected: a token of a prompt") << token.dump();
  EXPECT_EQ(client.Get("/v1/sessions/other/tokens/2").status, 404);
  client.Post("/v1/sessions/s/park", json::object());
  EXPECT_EQ(client.Get("/v1/sessions/s/tokens/2").json()["error"]["code"], "not_in_memory");
}

TEST_F(MemoryReportTest, AskingForItChangesNoBit) {
  StartWithTiers();
  Client client(port());
  json plain = Asking({{"t0", "20%"}});
  plain["ebb"].erase("memory");
  const json without = client.Post("/v1/chat/completions", plain).json();
  const json with = client.Post("/v1/chat/completions", Asking({{"t0", "20%"}})).json();
  EXPECT_EQ(with["choices"], without["choices"]);
  EXPECT_EQ(with["ebb"]["logits_hash"], without["ebb"]["logits_hash"]);
  EXPECT_FALSE(without["ebb"].contains("memory"));
  EXPECT_FALSE(without["ebb"].contains("tokens"));
}

TEST_F(MemoryReportTest, AStreamTellsEachTokenOnceAndTheMemoryMeanwhile) {
  StartWithTiers();
  const ClientAnswer answer =
      Client(port()).Post("/v1/chat/completions", Asking({{"t0", "20%"}}, {{"stream", true}}));
  std::string told, sent, prompt;
  int num_reports = 0, num_prompts = 0;
  json last;
  for (const std::string& data : answer.events()) {
    if (data == "[DONE]") continue;
    const json event = json::parse(data);
    const json own = event.value("ebb", json::object());
    for (const json& token : own.value("tokens", json::array())) told += token["text"];
    if (own.contains("memory")) {
      ++num_reports;
      last = own["memory"];
    }
    if (own.contains("prompt")) {
      ++num_prompts;
      for (const json& text : own["prompt"]) prompt += text.get<std::string>();
    }
    const json delta = event["choices"][0]["delta"];
    sent += delta.value("reasoning_content", "") + delta.value("content", "");
  }
  EXPECT_EQ(num_prompts, 1);
  EXPECT_THAT(prompt, HasSubstr(Question(1)));
  EXPECT_GE(num_reports, 1);
  EXPECT_GE(last["tokens"].get<size_t>(), 400u);
  EXPECT_EQ(last["tiers"].get<std::string>().size(), last["tokens"].get<size_t>());
  // Removes blanks and tags, which are not part of the message.
  const auto bare = [](std::string text) {
    for (const char* tag : {"<think>", "</think>"}) {
      if (const size_t at = text.find(tag); at != std::string::npos)
        text.erase(at, std::string(tag).size());
    }
    std::erase_if(text, [](char c) { return c == ' ' || c == '\n'; });
    return text;
  };
  EXPECT_EQ(bare(told), bare(sent));
}

TEST_F(MemoryReportTest, WithoutTiersAllRowsAreInFastMemory) {
  Start();
  const json memory =
      Client(port()).Post("/v1/chat/completions", Asking(json::object())).json()["ebb"]["memory"];
  EXPECT_GT(memory["rows"][0].get<int64_t>(), 0);
  EXPECT_EQ(memory["rows"][3], 0);
  EXPECT_GE(memory["bytes"][0].get<size_t>(), memory["full_bytes"].get<size_t>());
  EXPECT_EQ(memory["tiers"].get<std::string>().find_first_not_of('0'), std::string::npos);
}

TEST_F(MemoryReportTest, OtherInterfacesNameItAsIgnored) {
  Start();
  const ClientAnswer answer =
      Client(port()).Post("/v1/messages", {{"max_tokens", 4},
                                           {"messages", {{{"role", "user"}, {"content", "1 + 1"}}}},
                                           {"ebb", {{"memory", true}}}});
  EXPECT_EQ(answer.status, 200);
  EXPECT_THAT(answer.headers.at("x-ebb-ignored"), HasSubstr("ebb.memory"));
}

}  // namespace
}  // namespace ebb::server

// Tests sessions that servers inside the test keep in a folder: turns, restarts, other servers,
// clients that disconnect, and refusals. replicas_test.cc kills processes.
#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/server/server_fixture.h"
#include "tests/support/child_process.h"
#include "tests/support/gguf_edit.h"
#include "tests/support/random_gguf.h"

namespace ebb::server {
namespace {

using nlohmann::json;
using testing::HasSubstr;

constexpr int kMostTokens = 120;

class SessionTest : public ServerTest {
 protected:
  ServerOptions Keeping() {
    ServerOptions options = Options();
    options.sessions = store::StoreUrl{.kind = store::StoreUrl::Kind::kFile, .folder = place()};
    options.keeping.limits.lease = 60;  // requests wait for one another about this long
    return options;
  }
  [[nodiscard]] std::string place() const { return folder_.path() + "/store"; }

  static json UserMessage(uint64_t number) {
    return {{"role", "user"}, {"content", Question(number)}};
  }
  static json Body(const std::string& id, const json& messages, const json& more = json::object()) {
    json body = {
        {"messages", messages}, {"max_tokens", kMostTokens}, {"ebb", {{"logits_hash", true}}}};
    body.update(more);
    body["ebb"]["session"] = id;
    return body;
  }
  ClientAnswer Ask(const json& body) { return Client(port()).Post("/v1/chat/completions", body); }
  json AskWell(const json& body) {
    const ClientAnswer answer = Ask(body);
    EXPECT_EQ(answer.status, 200) << answer.body;
    return answer.json();
  }
  ClientAnswer Do(const std::string& method, const std::string& path,
                  const std::string& body = "") {
    Client client(port());
    client.Send(Client::Request(method, path, body, "Content-Type: application/json\r\n"));
    return client.Receive();
  }
  static std::string ErrorCode(const ClientAnswer& answer) {
    return answer.json()["error"]["code"];
  }
  static std::string HashOf(const json& whole) { return whole["ebb"]["logits_hash"]; }

  // Returns the hashes after each turn of one session of the library, which reads what the server
  // must read: the end of an answer, and the next question as the template formats it there.
  static std::vector<std::string> HashesAlone(const std::vector<uint64_t>& questions,
                                              const SessionOptions& options = {},
                                              const EngineOptions& engine_options = {
                                                  .threads = 1}) {
    auto engine = Engine::Create(model_, engine_options);
    auto session = (*engine)->OpenSession(options);
    EXPECT_TRUE(session.ok()) << session.status().ToString();
    std::vector<std::string> hashes;
    std::vector<Token> lead;
    for (const uint64_t number : questions) {
      const std::string text = "Question: " + Question(number) + "<think>";
      const bool is_first = hashes.empty();
      const auto tokens = model_->Tokenize(
          (is_first ? "" : "<|end|>") + text,
          is_first ? Model::AddBos::kAsModelSays : Model::AddBos::kNo, Model::Specials::kParse);
      lead.insert(lead.end(), tokens->begin(), tokens->end());
      EXPECT_TRUE((*session)->Prefill(lead).ok());
      const ChatMessage message = {"user", Question(number)};
      const auto turn = BeginTurn(*model_, {}, {&message, 1});
      const auto sampler = SamplerFor(*turn, *model_, {.temperature = 0});
      const GenerateResult result =
          Generate(**session, **sampler, OptionsFor(*turn, {.max_tokens = kMostTokens}));
      hashes.push_back(fmt::format("{:016x}", (*session)->logits_hash()));
      lead.clear();
      const size_t end = result.answer.begin + result.answer.tokens.size();
      if ((*session)->tokens().size() < end) lead.push_back(result.answer.tokens.back());
      if (result.text.find("</think>") == std::string::npos) {
        const auto closing =
            model_->Tokenize("\n</think>\n", Model::AddBos::kNo, Model::Specials::kParse);
        lead.insert(lead.end(), closing->begin(), closing->end());
      }
    }
    return hashes;
  }
  // Appends an answer to the messages as a client keeps them.
  static void Remember(const json& whole, json* messages) {
    messages->push_back(
        {{"role", "assistant"}, {"content", whole["choices"][0]["message"]["content"]}});
  }

  TemporaryFolder folder_;
};

TEST_F(SessionTest, NoTurnFollowsAnAnswerThatTheTemplateLeavesOut) {
  const std::string path = folder_.path() + "/model.gguf";
  ASSERT_TRUE(WriteRandomGguf({.num_layers = 1, .context = 1024}, path).ok());
  auto edit = GgufEdit::Open(path);
  ASSERT_TRUE(edit.ok()) << edit.status().ToString();
  edit->SetText("tokenizer.chat_template",
                "{%- for message in messages %}{%- if message.role == 'user' %}"
                "{{- message.content }}{%- endif %}{%- endfor %}");
  ASSERT_TRUE(edit->Save(path).ok());
  const auto model = Model::Load({.path = path});
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  auto server = Server::Start(*model, Keeping());
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  server_ = *std::move(server);
  AskWell(Body("s", json::array({UserMessage(1)}), {{"max_tokens", 4}}));
  const ClientAnswer refused = Ask(Body("s", json::array({UserMessage(2)}), {{"max_tokens", 4}}));
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(refused.json()["error"]["message"],
            "messages: the chat template of the model leaves answers out, so no message can follow "
            "one");
}

TEST_F(SessionTest, TurnsStandBehindOneAnotherThoughtsAndAll) {
  Start(Keeping());
  const std::vector<std::string> alone = HashesAlone({1, 2, 3});
  // One client sends all messages each time, another one only the new messages.
  json messages = json::array();
  for (uint64_t turn = 0; turn < 3; ++turn) {
    messages.push_back(UserMessage(turn + 1));
    const json all = AskWell(Body("all", messages));
    EXPECT_EQ(HashOf(all), alone[turn]) << turn;
    EXPECT_EQ(all["ebb"]["session"]["saved"], true) << all;
    EXPECT_EQ(all["ebb"]["session"]["id"], "all");
    const int cached = all["usage"]["prompt_tokens_details"]["cached_tokens"];
    EXPECT_EQ(cached > 0, turn > 0);
    EXPECT_LT(cached, all["usage"]["prompt_tokens"].get<int>());
    Remember(all, &messages);
    const json fresh = AskWell(Body("new", json::array({UserMessage(turn + 1)})));
    EXPECT_EQ(HashOf(fresh), alone[turn]) << turn;
    EXPECT_EQ(fresh["choices"], all["choices"]);
    EXPECT_EQ(fresh["usage"], all["usage"]);
  }
}

TEST_F(SessionTest, ARestartAndAnotherServerChangeNoBit) {
  const std::vector<std::string> alone = HashesAlone({1, 2, 3, 4});
  Start(Keeping());
  EXPECT_EQ(HashOf(AskWell(Body("s", json::array({UserMessage(1)})))), alone[0]);
  server_.reset();
  Start(Keeping());
  EXPECT_EQ(HashOf(AskWell(Body("s", json::array({UserMessage(2)})))), alone[1]);
  // Both servers run; each finds that the other one has continued the session.
  const std::unique_ptr<Server> first = std::move(server_);
  Start(Keeping());
  EXPECT_EQ(HashOf(AskWell(Body("s", json::array({UserMessage(3)})))), alone[2]);
  const ClientAnswer last =
      Client(first->port()).Post("/v1/chat/completions", Body("s", json::array({UserMessage(4)})));
  EXPECT_EQ(HashOf(last.json()), alone[3]) << last.body;
}

TEST_F(SessionTest, TiersGoWithTheSession) {
  ServerOptions options = Keeping();
  options.defaults.engine.tiers =
      EngineTiers{.t0_cap_bytes = 2 << 20, .t1 = T1Place::kHost, .t2_type = CompressedType::kInt8};
  options.defaults.session.policy = {.name = "attention",
                                     .tiers = TierShares{.t2_share = 0.5, .evict_share = 0.1}};
  EngineOptions engine = {.threads = 1, .tiers = options.defaults.engine.tiers};
  ASSERT_TRUE(ShareTiers(options.defaults.session, &engine).ok());
  const auto alone = HashesAlone({1, 2, 3}, options.defaults.session, engine);
  Start(options);
  EXPECT_EQ(HashOf(AskWell(Body("s", json::array({UserMessage(1)})))), alone[0]);
  // Between requests the session is in T1.
  EXPECT_EQ(HashOf(AskWell(Body("s", json::array({UserMessage(2)})))), alone[1]);
  EXPECT_EQ(server_->figures().arenas[0].used_bytes, 0u);
  server_.reset();
  Start(options);
  EXPECT_EQ(HashOf(AskWell(Body("s", json::array({UserMessage(3)})))), alone[2]);
}

TEST_F(SessionTest, TheSameRequestAgainIsAnsweredOnce) {
  Start(Keeping());
  const json body = Body("s", json::array({UserMessage(1)}));
  const json first = AskWell(body);
  const uint64_t generated = server_->figures().generated_tokens;
  const json again = AskWell(body);
  EXPECT_EQ(again["choices"], first["choices"]);
  EXPECT_EQ(again["usage"]["completion_tokens"], first["usage"]["completion_tokens"]);
  EXPECT_EQ(HashOf(again), HashOf(first));
  EXPECT_EQ(server_->figures().generated_tokens, generated);
}

TEST_F(SessionTest, AnAnswerThatWasCutOffGoesOn) {
  Start(Keeping());
  json body = Body("s", json::array({UserMessage(1)}), {{"stream", true}});
  // The answer is long enough to be cut off in the middle.
  body["ignore_eos"] = true;
  body["max_tokens"] = 500;
  json other = body;
  other["ebb"]["session"] = "whole";
  other["stream"] = false;
  const json whole = AskWell(other);
  const uint64_t of_whole = server_->figures().generated_tokens;
  {
    Client client(port());
    client.Send(Client::Request("POST", "/v1/chat/completions", body.dump(),
                                "Content-Type: application/json\r\nConnection: close\r\n"));
    static_cast<void>(client.ReceiveSome(20'000));
  }
  body["stream"] = false;
  const json rest = AskWell(body);
  EXPECT_EQ(rest["choices"], whole["choices"]);
  EXPECT_EQ(rest["usage"]["completion_tokens"], whole["usage"]["completion_tokens"]);
  EXPECT_EQ(HashOf(rest), HashOf(whole));
  EXPECT_EQ(server_->figures().generated_tokens, 2 * of_whole);
}

TEST_F(SessionTest, AnEditedTurnIsReadInPlaceOfTheOldOne) {
  Start(Keeping());
  json messages = json::array({UserMessage(1)});
  Remember(AskWell(Body("s", messages)), &messages);
  messages.push_back(UserMessage(2));
  AskWell(Body("s", messages));
  messages.back() = UserMessage(3);
  const json edited = AskWell(Body("s", messages));
  json other = json::array({UserMessage(1)});
  Remember(AskWell(Body("other", other)), &other);
  other.push_back(UserMessage(3));
  const json straight = AskWell(Body("other", other));
  EXPECT_EQ(edited["choices"], straight["choices"]);
  EXPECT_EQ(edited["usage"], straight["usage"]);
  // A different conversation is refused and changes nothing.
  messages[1]["content"] = "something else";
  const ClientAnswer refused = Ask(Body("s", messages));
  EXPECT_EQ(refused.status, 409);
  EXPECT_EQ(ErrorCode(refused), "session_conflict");
  EXPECT_THAT(refused.body, HasSubstr("messages[1] differs"));
  EXPECT_EQ(AskWell(Body("s", json::array({UserMessage(4)})))["choices"],
            AskWell(Body("other", json::array({UserMessage(4)})))["choices"]);
}

TEST_F(SessionTest, RequestsOfOneSessionWaitForOneAnother) {
  Start(Keeping());
  std::vector<std::thread> clients;
  std::atomic<int> answered = 0;
  for (uint64_t i = 1; i <= 3; ++i) {
    clients.emplace_back([&, i] {
      const ClientAnswer answer = Ask(Body("s", json::array({UserMessage(i)})));
      if (answer.status == 200) ++answered;
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(answered, 3);
  // No tokens were lost: there are three questions, three thoughts and three answers.
  const json session = Do("GET", "/v1/sessions/s").json();
  EXPECT_GT(session["tokens"], 3 * kMostTokens / 2);
}

TEST_F(SessionTest, SessionsAreListedCopiedParkedAndDeleted) {
  Start(Keeping());
  EXPECT_EQ(Do("GET", "/v1/sessions").json()["data"].size(), 0u);
  const json first = AskWell(Body("a", json::array({UserMessage(1)})));
  const json shown = Do("GET", "/v1/sessions/a").json();
  EXPECT_EQ(shown["id"], "a");
  EXPECT_EQ(shown["tokens"], first["ebb"]["session"]["tokens"]);
  EXPECT_EQ(shown["in_progress"], false);
  EXPECT_GT(shown["bytes"], 0);
  ClientAnswer answer = Do("GET", "/v1/sessions/a/messages");
  EXPECT_EQ(answer.status, 200);
  const json messages = answer.json()["data"];
  ASSERT_GE(messages.size(), 2u);
  EXPECT_EQ(messages.front()["role"], "user");
  EXPECT_EQ(messages.back()["role"], "assistant");
  EXPECT_FALSE(messages.back()["reasoning_content"].get<std::string>().empty());
  EXPECT_EQ(Do("POST", "/v1/sessions/a/messages", "{}").status, 405);
  EXPECT_EQ(Do("GET", "/v1/sessions/none/messages").status, 404);
  answer = Do("POST", "/v1/sessions/a/fork", R"({"id":"b"})");
  EXPECT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(answer.json()["id"], "b");
  answer = Do("POST", "/v1/sessions/a/fork", R"({"id":"b"})");
  EXPECT_EQ(answer.status, 409);
  EXPECT_EQ(ErrorCode(answer), "session_exists");
  EXPECT_EQ(Do("POST", "/v1/sessions/a/fork", R"({"id":"../x"})").status, 400);
  EXPECT_EQ(Do("POST", "/v1/sessions/a/fork", "{}").status, 400);
  EXPECT_EQ(Do("POST", "/v1/sessions/none/fork", R"({"id":"c"})").status, 404);
  const json list = Do("GET", "/v1/sessions").json();
  ASSERT_EQ(list["data"].size(), 2u);
  EXPECT_EQ(list["data"][0]["id"], "a");
  EXPECT_EQ(Do("POST", "/v1/sessions/a/park").status, 200);
  // Both sessions continue independently, with the same bits.
  const json of_a = AskWell(Body("a", json::array({UserMessage(2)})));
  const json of_b = AskWell(Body("b", json::array({UserMessage(2)})));
  EXPECT_EQ(HashOf(of_a), HashOf(of_b));
  EXPECT_EQ(Do("DELETE", "/v1/sessions/a").json()["deleted"], true);
  EXPECT_EQ(Do("DELETE", "/v1/sessions/a").status, 404);
  EXPECT_EQ(Do("GET", "/v1/sessions/a").status, 404);
  EXPECT_EQ(Do("POST", "/v1/sessions/a/park").status, 404);
  answer = Do("PUT", "/v1/sessions/b");
  EXPECT_EQ(answer.status, 405);
  EXPECT_EQ(answer.headers["allow"], "GET, DELETE");
  answer = Do("POST", "/v1/sessions");
  EXPECT_EQ(answer.status, 405);
  EXPECT_EQ(answer.headers["allow"], "GET");
  EXPECT_EQ(Do("GET", "/v1/sessions/b/x").status, 404);
  // Clients may encode the colon or not.
  EXPECT_EQ(Do("POST", "/v1/sessions/b/fork", R"({"id":"x:1"})").status, 200);
  EXPECT_EQ(Do("GET", "/v1/sessions/x%3A1").json()["id"], "x:1");
  EXPECT_EQ(Do("DELETE", "/v1/sessions/x:1").status, 200);
  EXPECT_EQ(Do("GET", "/v1/sessions/b%2Fpark").status, 404);
  // The name can be used again.
  EXPECT_EQ(HashOf(AskWell(Body("a", json::array({UserMessage(1)})))), HashOf(first));
}

// Checks messages of any text, since the server searches the end of the last answer in the
// template's output.
TEST_F(SessionTest, AMessageIsReadWholeWhateverItSays) {
  Start(Keeping());
  const auto tokens_of_second_turn = [&](const std::string& id, const std::string& content) -> int {
    AskWell(Body(id, json::array({UserMessage(1)})));
    const json message = {{"role", "user"}, {"content", content}};
    return AskWell(Body(id, json::array({message})))["usage"]["prompt_tokens"];
  };
  EXPECT_EQ(tokens_of_second_turn("a", "First [[ebb-answer-7d1f]] last."),
            tokens_of_second_turn("b", "First [[ebb-answer-7d1g]] last."));
}

TEST_F(SessionTest, WhatCannotBeIsRefused) {
  Start(Keeping());
  const json messages = json::array({UserMessage(1)});
  EXPECT_EQ(ErrorCode(Ask(Body("no/id", messages))), "invalid_value");
  EXPECT_EQ(ErrorCode(Ask(Body("s", messages, {{"n", 2}}))), "unsupported");
  const ClientAnswer text = Client(port()).Post(
      "/v1/completions", json{{"prompt", "Question:"}, {"ebb", {{"session", "s"}}}});
  EXPECT_EQ(text.status, 400);
  // The header can name the session too, but not a different one.
  const json without = {{"messages", messages}, {"max_tokens", 4}};
  Client client(port());
  const std::string kHeaders = "Content-Type: application/json\r\nX-Ebb-Session: h\r\n";
  client.Send(Client::Request("POST", "/v1/chat/completions", without.dump(), kHeaders));
  EXPECT_EQ(client.Receive().json()["ebb"]["session"]["id"], "h");
  client.Send(
      Client::Request("POST", "/v1/chat/completions", Body("s", messages).dump(), kHeaders));
  EXPECT_EQ(client.Receive().status, 400);
  Start();
  const ClientAnswer none = Ask(Body("s", messages));
  EXPECT_EQ(none.status, 400);
  EXPECT_THAT(none.body, HasSubstr("--sessions"));
  EXPECT_EQ(Do("GET", "/v1/sessions").status, 501);
}

// Checks ids of conversations that clients and gateways send with each request.
TEST_F(SessionTest, AnIdOfAnotherProgramNeverRefusesARequestNorMixesConversations) {
  const auto ask = [&](const std::string& path, const json& body, const std::string& header) {
    Client client(port());
    const std::string headers = "Content-Type: application/json\r\n" +
                                (header.empty() ? "" : "X-Session-Id: " + header + "\r\n");
    client.Send(Client::Request("POST", path, body.dump(), headers));
    ClientAnswer answer = client.Receive();
    EXPECT_EQ(answer.status, 200) << path << answer.body;
    return answer;
  };
  const auto chat = [](const json& messages, const json& more = json::object()) {
    json body = {{"messages", messages}, {"max_tokens", kMostTokens}};
    body.update(more);
    return body;
  };
  const std::string kPath = "/v1/chat/completions";
  json messages = json::array({UserMessage(1)});
  const json text = {{"prompt", "Question:"}, {"max_tokens", 1}, {"n_predict", 1}};
  const json input = {{"input", Question(1)}, {"max_output_tokens", 1}};
  Start();
  for (const std::string path :
       {"/v1/completions", "/completion", "/v1/responses", "/v1/messages"}) {
    json body = path == "/v1/responses" ? input : path == "/v1/messages" ? chat(messages) : text;
    EXPECT_EQ(ask(path, body, "a").headers["x-ebb-ignored"], "X-Session-Id") << path;
    body["session_id"] = 7;
    EXPECT_EQ(ask(path, body, "").headers["x-ebb-ignored"], "session_id") << path;
  }
  EXPECT_EQ(
      ask(kPath, chat(messages), "6f1c0b5e-0000-4000-8000-000000000001").headers["x-ebb-ignored"],
      "X-Session-Id");
  Start(Keeping());
  EXPECT_EQ(ask(kPath, chat(messages), "no/id.of ours").headers["x-ebb-ignored"], "X-Session-Id");
  EXPECT_EQ(ask("/v1/completions", text, "h").headers["x-ebb-ignored"], "X-Session-Id");
  // A conversation continues in its session as long as the client sends all of it.
  ClientAnswer first = ask(kPath, chat(messages), "h");
  EXPECT_EQ(first.json()["ebb"]["session"]["id"], "h");
  EXPECT_FALSE(first.headers.contains("x-ebb-ignored"));
  Remember(first.json(), &messages);
  messages.push_back(UserMessage(2));
  const ClientAnswer second = ask(kPath, chat(messages, {{"session_id", "h"}}), "");
  EXPECT_EQ(second.json()["ebb"]["session"]["id"], "h");
  const auto stored = [&] { return Do("GET", "/v1/sessions/h/messages").json()["data"]; };
  const json before = stored();
  EXPECT_EQ(before.size(), 4u);
  // The client asks for a title, repeats its last question, edits it, or cuts off the beginning.
  const json others[] = {json::array({UserMessage(3)}), messages, json::array({messages[0]}),
                         json::array({messages[1], messages[2]})};
  for (const json& other : others) {
    ClientAnswer answer = ask(kPath, chat(other), "h");
    EXPECT_EQ(answer.headers["x-ebb-ignored"], "X-Session-Id") << other.dump();
    EXPECT_FALSE(answer.json()["ebb"].contains("session"));
    // The answer equals that to a request without the header.
    EXPECT_EQ(answer.json()["choices"], ask(kPath, chat(other), "").json()["choices"]);
  }
  EXPECT_EQ(stored(), before);
}

TEST_F(SessionTest, AnIdOfAnotherProgramDoesNotWaitForItsSession) {
  Start(Keeping());
  Client first(port());
  const json body = Body("s", json::array({UserMessage(1)}),
                         {{"stream", true}, {"ignore_eos", true}, {"max_tokens", 2000}});
  first.Send(Client::Request("POST", "/v1/chat/completions", body.dump(),
                             "Content-Type: application/json\r\n"));
  first.ReceiveSome(200);
  // The session is in use until this client disconnects, so a request that waited would not end.
  json other = {
      {"messages", json::array({UserMessage(2)})}, {"max_tokens", 1}, {"session_id", "s"}};
  const ClientAnswer answer = Ask(other);
  EXPECT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(answer.headers.at("x-ebb-ignored"), "session_id");
}

TEST_F(SessionTest, AServerSaysThatASessionWasMadeWithoutItsTiersOrWithThem) {
  Start(Keeping());
  AskWell(Body("plain", json::array({UserMessage(1)})));
  server_.reset();
  ServerOptions tiered = Keeping();
  tiered.defaults.engine.tiers =
      EngineTiers{.t1 = T1Place::kHost, .t2_type = CompressedType::kInt8};
  tiered.defaults.session.policy = {
      .name = "attention",
      .tiers = TierShares{.t0_share = 0.5, .t2_share = 0.25, .evict_share = 0.1}};
  Start(tiered);
  const ClientAnswer plain = Ask(Body("plain", json::array({UserMessage(2)})));
  EXPECT_EQ(plain.status, 409);
  EXPECT_EQ(plain.json()["error"]["message"],
            "the session was made by a server without tiers, and this one keeps rows in --t1 host "
            "--t2 25%:int8 --evict 10%: start the server without --t0, --t1, --t2 and --evict, or "
            "name another session");
  AskWell(Body("tiered", json::array({UserMessage(1)})));
  server_.reset();
  Start(Keeping());
  const ClientAnswer with_tiers = Ask(Body("tiered", json::array({UserMessage(2)})));
  EXPECT_EQ(with_tiers.status, 409);
  EXPECT_THAT(with_tiers.body, HasSubstr("made by a server with --t1 host --t2 25%:int8 --evict 10%"
                                         ", and this one has no tiers"));
}

TEST_F(SessionTest, ForeignAndDamagedSessionsAreNamedAndLeftAlone) {
  Start(Keeping());
  const json first = AskWell(Body("s", json::array({UserMessage(1)})));
  const json second = Body("s", json::array({UserMessage(2)}));
  json foreign = second;
  foreign["ebb"]["policy"] = "h2o";
  foreign["ebb"]["budget"] = "64";
  ClientAnswer answer = Ask(foreign);
  EXPECT_EQ(answer.status, 409);
  EXPECT_EQ(ErrorCode(answer), "session_mismatch");
  EXPECT_THAT(answer.body, HasSubstr("another policy"));
  server_.reset();
  std::string data;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(place())) {
    if (entry.path().extension() == ".data") data = entry.path().string();
  }
  std::fstream file(data, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(1000);
  const char byte = static_cast<char>(file.get());
  file.seekp(1000).put(static_cast<char>(byte ^ 1)).flush();
  Start(Keeping());
  answer = Ask(second);
  EXPECT_EQ(answer.status, 409);
  EXPECT_EQ(ErrorCode(answer), "session_corrupt");
  EXPECT_THAT(answer.body, HasSubstr("chunk 0"));
  // With the byte restored, the session continues: nothing was written over it.
  file.seekp(1000).put(byte).flush();
  EXPECT_EQ(HashOf(AskWell(second)), HashesAlone({1, 2})[1]);
}

TEST_F(SessionTest, AStoreThatCannotBeWrittenIsToldAndTheSessionGoesOn) {
  Start(Keeping());
  const std::vector<std::string> alone = HashesAlone({1, 2});
  AskWell(Body("s", json::array({UserMessage(1)})));
  const std::string folder = place() + "/t-";
  std::filesystem::rename(folder, folder + "-away");
  std::ofstream(folder) << "in the way";
  const ClientAnswer refused = Ask(Body("new", json::array({UserMessage(1)})));
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(ErrorCode(refused), "session_store_unavailable");
  EXPECT_NE(refused.headers.count("retry-after"), 0u);
  std::filesystem::remove(folder);
  std::filesystem::rename(folder + "-away", folder);
  EXPECT_EQ(HashOf(AskWell(Body("s", json::array({UserMessage(2)})))), alone[1]);
}

}  // namespace
}  // namespace ebb::server

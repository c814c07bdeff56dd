// Checks that with more requests than T0 holds all of them end, each with the bits of its solo run.
#include <thread>
#include <vector>

#include "tests/server/server_fixture.h"
#include "tests/support/numbers.h"

namespace ebb::server {
namespace {

using nlohmann::json;

constexpr int kPressureMostTokens = 400;

class PressureTest : public ServerTest {
 protected:
  // Returns options with a T0 of one extent: sixteen pages of 64 tokens. A request needs four or
  // five pages for its prompt and at least eight later on.
  static ServerOptions Capped(T1Place t1, uint64_t t0_bytes = 2 * kMiB) {
    ServerOptions options = Options();
    options.defaults.engine.tiers = EngineTiers{.t0_cap_bytes = t0_bytes, .t1 = t1};
    options.defaults.session.policy.tiers.emplace();
    return options;
  }
  struct Answered {
    int status = 0;
    std::string hash, thought, finish;
    int parks = 0;
  };
  // Sends all requests at once, each from a thread of its own.
  std::vector<Answered> AskAtOnce(int count) {
    std::vector<Answered> answers(count);
    std::vector<std::thread> clients;
    for (int i = 0; i < count; ++i) {
      clients.emplace_back([this, i, &answers] {
        const ClientAnswer answer = Client(port()).Post(
            "/v1/chat/completions", Chat(i, {{"max_tokens", kPressureMostTokens}}));
        answers[i].status = answer.status;
        const json whole = answer.json();
        if (answer.status != 200) {
          ADD_FAILURE() << answer.body;
          return;
        }
        answers[i].hash = whole["ebb"]["logits_hash"];
        answers[i].parks = whole["ebb"]["parks"];
        answers[i].finish = whole["choices"][0]["finish_reason"];
        answers[i].thought = whole["choices"][0]["message"]["reasoning_content"];
      });
    }
    for (std::thread& client : clients) client.join();
    return answers;
  }
  void ExpectSolo(const std::vector<Answered>& answers, const SessionOptions& session = {},
                  const EngineOptions& engine = {.threads = 1}) {
    for (size_t i = 0; i < answers.size(); ++i) {
      const Solo solo = RunAlone(i, {.max_tokens = kPressureMostTokens}, session, engine);
      EXPECT_EQ(answers[i].hash, solo.hash) << i;
      EXPECT_EQ(answers[i].thought, solo.thought) << i;
    }
  }
};

TEST_F(PressureTest, TwelveRequestsUnderACapForThreeEndAsTheyWouldAlone) {
  Start(Capped(T1Place::kHost));
  const std::vector<Answered> answers = AskAtOnce(12);
  ExpectSolo(answers);
  const Figures figures = server_->figures();
  EXPECT_GT(figures.share_changes, 0u);
  EXPECT_GT(figures.parks, 0u);
  EXPECT_EQ(figures.parks, figures.resumes);
  EXPECT_LE(figures.arenas[0].peak_bytes, 2 * kMiB);
  EXPECT_GT(figures.arenas[1].peak_bytes, 0u);
  // All memory was freed.
  EXPECT_EQ(figures.arenas[0].used_bytes, 0u);
  EXPECT_EQ(figures.arenas[0].pledged_bytes, 0u);
  EXPECT_EQ(figures.arenas[1].used_bytes, 0u);
}

TEST_F(PressureTest, AT1InAFileHoldsThemToo) {
  Start(Capped(T1Place::kFile));
  ExpectSolo(AskAtOnce(6));
}

TEST_F(PressureTest, WhatARequestLetsGoFollowsItsOwnShareAlone) {
  ServerOptions options = Capped(T1Place::kHost);
  EngineTiers tiers = *options.defaults.engine.tiers;
  tiers.t2_type = CompressedType::kInt8;
  TierShares shares = {.t2_share = 0.3, .evict_share = 0.3};
  options.defaults.engine.tiers = tiers;
  options.defaults.session.policy.tiers = shares;
  Start(options);
  const std::vector<Answered> answers = AskAtOnce(8);
  SessionOptions session;
  tiers.t0_cap_bytes = 0;
  session.policy.tiers = shares;
  ExpectSolo(answers, session, {.threads = 1, .tiers = tiers});
}

TEST_F(PressureTest, WithoutT1RequestsWaitForOneAnother) {
  ServerOptions options = Options();
  options.defaults.engine.kv_cap_bytes = 2 * kMiB;
  Start(options);
  const std::vector<Answered> answers = AskAtOnce(6);
  ExpectSolo(answers);
  EXPECT_EQ(server_->figures().parks, 0u);
  EXPECT_LE(server_->figures().arenas[0].peak_bytes, 2 * kMiB);
}

TEST_F(PressureTest, ACompressedCacheUnderACapServesRequestsAsTheyWouldBeAlone) {
  ServerOptions options = Options();
  const TierSetting spec = {.engine = {.t1 = T1Place::kNone, .t2_type = CompressedType::kInt8},
                            .shares = {.t2_rows = T2Rows::kOld}};
  constexpr uint64_t kCap = 5 * kMiB;
  SetTiers(spec, &options.defaults.engine, &options.defaults.session);
  options.defaults.engine.kv_cap_bytes = kCap - kMiB;
  Start(options);
  const ClientAnswer refused =
      Client(port()).Post("/v1/chat/completions", Chat(1, {{"max_tokens", 4000}}));
  EXPECT_EQ(refused.status, 400) << refused.body;
  EXPECT_THAT(refused.body, testing::HasSubstr("the cache cannot hold a request of this length"));
  server_.reset();
  options.defaults.engine.kv_cap_bytes = kCap;
  Start(options);
  const std::vector<Answered> answers = AskAtOnce(12);
  SessionOptions session;
  session.policy.tiers = spec.shares;
  ExpectSolo(answers, session, {.threads = 1, .tiers = spec.engine});
  const Figures figures = server_->figures();
  EXPECT_GT(figures.arenas[2].peak_bytes, 0u);
  EXPECT_LE(figures.arenas[0].peak_bytes + figures.arenas[2].peak_bytes, kCap);
}

TEST_F(PressureTest, CapsAreShownBeforeTheFirstRequest) {
  Start(Capped(T1Place::kHost));
  EXPECT_THAT(Client(port()).Get("/metrics").body,
              testing::HasSubstr("ebb_kv_cap_bytes{tier=\"T0\"} 2097152\n"));
}

TEST_F(PressureTest, WhatNeverFitsIsRefusedAtOnceWithFigures) {
  ServerOptions options = Options();
  options.defaults.engine.kv_cap_bytes = 2 * kMiB;
  Start(options);
  const ClientAnswer answer =
      Client(port()).Post("/v1/chat/completions", Chat(1, {{"max_tokens", 2000}}));
  EXPECT_EQ(answer.status, 400) << answer.body;
  EXPECT_EQ(answer.json()["error"]["code"], "request_too_large");
  EXPECT_THAT(answer.body, testing::HasSubstr("bytes of T0"));
}

TEST_F(PressureTest, AMoreUrgentRequestIsServedFirst) {
  ServerOptions options = Options();
  options.driver.most_running = 1;
  Start(options);
  auto first = std::make_unique<Client>(port());
  Client patient(port()), urgent(port());
  const json body = Chat(1, {{"max_tokens", 1500}, {"ignore_eos", true}});
  const auto send = [](Client* client, json request) {
    client->Send(Client::Request("POST", "/v1/chat/completions", request.dump(),
                                 "Content-Type: application/json\r\n"));
  };
  send(first.get(), body);
  Await([](const Figures& figures) { return figures.decoding == 1; });
  send(&patient, Chat(2, {{"max_tokens", 200}, {"ignore_eos", true}, {"priority", 1}}));
  Await([](const Figures& figures) { return figures.waiting == 1; });
  send(&urgent, Chat(3, {{"max_tokens", 200}, {"ignore_eos", true}, {"priority", -1}}));
  Await([](const Figures& figures) { return figures.waiting == 2; });
  first.reset();
  const json late = patient.Receive().json();
  const json soon = urgent.Receive().json();
  EXPECT_LT(soon["metrics"]["queue_time_ms"], late["metrics"]["queue_time_ms"]);
}

TEST_F(PressureTest, AFullQueueIsSaidWithATimeToComeBack) {
  ServerOptions options = Options();
  options.driver = {.most_waiting = 2, .most_running = 1};
  Start(options);
  const std::string request = Client::Request(
      "POST", "/v1/chat/completions", Chat(1, {{"ignore_eos", true}, {"max_tokens", 1500}}).dump(),
      "Content-Type: application/json\r\n");
  std::vector<std::unique_ptr<Client>> clients;
  for (size_t i = 0; i < 3; ++i) {
    clients.push_back(std::make_unique<Client>(port()));
    clients.back()->Send(request);
    Await([&](const Figures& f) { return f.waiting + f.reading + f.decoding == i + 1; });
  }
  Client late(port());
  late.Send(request);
  const ClientAnswer answer = late.Receive();
  EXPECT_EQ(answer.status, 503);
  EXPECT_EQ(answer.json()["error"]["code"], "queue_full");
  EXPECT_EQ(answer.json()["error"]["message"], "the queue is full: 2 requests are waiting");
  EXPECT_GE(std::stoi(answer.headers.at("retry-after")), 1);
}

TEST_F(PressureTest, CapsThatWouldLetRowsGoForOthersAreRefused) {
  ServerOptions options = Options();
  options.defaults.engine.tiers = EngineTiers{.t0_cap_bytes = 4 * kMiB, .t1 = T1Place::kNone};
  options.defaults.session.policy.tiers = TierShares{.evict_beyond_caps = true};
  const auto server = Server::Start(model_, options);
  ASSERT_FALSE(server.ok());
  EXPECT_EQ(
      server.status().Text(),
      "tiers.evict_beyond_caps: which rows are evicted would depend on other requests; give a "
      "share instead");
}

TEST_F(PressureTest, SelectiveReadingUnderACapOfAllSessionsIsRefused) {
  ServerOptions options = Capped(T1Place::kFile);
  options.defaults.session.policy.tiers->t1_read = T1Read::kSelect;
  const auto server = Server::Start(model_, options);
  ASSERT_FALSE(server.ok());
  EXPECT_EQ(server.status().Text(),
            "tiers.t1_read: reading a part of the rows in a server takes T0 as a share, such as "
            "30%, and not as a size: "
            "each session has a cache of its own for pages of T1");
}

// Uses answers long enough that some pages are not read.
TEST_F(PressureTest, SessionsThatReadSelectivelyAnswerAsTheyWouldAlone) {
  ServerOptions options = Options();
  options.defaults.engine.tiers = EngineTiers{.t1 = T1Place::kFile};
  options.defaults.session.policy.tiers =
      TierShares{.t0_share = 0.3, .t1_read = T1Read::kSelect, .t1_mass = 0.3};
  Start(options);
  const std::vector<Answered> answers = AskAtOnce(3);
  SessionOptions session;
  session.policy.tiers = options.defaults.session.policy.tiers;
  ExpectSolo(answers, session, {.threads = 1, .tiers = options.defaults.engine.tiers});
  EXPECT_GT(server_->figures().selection.rows_unread, 0);
  EXPECT_GT(server_->figures().selection.pages_read, 0);
  EXPECT_GT(server_->figures().selection.num_samples, 0);
  EXPECT_GT(server_->figures().selection.sampled_unread_mass, 0);
  EXPECT_EQ(server_->figures().guesses["lookup"].drafted, 0u);
  // A lossless request drafts with selective reading, and has the bits of the full cache.
  const ClientAnswer lossless = Client(port()).Post(
      "/v1/chat/completions", Chat(0, {{"max_tokens", kPressureMostTokens},
                                       {"ebb", {{"lossless", true}, {"logits_hash", true}}}}));
  ASSERT_EQ(lossless.status, 200) << lossless.body;
  EXPECT_EQ(lossless.json()["ebb"]["logits_hash"],
            RunAlone(0, {.max_tokens = kPressureMostTokens}).hash);
  EXPECT_GT(server_->figures().guesses["lookup"].drafted, 0u);
  EXPECT_LE(server_->figures().guesses["lookup"].accepted, server_->figures().guesses["lookup"].drafted);
}

}  // namespace
}  // namespace ebb::server

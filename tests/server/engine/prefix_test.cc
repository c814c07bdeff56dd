// Checks that common prefixes of prompts are read once and that this does not change answers: each
// has the bits of its solo run.
#include <random>
#include <thread>
#include <vector>

#include "tests/server/server_fixture.h"
#include "tests/support/numbers.h"

namespace ebb::server {
namespace {

using nlohmann::json;

class PrefixTest : public ServerTest {
 protected:
  static ServerOptions Cached(uint64_t bytes = 64 * kMiB) {
    ServerOptions options = Options();
    options.driver.prefix_cache_bytes = bytes;
    return options;
  }
  json Ask(const json& body) {
    const ClientAnswer answer = Client(port()).Post("/v1/chat/completions", body);
    EXPECT_EQ(answer.status, 200) << answer.body;
    return answer.json();
  }
  static int CachedTokens(const json& answer) {
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"];
  }
  // Returns a chat about problem `number`, with more members in the object `ebb`.
  static json Short(uint64_t number, const json& own = json::object()) {
    json body = Chat(number, {{"max_tokens", 60}});
    body["ebb"].update(own);
    return body;
  }
  std::string SoloHash(uint64_t number, const SessionOptions& session = {},
                       const EngineOptions& engine = {.threads = 1}) {
    return RunAlone(number, {.max_tokens = 60}, session, engine).hash;
  }
};

TEST_F(PrefixTest, AskedTwiceAPromptIsReadOnceAndAnsweredAlike) {
  Start(Cached());
  const json first = Ask(Short(1)), second = Ask(Short(1));
  EXPECT_EQ(CachedTokens(first), 0);
  const int prompt = second["usage"]["prompt_tokens"];
  // At least two tokens of a prompt are read, so the cached prefix ends two tokens early.
  EXPECT_EQ(CachedTokens(second), prompt - 2);
  EXPECT_EQ(second["timings"]["cache_n"], prompt - 2);
  EXPECT_EQ(second["timings"]["prompt_n"], 2);
  EXPECT_EQ(first["ebb"]["logits_hash"], SoloHash(1));
  EXPECT_EQ(second["ebb"]["logits_hash"], SoloHash(1));
  EXPECT_EQ(first["choices"], second["choices"]);
  const std::string metrics = Client(port()).Get("/metrics").body;
  EXPECT_THAT(metrics, testing::HasSubstr(fmt::format("ebb_prefix_hits_total {}\n", prompt - 2)));
  EXPECT_THAT(metrics,
              testing::HasSubstr(fmt::format("ebb_prefix_queries_total {}\n", 2 * prompt)));
  EXPECT_THAT(metrics, testing::HasSubstr("ebb_prefixes 1\n"));
  EXPECT_GT(server_->figures().prefix_bytes, 0u);
  EXPECT_EQ(server_->figures().prompt_tokens, static_cast<uint64_t>(prompt) + 2);
}

TEST_F(PrefixTest, AConversationGoesOnFromItsLastPrompt) {
  Start(Cached());
  json body = Short(1);
  const json first = Ask(body);
  body["messages"].push_back(
      {{"role", "assistant"}, {"content", first["choices"][0]["message"]["content"]}});
  body["messages"].push_back({{"role", "user"}, {"content", Question(2)}});
  const json second = Ask(body);
  EXPECT_GE(CachedTokens(second), first["usage"]["prompt_tokens"].get<int>() / 2);
  body["cache_prompt"] = false;
  const json anew = Ask(body);
  EXPECT_EQ(CachedTokens(anew), 0);
  EXPECT_EQ(second["ebb"]["logits_hash"], anew["ebb"]["logits_hash"]);
  EXPECT_EQ(second["choices"], anew["choices"]);
}

TEST_F(PrefixTest, AnotherSaltAnotherPolicyAndWhoDoesNotWantItShareNothing) {
  Start(Cached());
  (void)Ask(Short(1));
  const auto with = [](json body, const json& more) {
    body.update(more);
    return body;
  };
  EXPECT_EQ(CachedTokens(Ask(with(Short(1), {{"cache_salt", "mine"}}))), 0);
  EXPECT_GT(CachedTokens(Ask(with(Short(1), {{"cache_salt", "mine"}}))), 0);
  EXPECT_EQ(CachedTokens(Ask(with(Short(1), {{"cache_salt", "theirs"}}))), 0);
  EXPECT_EQ(CachedTokens(Ask(with(Short(1), {{"cache_prompt", false}}))), 0);
  const json attention = {{"policy", "attention"}, {"budget", "25%"}};
  EXPECT_EQ(CachedTokens(Ask(Short(1, attention))), 0);
  EXPECT_GT(CachedTokens(Ask(Short(1, attention))), 0);
  EXPECT_GT(CachedTokens(Ask(Short(1))), 0);
  const ClientAnswer refused = Client(port()).Post(
      "/v1/chat/completions", with(Short(1), {{"cache_salt", std::string(257, 'x')}}));
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(refused.json()["error"]["param"], "cache_salt");
}

TEST_F(PrefixTest, WithoutACacheNothingIsShared) {
  Start();
  (void)Ask(Short(1));
  EXPECT_EQ(CachedTokens(Ask(Short(1))), 0);
  EXPECT_EQ(server_->figures().prefix_queries, 0u);
  EXPECT_EQ(server_->figures().arenas[0].used_bytes, 0u);
}

TEST_F(PrefixTest, ChoicesShareTheirPromptAndAreThoseOfSeparateRequests) {
  Start(Cached());
  json body = Short(3);
  body.update({{"n", 4}, {"temperature", 1.0}, {"seed", 7}});
  const json together = Ask(body);
  const int prompt = together["usage"]["prompt_tokens"];
  ASSERT_EQ(together["choices"].size(), 4u);
  // The prompt was read once, except for two tokens that each request reads for its logits.
  EXPECT_EQ(server_->figures().prompt_tokens, static_cast<uint64_t>(prompt) + 3 * 2);
  EXPECT_EQ(CachedTokens(together), 0);
  for (int i = 0; i < 4; ++i) {
    json alone = Short(3);
    alone.update({{"temperature", 1.0}, {"seed", 7 + i}, {"cache_prompt", false}});
    EXPECT_EQ(Ask(alone)["choices"][0]["message"], together["choices"][i]["message"]) << i;
  }
}

TEST_F(PrefixTest, ChoicesOfAPolicyThatLearnsFromThePromptAreForks) {
  Start(Cached());
  json body = Short(3, {{"policy", "h2o"}, {"budget", "96"}});
  body.update({{"n", 3}, {"temperature", 1.0}, {"seed", 7}});
  const json together = Ask(body);
  EXPECT_EQ(server_->figures().prompt_tokens, together["usage"]["prompt_tokens"]);
  for (int i = 0; i < 3; ++i) {
    json alone = Short(3, {{"policy", "h2o"}, {"budget", "96"}});
    alone.update({{"temperature", 1.0}, {"seed", 7 + i}});
    EXPECT_EQ(Ask(alone)["choices"][0]["message"], together["choices"][i]["message"]) << i;
  }
}

TEST_F(PrefixTest, PoliciesAndTiersGiveTheirSoloBitsFromAPrefix) {
  struct Case {
    std::string policy, budget;
    bool shares;
  };
  Start(Cached());
  for (const Case& one :
       {Case{"attention", "25%", true}, Case{"random", "30%", true}, Case{"h2o", "96", false}}) {
    const json own = {{"policy", one.policy}, {"budget", one.budget}};
    SessionOptions session;
    session.policy = {.name = one.policy, .budget = *ParseBudget(one.budget)};
    const std::string solo = SoloHash(4, session);
    for (const bool again : {false, true}) {
      const json answer = Ask(Short(4, own));
      EXPECT_EQ(answer["ebb"]["logits_hash"], solo) << one.policy;
      EXPECT_EQ(CachedTokens(answer) > 0, again && one.shares) << one.policy;
    }
  }
  // Evicts by lag_kv, which learns from prompts, unless another scorer is named.
  for (const Case& one :
       {Case{"full", "", false}, Case{"attention", "", true}, Case{"recency", "", true}}) {
    ServerOptions options = Cached();
    const TierSetting tiers = {.engine = {.t1 = T1Place::kHost, .t2_type = CompressedType::kInt8},
                               .shares = {.t0_share = 0.4, .t2_share = 0.3, .evict_share = 0.2}};
    SetTiers(tiers, &options.defaults.engine, &options.defaults.session);
    options.defaults.session.policy.name = one.policy;
    Start(options);
    const std::string solo =
        SoloHash(4, options.defaults.session, {.threads = 1, .tiers = tiers.engine});
    for (const bool again : {false, true}) {
      const json answer = Ask(Short(4));
      EXPECT_EQ(answer["ebb"]["logits_hash"], solo) << one.policy;
      EXPECT_EQ(CachedTokens(answer) > 0, again && one.shares) << one.policy;
    }
  }
}

// PrefixPressureTest sends many requests about few problems: most find their prompt while others
// run with it.
class PrefixPressureTest : public PrefixTest, public testing::WithParamInterface<T1Place> {};

TEST_P(PrefixPressureTest, UnderACapPrefixesGoFirstAndNoRequestFails) {
  ServerOptions options = Cached();
  if (GetParam() == T1Place::kNone) {
    options.defaults.engine.kv_cap_bytes = 2 * kMiB;
  } else {
    options.defaults.engine.tiers = EngineTiers{.t0_cap_bytes = 2 * kMiB, .t1 = GetParam()};
    options.defaults.session.policy.tiers.emplace();
  }
  Start(options);
  constexpr int kProblems = 6;
  std::vector<std::string> solo;
  for (int i = 0; i < kProblems; ++i) solo.push_back(RunAlone(i, {.max_tokens = 200}).hash);
  std::vector<std::thread> clients;
  for (int i = 0; i < 24; ++i) {
    clients.emplace_back([&, i] {
      const int problem = i * 5 % kProblems;
      const ClientAnswer answer =
          Client(port()).Post("/v1/chat/completions", Chat(problem, {{"max_tokens", 200}}));
      EXPECT_EQ(answer.status, 200) << answer.body;
      if (answer.status == 200) {
        EXPECT_EQ(answer.json()["ebb"]["logits_hash"], solo[problem]) << problem;
      }
    });
  }
  for (std::thread& client : clients) client.join();
  // Whether one of these requests had a hit depends on their order; of two in a row, the second
  // has.
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(Ask(Chat(0, {{"max_tokens", 200}}))["ebb"]["logits_hash"], solo[0]);
  }
  const Figures figures = server_->figures();
  EXPECT_GT(figures.prefix_hits, 0u);
  const bool has_t1 = GetParam() != T1Place::kNone;
  EXPECT_GT(has_t1 ? figures.prefixes_demoted : figures.prefixes_dropped, 0u);
  EXPECT_LE(figures.arenas[0].peak_bytes, 2 * kMiB);
  EXPECT_EQ(figures.arenas[0].pledged_bytes, 0u);
}

INSTANTIATE_TEST_SUITE_P(Places, PrefixPressureTest,
                         testing::Values(T1Place::kNone, T1Place::kHost, T1Place::kFile),
                         [](const auto& test) { return std::string(T1PlaceName(test.param)); });

// Sends prompts of random families, several at once, and gives some of them up.
TEST_F(PrefixTest, RandomRequestsOfSharedPrefixesGiveTheBitsOfReadingAnew) {
  ServerOptions options = Cached(4 * kMiB);
  options.defaults.generate.max_tokens = 30;
  Start(options);
  std::mt19937 random(5);
  const auto text = [&](int family, int length, int tail) {
    std::string words;
    for (int i = 0; i < length; ++i) words += Question(family * 50 + i) + " ";
    return words + Question(1000 + tail);
  };
  for (int round = 0; round < 12; ++round) {
    std::vector<json> bodies;
    for (int i = 0; i < 3; ++i) {
      bodies.push_back({{"prompt", text(random() % 2, random() % 8, random() % 4)},
                        {"ebb", {{"logits_hash", true}}}});
    }
    std::vector<std::string> hashes(bodies.size());
    std::vector<std::thread> clients;
    for (size_t i = 0; i < bodies.size(); ++i) {
      clients.emplace_back([&, i] {
        const ClientAnswer answer = Client(port()).Post("/v1/completions", bodies[i]);
        ASSERT_EQ(answer.status, 200) << answer.body;
        hashes[i] = answer.json()["ebb"]["logits_hash"];
      });
    }
    for (std::thread& client : clients) client.join();
    for (size_t i = 0; i < bodies.size(); ++i) {
      bodies[i]["cache_prompt"] = false;
      const ClientAnswer answer = Client(port()).Post("/v1/completions", bodies[i]);
      EXPECT_EQ(answer.json()["ebb"]["logits_hash"], hashes[i]) << bodies[i];
    }
  }
  const Figures figures = server_->figures();
  EXPECT_GT(figures.prefix_hits, figures.prefix_queries / 4);
  EXPECT_LE(figures.prefix_bytes, 4 * kMiB);
}

}  // namespace
}  // namespace ebb::server

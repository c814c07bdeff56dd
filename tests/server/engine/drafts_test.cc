// Checks that requests guess by a head in batches of the server, and end with the bits of their
// solo runs without guesses.
#include <thread>
#include <vector>

#include "tests/server/server_fixture.h"
#include "tests/support/numbers.h"

namespace ebb::server {
namespace {

using nlohmann::json;

constexpr int kDraftedTokens = 400;

// Serves pebble with its layer for multi-token prediction (MTP), which guesses three tokens a step.
class DraftsTest : public ServerTest {
 protected:
  static void SetUpTestSuite() {
    auto model =
        Model::Load({.path = EBB_SOURCE_DIR "/training/pebble/pebble-mtp.gguf", .loads_mtp = true});
    ASSERT_TRUE(model.ok()) << model.status().ToString();
    model_ = *model;
  }
  static ServerOptions Drafting() {
    ServerOptions options = Options();
    options.defaults.session.speculation = Speculation::kMtp;
    options.defaults.session.least_guesses = options.defaults.session.most_guesses = 3;
    return options;
  }
  // Sends all requests at once, each from a thread of its own, and compares the answers with those
  // of plain runs. Returns how often requests were parked.
  int ExpectSolo(int count) {
    std::vector<json> answers(count);
    std::vector<std::thread> clients;
    for (int i = 0; i < count; ++i) {
      clients.emplace_back([this, i, &answers] {
        const ClientAnswer answer =
            Client(port()).Post("/v1/chat/completions", Chat(i, {{"max_tokens", kDraftedTokens}}));
        EXPECT_EQ(answer.status, 200) << answer.body;
        answers[i] = answer.json();
      });
    }
    for (std::thread& client : clients) client.join();
    int parks = 0;
    for (int i = 0; i < count; ++i) {
      const Solo solo = RunAlone(i, {.max_tokens = kDraftedTokens});
      EXPECT_EQ(answers[i]["ebb"]["logits_hash"], solo.hash) << i;
      EXPECT_EQ(answers[i]["choices"][0]["message"]["reasoning_content"], solo.thought) << i;
      parks += answers[i]["ebb"]["parks"].get<int>();
    }
    return parks;
  }
  [[nodiscard]] Guesses GuessesOfMtp() const { return server_->figures().guesses.at("mtp"); }
};

TEST_F(DraftsTest, RequestsOfABatchGuessByTheHead) {
  ServerOptions options = Drafting();
  options.driver.prefix_cache_bytes = 64 * kMiB;
  Start(options);
  ExpectSolo(6);
  const Guesses guesses = GuessesOfMtp();
  EXPECT_GT(static_cast<double>(guesses.accepted), 0.8 * static_cast<double>(guesses.drafted));
  const Figures figures = server_->figures();
  EXPECT_GT(figures.stepped_jobs, 2 * figures.steps) << "most steps are of several requests";
  EXPECT_LT(2 * figures.stepped_jobs, figures.generated_tokens) << "guesses take no steps";
}

TEST_F(DraftsTest, PreemptedRequestsToo) {
  ServerOptions options = Drafting();
  // The head has a fifth of it.
  options.defaults.engine.tiers = EngineTiers{.t0_cap_bytes = 10 * kMiB, .t1 = T1Place::kHost};
  options.defaults.session.policy.tiers.emplace();
  Start(options);
  EXPECT_GT(ExpectSolo(16), 0);
  EXPECT_GT(GuessesOfMtp().accepted, 200u);
}

// A client that leaves ends its request in the middle of guesses; those of others go on.
TEST_F(DraftsTest, ARequestMayBeCancelled) {
  Start(Drafting());
  std::thread leaving([this] {
    Client client(port());
    const json body = Chat(9, {{"max_tokens", 1000}, {"stream", true}});
    client.Send(Client::Request("POST", "/v1/chat/completions", body.dump()));
    EXPECT_THAT(client.ReceiveSome(3000), testing::HasSubstr("data: "));
  });
  ExpectSolo(4);
  leaving.join();
  Await([](const Figures& figures) { return figures.ended.contains("cancelled"); });
}

}  // namespace
}  // namespace ebb::server

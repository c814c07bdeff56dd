// Tests a server whose engine computes on a device, simulated by a backend of ggml. T0 is on the
// device, and all data of sessions moves between it and the host.
#include <thread>
#include <vector>

#include "tests/server/server_fixture.h"
#include "tests/support/device/sim_backend.h"
#include "tests/support/numbers.h"

namespace ebb::server {
namespace {

using nlohmann::json;
using testing::HasSubstr;

constexpr int kDeviceMostTokens = 250;

class DeviceServerTest : public ServerTest {
 protected:
  static void SetUpTestSuite() {
    auto model = Model::Load({.path = EBB_SOURCE_DIR "/training/pebble/pebble.gguf",
                              .weights = WeightMode::kDequantize,
                              .for_device = true});
    ASSERT_TRUE(model.ok()) << model.status().ToString();
    model_ = *model;
  }
  ~DeviceServerTest() override { SetSimBackendFaults({}); }

  static ServerOptions OnDevice() {
    ServerOptions options = Options();
    options.defaults.engine.device = *ParseDevice("ggml-sim");
    return options;
  }
  static ServerOptions Capped() {
    ServerOptions options = OnDevice();
    options.defaults.engine.tiers = EngineTiers{.t0_cap_bytes = 4 * kMiB, .t1 = T1Place::kHost};
    options.defaults.session.policy.tiers.emplace();
    return options;
  }
  ClientAnswer Ask(uint64_t number, const json& more = json::object()) {
    json body = Chat(number, {{"max_tokens", kDeviceMostTokens}});
    body.update(more);
    return Client(port()).Post("/v1/chat/completions", body);
  }
  static std::string ThoughtIn(const ClientAnswer& answer) {
    EXPECT_EQ(answer.status, 200) << answer.body;
    if (answer.status != 200) return {};
    return answer.json()["choices"][0]["message"]["reasoning_content"];
  }
  static std::string ThoughtAlone(uint64_t number) {
    return RunAlone(number, {.max_tokens = kDeviceMostTokens}, {}, OnDevice().defaults.engine)
        .thought;
  }
};

// In a batch, logits equal those of a solo run up to rounding, which changes none of pebble's
// tokens here.
TEST_F(DeviceServerTest, RequestsUnderACapParkAndEndAsTheyWouldAlone) {
  Start(Capped());
  std::vector<std::string> thoughts(8);
  {
    std::vector<std::jthread> clients;
    for (size_t i = 0; i < thoughts.size(); ++i) {
      clients.emplace_back([this, i, &thoughts] { thoughts[i] = ThoughtIn(Ask(i)); });
    }
  }
  for (size_t i = 0; i < thoughts.size(); ++i) EXPECT_EQ(thoughts[i], ThoughtAlone(i)) << i;
  const Figures figures = server_->figures();
  EXPECT_GT(figures.share_changes + figures.parks, 0u);
  EXPECT_EQ(figures.parks, figures.resumes);
  EXPECT_LE(figures.arenas[0].peak_bytes, 4 * kMiB);
  EXPECT_GT(figures.arenas[1].peak_bytes, 0u);
  EXPECT_EQ(figures.arenas[0].used_bytes, 0u);
  EXPECT_EQ(figures.arenas[1].used_bytes, 0u);
}

TEST_F(DeviceServerTest, APromptAskedTwiceIsReadOnce) {
  ServerOptions options = OnDevice();
  options.driver.prefix_cache_bytes = 64 * kMiB;
  Start(options);
  const ClientAnswer first = Ask(1), second = Ask(1);
  EXPECT_EQ(ThoughtIn(first), ThoughtAlone(1));
  EXPECT_EQ(ThoughtIn(second), ThoughtIn(first));
  const json usage = second.json()["usage"];
  EXPECT_EQ(usage["prompt_tokens_details"]["cached_tokens"], usage["prompt_tokens"].get<int>() - 2);
}

TEST_F(DeviceServerTest, LosslessRequestsAreExactUpToRounding) {
  ServerOptions options = OnDevice();
  options.defaults.engine.tiers = EngineTiers{.t1 = T1Place::kHost};
  Start(options);
  const ClientAnswer answer = Ask(2, {{"ebb", {{"lossless", true}}}});
  EXPECT_EQ(ThoughtIn(answer), ThoughtAlone(2));
}

TEST_F(DeviceServerTest, ALostDeviceIsSaidAndTheServerEndsInOrder) {
  Start(OnDevice());
  EXPECT_EQ(ThoughtIn(Ask(1)), ThoughtAlone(1));
  SetSimBackendFaults([](SimBackendWork work) { return work == SimBackendWork::kCompute; });
  const ClientAnswer lost = Ask(2);
  EXPECT_EQ(lost.status, 500) << lost.body;
  EXPECT_THAT(lost.body, HasSubstr("was lost"));
  SetSimBackendFaults({});
  // The device stays lost.
  EXPECT_EQ(Ask(3).status, 500);
  EXPECT_EQ(Client(port()).Get("/health/live").status, 200);
}

}  // namespace
}  // namespace ebb::server

// A device that is another process: its bits are those of the same backend in this one, and its
// death is an error.

#include <atomic>
#include <chrono>
#include <random>
#include <string>
#include <thread>

#include "ebb/session_file.h"
#include "tests/engine/engine_fixture.h"
#include "tests/support/child_process.h"
#include "tests/support/engine/library_models.h"
#include "tests/support/free_port.h"

namespace ebb {
namespace {

using Clock = std::chrono::steady_clock;

class Server {
 public:
  Server()
      : endpoint_("127.0.0.1:" + std::to_string(FreePort())),
        process_({EBB_RPC_SERVER, endpoint_}) {}
  [[nodiscard]] DeviceSpec device() const { return *ParseDevice("rpc:" + endpoint_); }
  void Kill() { process_.Kill(); }

 private:
  const std::string endpoint_;
  ChildProcess process_;
};

std::shared_ptr<const Model> TheModel() {
  static const std::shared_ptr<const Model> kModel = [] {
    const TempFolder folder;
    const std::string path = folder.File("random.gguf");
    ExpectOk(WriteRandomGguf(SmallModelOptions(), path));
    return *Model::Load({.path = path, .for_device = true});
  }();
  return kModel;
}

TieredOptions On(const DeviceSpec& device, double t0_share = 1) {
  TieredOptions options = {{.threads = 1, .device = device}};
  if (t0_share < 1)
    options.Set({.engine = {.t1 = T1Place::kHost}, .shares = {.t0_share = t0_share}});
  return options;
}

// While the server is coming up it refuses connections.
std::unique_ptr<Engine> Connect(const EngineOptions& options,
                                const std::shared_ptr<const Model>& model = TheModel()) {
  Status last;
  for (int i = 0; i < 200; ++i) {
    auto engine = Engine::Create(model, options);
    if (engine.ok()) return *std::move(engine);
    last = engine.status();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  ADD_FAILURE() << "the server never answers: " << last.ToString();
  return nullptr;
}

PolicySpec PolicyOf(const TieredOptions& options) {
  PolicySpec policy;
  if (!options.tiers.has_value()) return policy;
  policy = {.name = "attention", .granularity = Granularity::kHead};
  policy.tiers = options.shares;
  policy.window = 8;
  policy.interval = 8;
  return policy;
}

uint64_t HashOf(Engine& engine, const PolicySpec& policy) {
  auto session = Open(engine, policy);
  ExpectOk(session->Prefill(SomeTokens(40)));
  for (const Token token : SomeTokens(150, 9)) ExpectOk(session->Decode(token));
  return session->logits_hash();
}

TEST(RpcTest, HasTheBitsOfItsBackendHere) {
  Server server;
  PolicySpec evicting = SmallPolicy("random", "64");
  evicting.granularity = Granularity::kHead;
  for (const double share : {1.0, 0.3}) {
    const TieredOptions there = On(server.device(), share);
    // By flash attention, as there: own nodes are not on that side.
    const TieredOptions here = On(*ParseDevice("ggml-cpu:attention=flash"), share);
    auto remote = Connect(there);
    auto local = MakeEngineOf(TheModel(), here);
    EXPECT_EQ(HashOf(*remote, PolicyOf(there)), HashOf(*local, PolicyOf(here))) << share;
    if (share == 1) {
      EXPECT_EQ(HashOf(*remote, evicting), HashOf(*local, evicting));
    }
  }
}

// Experts, sinks with windows, recurrent state, latent attention, rows that several layers read.
TEST(RpcTest, GraphsOfLibllamaHaveTheBitsOfItsBackendHere) {
  for (const LibraryModelOptions& options :
       {LibraryModelOptions{"qwen3moe", true, "q4_0"}, LibraryModelOptions{"gpt-oss", true},
        LibraryModelOptions{"qwen35moe", true}, LibraryModelOptions{"deepseek2", true},
        Gemma4WithSharedRows()}) {
    SCOPED_TRACE(NameOf(options));
    const TempFolder folder;
    const std::string path = folder.File("model.gguf");
    ExpectOk(WriteLibraryModel(options, path));
    const auto model = Model::Load({.path = path, .for_device = true});
    ASSERT_TRUE(model.ok()) << model.status().ToString();
    Server server;
    auto remote = Connect(On(server.device()), *model);
    ASSERT_NE(remote, nullptr);
    auto local = MakeEngineOf(*model, On(*ParseDevice("ggml-cpu:attention=flash")));
    std::vector<std::vector<float>> logits;
    for (Engine* engine : {remote.get(), local.get()}) {
      auto session = Open(*engine, PolicySpec());
      std::vector<Token> tokens(60);
      for (size_t i = 0; i < tokens.size(); ++i) {
        tokens[i] = static_cast<Token>(i * i % (*model)->shape().vocab_size);
      }
      ExpectOk(session->Prefill(tokens));
      for (const Token token : tokens) ExpectOk(session->Decode(token));
      logits.push_back(Logits(*session));
    }
    EXPECT_EQ(logits[0], logits[1]);
  }
}

TEST(RpcTest, NobodyThereIsAnError) {
  const auto begin = Clock::now();
  const auto engine =
      Engine::Create(TheModel(), On(*ParseDevice("rpc:127.0.0.1:" + std::to_string(FreePort()))));
  EXPECT_EQ(engine.status().code(), StatusCode::kInternal);
  EXPECT_NE(engine.status().message().find("connect"), std::string::npos)
      << engine.status().ToString();
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(10));
}

// In a step, while rows move, while a session is saved: whatever is under way then.
TEST(RpcTest, AServerThatDiesEndsItsSessionsAndNoOthers) {
  const TempFolder folder;
  auto host = MakeEngineOf(TheModel(), {.threads = 1});
  auto unharmed = Open(*host, PolicySpec());
  ExpectOk(unharmed->Prefill(SomeTokens(40)));
  std::mt19937 random(3);
  int in_steps = 0, in_saving = 0;  // how often it died there
  for (int round = 0; round < 100; ++round) {
    Server server;
    const TieredOptions options = On(server.device(), round % 2 == 0 ? 0.3 : 1);
    auto engine = Connect(options);
    ASSERT_NE(engine, nullptr) << round;
    auto session = Open(*engine, PolicyOf(options));
    // Every third time while a session is saved.
    std::atomic<bool> saving = round % 3 != 0;
    std::jthread killer([&server, &saving, wait = random() % 40] {
      std::this_thread::sleep_for(std::chrono::milliseconds(wait));
      saving.wait(false);
      server.Kill();
    });
    const auto begin = Clock::now();
    Status status = session->Prefill(SomeTokens(40)).status;
    for (int step = 0; status.ok() && step < 1500; ++step) {
      status = session->Decode(Token{5}).status;
      if (status.ok() && round % 3 == 0 && step % 4 == 0) {
        saving = true;
        saving.notify_all();
        status = SaveSession(*session, folder.File("session"));
        in_saving += status.ok() ? 0 : 1;
      } else {
        in_steps += status.ok() ? 0 : 1;
      }
      if (status.ok() && step % 100 == 99) status = session->TruncateTo(40);
    }
    saving = true;
    saving.notify_all();
    EXPECT_EQ(status.code(), StatusCode::kInternal) << status.ToString();
    EXPECT_NE(status.message().find("was lost"), std::string::npos) << status.ToString();
    EXPECT_LT(Clock::now() - begin, std::chrono::seconds(20));
    // What comes behind is told the same.
    EXPECT_FALSE(session->Decode(Token{5}).ok());
    EXPECT_FALSE(Open(*engine, PolicyOf(options))->Prefill(SomeTokens(4)).ok());
    ExpectOk(unharmed->Decode(Token{5}));
  }
  EXPECT_GT(in_steps, 0);
  EXPECT_GT(in_saving, 0);
}

}  // namespace
}  // namespace ebb

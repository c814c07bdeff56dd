#ifndef EBB_TESTS_SERVER_SERVER_FIXTURE_H_
#define EBB_TESTS_SERVER_SERVER_FIXTURE_H_

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "ebb/generate.h"
#include "ebb/lab/pebble.h"
#include "src/server/server.h"
#include "tests/server/client.h"

namespace ebb::server {

class ServerTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    auto model = Model::Load({.path = EBB_SOURCE_DIR "/training/pebble/pebble.gguf",
                              .weights = WeightMode::kDequantize});
    ASSERT_TRUE(model.ok()) << model.status().ToString();
    model_ = *model;
  }
  static void TearDownTestSuite() { model_.reset(); }

  static ServerOptions Options() {
    ServerOptions options;
    options.port = 0;
    options.defaults.model_id = "pebble";
    options.defaults.sampling.temperature = 0;
    options.defaults.engine.threads = 1;
    return options;
  }
  void Start(const ServerOptions& options = Options()) {
    auto server = Server::Start(model_, options);
    ASSERT_TRUE(server.ok()) << server.status().ToString();
    server_ = *std::move(server);
  }
  [[nodiscard]] uint16_t port() const { return server_->port(); }

  static std::string Question(uint64_t number) { return MakePebbleProblem(1, number).Question(); }
  // Returns a chat request about one of pebble's problems, with the members `more` added.
  static nlohmann::json Chat(uint64_t number,
                             const nlohmann::json& more = nlohmann::json::object()) {
    nlohmann::json body = {{"messages", {{{"role", "user"}, {"content", Question(number)}}}},
                           {"ebb", {{"logits_hash", true}}}};
    body.update(more);
    return body;
  }
  // Returns `text` without blanks at both ends.
  static std::string Trimmed(const std::string& text) {
    const size_t begin = std::min(text.find_first_not_of(" \n"), text.size());
    return text.substr(begin, text.find_last_not_of(" \n") + 1 - begin);
  }
  // Solo is the result of the same request in an engine of its own, as `ebb run` computes it.
  struct Solo {
    GenerateResult result;
    std::string thought, content, hash;
  };
  static Solo RunAlone(uint64_t number, const GenerateOptions& options,
                       const SessionOptions& session_options = {},
                       const EngineOptions& engine_options = {.threads = 1}) {
    auto engine = Engine::Create(model_, engine_options);
    EXPECT_TRUE(engine.ok());
    auto session = (*engine)->OpenSession(session_options);
    EXPECT_TRUE(session.ok()) << session.status().ToString();
    const ChatMessage message = {"user", Question(number)};
    const auto turn = BeginTurn(*model_, {}, {&message, 1});
    EXPECT_TRUE(turn.ok());
    EXPECT_TRUE((*session)->Prefill(turn->tokens).ok());
    const auto sampler = SamplerFor(*turn, *model_, {.temperature = 0});
    EXPECT_TRUE(sampler.ok());
    Solo solo = {.result = Generate(**session, **sampler, OptionsFor(*turn, options))};
    const std::string& text = solo.result.text;
    solo.thought = Trimmed(text.substr(0, text.find("</think>")));
    if (solo.result.thought_bytes < text.size()) {
      solo.content = Trimmed(text.substr(solo.result.thought_bytes));
    }
    solo.hash = fmt::format("{:016x}", (*session)->logits_hash());
    return solo;
  }
  // Waits until `holds` is true of the server's figures, at most a minute.
  void Await(const std::function<bool(const Figures&)>& holds) {
    for (int i = 0; i < 6000; ++i) {
      if (holds(server_->figures())) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    FAIL() << "it does not come";
  }

  static std::shared_ptr<const Model> model_;
  std::unique_ptr<Server> server_;
};

inline std::shared_ptr<const Model> ServerTest::model_;

}  // namespace ebb::server

#endif  // EBB_TESTS_SERVER_SERVER_FIXTURE_H_

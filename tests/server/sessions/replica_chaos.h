// Runs rounds in which a server is killed at a random moment of a session's turn, and the turn is
// requested again from another server.
#ifndef EBB_TESTS_SERVER_SESSIONS_REPLICA_CHAOS_H_
#define EBB_TESTS_SERVER_SESSIONS_REPLICA_CHAOS_H_

#include <algorithm>
#include <string>

#include "tests/server/sessions/replica_fixture.h"

namespace ebb::server {

class ReplicaChaosTest : public ReplicaTest {
 protected:
  static constexpr uint64_t kTurnsPerSession = 2;
  static constexpr int kTokens = 150;

  void RunRounds(int num_rounds, uint64_t seed) {
    std::mt19937_64 random(seed);
    std::optional<Replica> replicas[2];
    for (auto& replica : replicas) replica.emplace(sessions_);
    int num_cut = 0;
    for (int round = 0; round < num_rounds && !HasFailure(); ++round) {
      SCOPED_TRACE(testing::Message() << "round " << round << ", seed " << seed);
      const uint64_t turn = static_cast<uint64_t>(round) % kTurnsPerSession;
      const std::string id = "s" + std::to_string(static_cast<uint64_t>(round) / kTurnsPerSession);
      const nlohmann::json expected = Undisturbed(id, turn + 1, kTokens);
      const size_t victim = random() % 2;
      num_cut += KillWithin(&*replicas[victim], Turn(id, turn + 1, kTokens), &random) ? 1 : 0;
      const bool asks_other = random() % 2 == 0;
      replicas[victim].emplace(sessions_);
      const Replica& asked = *replicas[asks_other ? 1 - victim : victim];
      ExpectSame(asked.Ask(Again(id, turn)), expected);
      // Nothing was lost or appended twice.
      EXPECT_EQ(asked.Get("/v1/sessions/" + id).json()["tokens"],
                quiet_->Get("/v1/sessions/" + id).json()["tokens"]);
      Remember(expected, turn);
    }
    EXPECT_GT(num_cut, num_rounds / 10);
  }

 private:
  // Returns a request with all messages: these say what is asked, whether or not the turn was
  // answered before the server died.
  nlohmann::json Again(const std::string& id, uint64_t turn) {
    nlohmann::json body = Turn(id, turn + 1, kTokens);
    nlohmann::json messages = turn == 0 ? nlohmann::json::array() : messages_;
    messages.push_back(body["messages"][0]);
    body["messages"] = messages;
    return body;
  }
  void Remember(const nlohmann::json& answer, uint64_t turn) {
    if (turn == 0) messages_ = nlohmann::json::array();
    messages_.push_back({{"role", "user"}, {"content", MakePebbleProblem(1, turn + 1).Question()}});
    messages_.push_back(
        {{"role", "assistant"}, {"content", answer["choices"][0]["message"]["content"]}});
  }
  // Kills the server during a request. Returns true if that was before the answer was complete.
  static bool KillWithin(Replica* replica, const nlohmann::json& body, std::mt19937_64* random) {
    const auto client = replica->Begin(Streamed(body));
    if ((*random)() % 4 == 0) {
      // Kills the server at a random moment: before it has the lease, while it reads, or after the
      // end.
      Sleep(static_cast<double>((*random)() % 200) / 1000);
    } else {
      static_cast<void>(client->ReceiveSome((*random)() % 40'000));
    }
    replica->process().Kill();
    const std::string rest = client->ReceiveSome(size_t{1} << 30);
    return rest.find("[DONE]") == std::string::npos;
  }

  nlohmann::json messages_;
};

}  // namespace ebb::server

#endif  // EBB_TESTS_SERVER_SESSIONS_REPLICA_CHAOS_H_

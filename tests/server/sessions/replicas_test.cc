// Tests servers that share a store, when one of them is killed, stopped or paused.
#include "tests/server/sessions/replica_chaos.h"

namespace ebb::server {
namespace {

using nlohmann::json;
using testing::HasSubstr;

TEST_P(ReplicaTest, AnotherOneGoesOnWhereOneWasKilledInAThought) {
  const json expected = Undisturbed("s", 1);
  Replica first(sessions_), second(sessions_);
  const auto client = first.Begin(Streamed(Turn("s", 1)));
  // At least one checkpoint has been saved by now, or will be soon.
  static_cast<void>(client->ReceiveSome(30'000));
  int64_t saved = 0;
  for (int i = 0; i < 1000 && saved == 0; ++i) {
    saved = second.Get("/v1/sessions/s").json().value("answer_tokens", 0);
  }
  first.process().Kill();
  const json session = second.Get("/v1/sessions/s").json();
  saved = session["answer_tokens"];
  EXPECT_GT(saved, 0);
  ExpectSame(second.Ask(Turn("s", 1)), expected);
  // The saved tokens were not generated again.
  const bool was_complete = !session["in_progress"].get<bool>();
  EXPECT_EQ(GeneratedBy(second), was_complete ? 0 : 400 - saved);
  EXPECT_EQ(second.Get("/v1/sessions/s").json()["in_progress"], false);
}

TEST_P(ReplicaTest, OneThatIsStoppedSavesWhatItWasAnswering) {
  const json expected = Undisturbed("s", 1);
  {
    Replica first(sessions_, {"--checkpoint-every", "0"});
    const auto client = first.Begin(Streamed(Turn("s", 1)));
    static_cast<void>(client->ReceiveSome(30'000));
    first.process().Signal(SIGTERM);
    EXPECT_EQ(first.process().Wait(), 0);
  }
  Replica second(sessions_);
  EXPECT_GT(second.Get("/v1/sessions/s").json()["answer_tokens"], 0);
  ExpectSame(second.Ask(Turn("s", 1)), expected);
  ExpectSame(second.Ask(Turn("s", 2)), Undisturbed("s", 2));
}

TEST_P(ReplicaTest, ASessionThatAnotherOneAnswersIsWaitedFor) {
  const json expected = Undisturbed("s", 1);
  Replica first(sessions_), second(sessions_);
  const auto client = first.Begin(Streamed(Turn("s", 1)));
  static_cast<void>(client->ReceiveSome(2000));
  // The server answers, or the lease is held for longer than a request waits.
  const ClientAnswer answer = second.Ask(Turn("s", 1));
  if (answer.status == 409) {
    EXPECT_EQ(answer.json()["error"]["code"], "session_busy");
  } else {
    ExpectSame(answer, expected);
    EXPECT_EQ(GeneratedBy(second), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Every, ReplicaTest, testing::Values(Place::kFile, Place::kRedis),
                         PlaceName);

class RedisReplicaTest : public ReplicaTest {};

TEST_P(RedisReplicaTest, OneThatLostItsLeaseEndsItsStreamWithAnError) {
  const json expected = Undisturbed("s", 1);
  Replica first(sessions_), second(sessions_);
  auto client = first.Begin(Streamed(Turn("s", 1)));
  std::string received = client->ReceiveSome(5000);
  first.process().Signal(SIGSTOP);
  if (received.find("[DONE]") != std::string::npos) GTEST_SKIP() << "it was too fast";
  ExpectSame(second.Ask(Turn("s", 1)), expected);
  first.process().Signal(SIGCONT);
  while (received.find("data: [DONE]") == std::string::npos &&
         received.find("\"error\"") == std::string::npos) {
    const std::string more = client->ReceiveSome(1);
    if (more.empty()) break;
    received += more;
  }
  EXPECT_THAT(received, HasSubstr("session_lease_lost"));
  EXPECT_THAT(received, testing::Not(HasSubstr("[DONE]")));
  // The server knows which server has the session now.
  ExpectSame(first.Ask(Turn("s", 2)), Undisturbed("s", 2));
}

TEST_P(RedisReplicaTest, AnswersGoOnWithoutTheStoreAndAreSavedWhenItIsBack) {
  Replica replica(sessions_);
  ExpectSame(replica.Ask(Turn("s", 1)), Undisturbed("s", 1));
  const auto client = replica.Begin(Turn("s", 2));
  for (int i = 0; i < 1000 && GeneratedBy(replica) < 420; ++i) Sleep(0.005);
  redis_->Stop();
  const ClientAnswer unsaved = client->Receive();
  ExpectSame(unsaved, Undisturbed("s", 2));
  const json session = unsaved.json()["ebb"]["session"];
  if (session["saved"] == true) GTEST_SKIP() << "it was too fast";
  EXPECT_THAT(session["error"].get<std::string>(), HasSubstr("session store"));
  // Another session cannot be fetched; this one is in memory.
  const ClientAnswer other = replica.Ask(Turn("other", 1));
  EXPECT_EQ(other.status, 503);
  EXPECT_EQ(other.json()["error"]["code"], "session_store_unavailable");
  EXPECT_NE(other.headers.count("retry-after"), 0u);
  EXPECT_EQ(replica.Get("/health/ready").status, 200);
  EXPECT_THAT(replica.Get("/metrics").body, HasSubstr("ebb_sessions{state=\"unsaved\"} 1"));
  const ClientAnswer third = replica.Ask(Turn("s", 3));
  ExpectSame(third, Undisturbed("s", 3));
  EXPECT_EQ(third.json()["ebb"]["session"]["saved"], false);
  redis_->Start();
  // The store has the session of the first turn; the later turns are written with the next try.
  const auto is_saved = [&] {
    return replica.Get("/metrics").body.find("ebb_sessions{state=\"unsaved\"} 0") !=
           std::string::npos;
  };
  for (int i = 0; i < 12000 && !is_saved(); ++i) Sleep(0.01);
  // From now on any server can use the session.
  Replica second(sessions_);
  ExpectSame(second.Ask(Turn("s", 4)), Undisturbed("s", 4));
}

TEST_P(RedisReplicaTest, AStoreThatIsPausedCostsNoAnswer) {
  Replica replica(sessions_);
  ExpectSame(replica.Ask(Turn("s", 1)), Undisturbed("s", 1));
  const auto client = replica.Begin(Turn("s", 2));
  for (int i = 0; i < 1000 && GeneratedBy(replica) < 420; ++i) Sleep(0.005);
  redis_->Pause();
  const ClientAnswer answer = client->Receive();
  ExpectSame(answer, Undisturbed("s", 2));
  redis_->Continue();
  for (int i = 0; i < 3000; ++i) {
    if (replica.Get("/v1/sessions/s").json().value("in_progress", true) == false) break;
    Sleep(0.01);
  }
  ExpectSame(replica.Ask(Turn("s", 3)), Undisturbed("s", 3));
}

INSTANTIATE_TEST_SUITE_P(Every, RedisReplicaTest, testing::Values(Place::kRedis), PlaceName);

TEST_P(ReplicaChaosTest, AFewKillsLoseNothingAndAnswerNothingTwice) { RunRounds(4, 1); }

INSTANTIATE_TEST_SUITE_P(Every, ReplicaChaosTest, testing::Values(Place::kFile, Place::kRedis),
                         PlaceName);

}  // namespace
}  // namespace ebb::server

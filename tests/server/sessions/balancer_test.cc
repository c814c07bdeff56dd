// Runs the example of two servers behind HAProxy, as a person would.
#include "tests/server/sessions/replica_fixture.h"
#include "tests/support/free_port.h"
#include "tests/support/skip.h"

namespace ebb::server {
namespace {

using nlohmann::json;

class BalancerTest : public ReplicaTest {};

TEST_P(BalancerTest, ASessionGoesOnThroughTheSameAddress) {
  if (FindProgram("haproxy").empty())
    EBB_SKIP_WITHOUT("haproxy") << "no haproxy: install the package of that name";
  const json expected = Undisturbed("s", 1);
  const json expected_next = Undisturbed("s", 2);
  const uint16_t port = FreePort();
  ChildProcess example(
      {"env", "EBB=" EBB_BINARY_PATH, "STORE=" + sessions_,
       "EBB_OPTIONS=--dequantize --threads 1 --temp 0 --session-lease 1 --checkpoint-every 16",
       EBB_SOURCE_DIR "/examples/replicas/run", std::to_string(port)});
  std::vector<pid_t> replicas;
  for (std::string line = example.ReadLine(); line.find("ready: ") != 0;
       line = example.ReadLine()) {
    ASSERT_NE(line, "") << "it has ended";
    const size_t found = line.find("process ");
    if (found != std::string::npos) replicas.push_back(std::stoi(line.substr(found + 8)));
  }
  ASSERT_EQ(replicas.size(), 2u);
  {
    Client client(port);
    client.Send(Client::Request("POST", "/v1/chat/completions", Streamed(Turn("s", 1)).dump(),
                                "Content-Type: application/json\r\nConnection: close\r\n"));
    static_cast<void>(client.ReceiveSome(20'000));
    kill(replicas[0], SIGKILL);
  }
  // Waits until the balancer has noticed and the lease of the dead server has expired.
  ClientAnswer answer;
  for (int i = 0; i < 600 && answer.status != 200; ++i) {
    if (i > 0) Sleep(0.1);
    answer = Client(port).Post("/v1/chat/completions", Turn("s", 1));
  }
  ExpectSame(answer, expected);
  ExpectSame(Client(port).Post("/v1/chat/completions", Turn("s", 2)), expected_next);
  example.Signal(SIGTERM);
  EXPECT_EQ(example.Wait(), 0);
}

INSTANTIATE_TEST_SUITE_P(Every, BalancerTest, testing::Values(Place::kFile, Place::kRedis),
                         PlaceName);

}  // namespace
}  // namespace ebb::server

// SoakTest sends many requests of every kind, many of whose clients disconnect early, and then
// checks what is left of them: rows, connections, threads, file descriptors and memory.
#ifndef EBB_TESTS_SERVER_ENGINE_SOAK_H_
#define EBB_TESTS_SERVER_ENGINE_SOAK_H_

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "src/base/sanitizers.h"
#include "tests/server/server_fixture.h"
#include "tests/support/temp_folder.h"

namespace ebb::server {

class SoakTest : public ServerTest {
 protected:
  static constexpr int kClients = 16;  // at a time
  static constexpr int kSessions = 8;
  static constexpr size_t kPrefixBytes = size_t{4} << 20;

  struct Footprint {
    size_t descriptors = 0, threads = 0, resident_bytes = 0;
  };
  static size_t Entries(const std::string& folder) {
    size_t count = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder)) ++count;
    return count;
  }
  static Footprint Measure() {
    size_t pages = 0, resident = 0;
    std::ifstream("/proc/self/statm") >> pages >> resident;
    Footprint seen = {.descriptors = Entries("/proc/self/fd"),
                      .threads = Entries("/proc/self/task"),
                      .resident_bytes = resident * static_cast<size_t>(sysconf(_SC_PAGESIZE))};
    // The server may not yet have closed the connection of the last request.
    for (int i = 0; i < 50; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      seen.descriptors = std::min(seen.descriptors, Entries("/proc/self/fd"));
      seen.threads = std::min(seen.threads, Entries("/proc/self/task"));
    }
    return seen;
  }

  // Starts a server with a T0 for some of the requests, a T1 for the others, a prefix cache, and
  // sessions in a folder.
  void StartServer() {
    ServerOptions options = Options();
    options.driver.prefix_cache_bytes = kPrefixBytes;
    options.driver.most_waiting = 4 * kClients;
    options.defaults.engine.tiers =
        EngineTiers{.t0_cap_bytes = size_t{4} << 20, .t1 = T1Place::kHost};
    options.defaults.session.policy.tiers.emplace();
    options.defaults.session.context = 512;
    options.sessions =
        store::StoreUrl{.kind = store::StoreUrl::Kind::kFile, .folder = folder_.File("store")};
    Start(options);
  }

  // Sends one random request.
  static void AskOnce(uint16_t port, std::mt19937_64* lots, std::atomic<int>* failures) {
    const auto draw = [lots](int n) { return static_cast<int>((*lots)() % n); };
    Client client(port);
    nlohmann::json body = Chat(1 + draw(20), {{"max_tokens", 1 + draw(12)}});
    std::string path = "/v1/chat/completions", headers = "Content-Type: application/json\r\n";
    std::string id;
    switch (draw(8)) {
      case 0:
        body["n"] = 2;
        break;
      case 1:
        body["ebb"]["session"] = "soak" + std::to_string(draw(kSessions));
        body["messages"][0]["content"] = Question(1 + draw(3));
        break;
      case 2:
        body["ebb"] = {{"policy", "h2o"}, {"budget", "50%"}};
        break;
      case 3:
        body["max_tokens"] = -1 - draw(5);  // refused
        break;
      case 4:
        path = "/v1/completions";
        body = {{"prompt", Question(1 + draw(20))}, {"max_tokens", 1 + draw(12)}};
        break;
      case 5:
        id = "soak-" + std::to_string((*lots)());
        headers += "X-Request-Id: " + id + "\r\n";
        body["max_tokens"] = 200;
        break;
      default:
        break;
    }
    body["stream"] = draw(2) == 0;
    const int end = draw(3);
    // Otherwise ReceiveSome(), when it wants more bytes than the answer has, would wait until the
    // idle connection is closed.
    if (end == 1) headers += "Connection: close\r\n";
    client.Send(Client::Request("POST", path, body.dump(), headers));
    if (!id.empty()) {
      Client other(port);
      other.Send(Client::Request("DELETE", "/v1/requests/" + id));
      (void)other.Receive();  // 404 if it has not started or has ended
    }
    if (end == 0) return;  // disconnects at once
    if (end == 1) {
      (void)client.ReceiveSome(1 + draw(600));  // disconnects during the answer
      return;
    }
    const ClientAnswer answer = client.Receive();
    // Accepts success, refusals, busy sessions or conflicting turns, and requests cancelled by
    // their id.
    static constexpr std::array kStatuses = {200, 400, 409, 499, 503};
    if (std::ranges::find(kStatuses, answer.status) == kStatuses.end()) {
      ADD_FAILURE() << answer.status << " " << answer.body;
      ++*failures;
    }
  }
  void AskMany(int requests, uint64_t seed) {
    std::atomic<int> next = 0, failures = 0;
    std::vector<std::thread> clients;
    for (int i = 0; i < kClients; ++i) {
      clients.emplace_back([&] {
        for (int number = next++; number < requests && failures == 0; number = next++) {
          std::mt19937_64 lots(seed * 1'000'003 + number);
          AskOnce(port(), &lots, &failures);
        }
      });
    }
    for (std::thread& client : clients) client.join();
  }
  // Waits until all sessions are deleted, no request is under way, and the only connection is the
  // one that asks.
  void Settle() {
    for (int i = 0; i < kSessions; ++i) {
      for (int tries = 0; tries < 600; ++tries) {
        Client client(port());
        client.Send(Client::Request("DELETE", "/v1/sessions/soak" + std::to_string(i)));
        const int status = client.Receive().status;
        if (status == 200 || status == 204 || status == 404) break;
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
      }
    }
    Await([](const Figures& f) { return f.waiting + f.reading + f.decoding + f.parked == 0; });
    Await([](const Figures& f) {
      // Only cached prompts are left; a page that several of them share is counted in parts.
      const uint64_t left = f.arenas[0].used_bytes + f.arenas[1].used_bytes;
      return left <= f.prefix_bytes + (uint64_t{64} << 10) && f.prefix_bytes <= kPrefixBytes;
    });
    for (int i = 0; i < 600; ++i) {
      if (Client(port()).Get("/metrics").body.find("\nebb_connections 1\n") != std::string::npos) {
        return;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    ADD_FAILURE() << "connections are left";
  }

  void RunSoak(int requests) {
    StartServer();
    AskMany(requests / 5 + 100, 1);
    Settle();
    const Footprint before = Measure();
    AskMany(requests, 2);
    Settle();
    const Footprint after = Measure();
    EXPECT_EQ(after.threads, before.threads);
    EXPECT_LE(after.descriptors, before.descriptors);
    // The allocator keeps some freed memory.
    if (!kShadowMemory) {
      EXPECT_LE(after.resident_bytes, before.resident_bytes + (size_t{48} << 20));
    }
    EXPECT_EQ(server_->figures().arenas[0].pledged_bytes, 0u);
    // The server still gives the same answer as a solo run.
    const ClientAnswer answer = Client(port()).Post("/v1/chat/completions", Chat(77));
    ASSERT_EQ(answer.status, 200) << answer.body;
    EXPECT_EQ(answer.json()["ebb"]["logits_hash"], RunAlone(77, {}).hash);
  }

  const TempFolder folder_;
};

}  // namespace ebb::server

#endif  // EBB_TESTS_SERVER_ENGINE_SOAK_H_

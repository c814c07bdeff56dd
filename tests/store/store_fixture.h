// Stores of every kind for tests, and files of bytes to put into them.
#ifndef EBB_TESTS_STORE_STORE_FIXTURE_H_
#define EBB_TESTS_STORE_STORE_FIXTURE_H_

#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <random>
#include <sstream>
#include <string>

#include "src/store/manifest.h"
#include "src/store/redis_link.h"
#include "src/store/session_store.h"
#include "src/store/store_url.h"
#include "tests/support/child_process.h"
#include "tests/support/redis_server.h"
#include "tests/support/skip.h"

namespace ebb::store {

enum class Place { kFile, kRedis, kValkey };

inline std::string NameOf(const testing::TestParamInfo<Place>& info) {
  return info.param == Place::kFile ? "File" : info.param == Place::kRedis ? "Redis" : "Valkey";
}

class StoreTest : public testing::TestWithParam<Place> {
 protected:
  void SetUp() override {
    std::signal(SIGPIPE, SIG_IGN);
    if (GetParam() == Place::kFile) {
      url_ = "file:" + folder_.path() + "/store";
      return;
    }
    const RedisKind kind = GetParam() == Place::kRedis ? RedisKind::kRedis : RedisKind::kValkey;
    if (RedisServer::ProgramOf(kind).empty()) {
      if (kind == RedisKind::kRedis) EBB_SKIP_WITHOUT("redis") << RedisServer::SkipReason(kind);
      EBB_SKIP_WITHOUT("valkey") << RedisServer::SkipReason(kind);
    }
    redis_.emplace(kind);
    url_ = redis_->url();
  }

  [[nodiscard]] bool is_file() const { return GetParam() == Place::kFile; }

  // What another process sees.
  std::unique_ptr<SessionStore> Open(const StoreLimits& limits = {}) {
    auto url = ParseStoreUrl(url_);
    EXPECT_TRUE(url.ok()) << url.status().ToString();
    auto store = OpenStore(*url, limits);
    EXPECT_TRUE(store.ok()) << store.status().ToString();
    return store.ok() ? *std::move(store) : nullptr;
  }
  static Lease AcquireFrom(SessionStore& store, const SessionName& name) {
    auto lease = store.Acquire(name);
    EXPECT_TRUE(lease.ok()) << lease.status().ToString();
    EXPECT_TRUE(lease.ok() && lease->has_value()) << name.id << " is held";
    return lease.ok() && lease->has_value() ? **lease : Lease{name, ""};
  }

  std::string WriteFile(const std::string& bytes) {
    const std::string path = folder_.path() + "/file" + std::to_string(next_file_++);
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
  static std::string ReadFile(const std::string& path) {
    std::ostringstream bytes;
    bytes << std::ifstream(path, std::ios::binary).rdbuf();
    return bytes.str();
  }
  static std::string RandomBytes(size_t size, uint64_t seed) {
    std::mt19937_64 random(seed);
    std::string bytes(size, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    return bytes;
  }
  static Manifest Lasting(int64_t ms = 3'600'000) {
    return {.model = "m",
            .policy = "p",
            .tiers = "t",
            .tokens = 7,
            .created_ms = NowMs(),
            .used_ms = NowMs(),
            .expires_ms = NowMs() + ms};
  }
  Held PutInto(SessionStore& store, const Lease& lease, const std::string& bytes,
               const std::string& record) {
    Manifest manifest = Lasting();
    const auto held = store.Put(lease, WriteFile(bytes), record, &manifest);
    EXPECT_TRUE(held.ok()) << held.status().ToString();
    return held.ok() ? *held : Held::kNo;
  }
  // "record|bytes", or nothing. REQUIRES: nobody changes it meanwhile.
  std::optional<std::string> ContentOf(SessionStore& store, const SessionName& name) {
    const auto stored = store.Describe(name);
    EXPECT_TRUE(stored.ok()) << stored.status().ToString();
    if (!stored.ok() || !stored->has_value()) return std::nullopt;
    const std::string path = folder_.path() + "/got";
    std::filesystem::remove(path);
    const Status status = store.Get((*stored)->manifest, path);
    EXPECT_TRUE(status.ok()) << status.ToString();
    return (*stored)->record + "|" + ReadFile(path);
  }

  // A command to the server itself.
  RedisReply Tell(const std::vector<std::string_view>& words) {
    auto link = RedisLink::Connect(*ParseStoreUrl(url_), {});
    EXPECT_TRUE(link.ok()) << link.status().ToString();
    auto reply = (*link)->Do(words);
    EXPECT_TRUE(reply.ok()) << reply.status().ToString();
    return reply.ok() ? *reply : RedisReply();
  }
  // Ends the lease's time; a lease on a file ends with its process alone.
  void LetLapse(const SessionName& name) {
    if (!is_file()) Tell({"DEL", "ebb:{" + name.tenant + "/" + name.id + "}:lease"});
  }
  // Files or keys, however they are called.
  size_t NumThings() {
    if (!is_file()) return static_cast<size_t>(Tell({"DBSIZE"}).number);
    size_t count = 0;
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(folder_.path() + "/store")) {
      if (entry.is_regular_file()) ++count;
    }
    return count;
  }

  TemporaryFolder folder_;
  std::string url_;
  std::optional<RedisServer> redis_;
  int next_file_ = 0;
};

}  // namespace ebb::store

#endif  // EBB_TESTS_STORE_STORE_FIXTURE_H_

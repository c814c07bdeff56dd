// Checks leases while a session is fetched, with a slow store.
#include "src/server/sessions/session_keeper.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <functional>
#include <future>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>

#include "src/base/threads/mutex.h"
#include "src/server/engine/scratch_folder.h"

namespace ebb::server {
namespace {

using store::Held;
using store::Lease;
using store::Manifest;
using store::SessionName;
using store::StoredSession;

constexpr double kLeaseSeconds = 0.3;

// FakeStore describes every session by an empty record of generation "g" and accepts all writes.
class FakeStore : public store::SessionStore {
 public:
  Result<std::optional<StoredSession>> Describe(const SessionName& name) override {
    Manifest manifest;
    manifest.tenant = name.tenant;
    manifest.id = name.id;
    manifest.generation = "g";
    return std::optional(StoredSession{manifest, EncodeRecord({})});
  }
  Result<Held> Put(const Lease&, const std::string&, std::string_view, Manifest*) override {
    return Held::kYes;
  }
  Result<Held> Touch(const Lease&, int64_t, int64_t) override { return Held::kYes; }
  Result<std::vector<std::string>> ListIds(const std::string&) override {
    return std::vector<std::string>();
  }
  Result<Held> Delete(const Lease&) override { return Held::kYes; }
  Result<store::SessionPage> List(const std::string&, const std::string&, size_t) override {
    return store::SessionPage();
  }
  Status Sweep() override { return OkStatus(); }
};

// SlowStore has one session. Fetching it lasts until the keeper has handled `awaited` renewals of
// the lease.
class SlowStore final : public FakeStore {
 public:
  explicit SlowStore(int awaited) : awaited_(awaited) {}

  Result<std::optional<Lease>> Acquire(const SessionName& name) override {
    const MutexLock lock(mutex_);
    if (is_held_) return std::optional<Lease>();
    is_held_ = true;
    return std::optional(Lease{name, fmt::format("{}", ++epoch_)});
  }
  Result<Held> Renew(const Lease&) override {
    const MutexLock lock(mutex_);
    renewing_thread_ = std::this_thread::get_id();
    ++num_renewals_;
    if (num_renewals_ != lost_at_) return Held::kYes;
    is_held_ = false;
    return Held::kNo;
  }
  Status Release(const Lease& lease) override {
    const MutexLock lock(mutex_);
    if (lease.epoch == fmt::format("{}", epoch_)) is_held_ = false;
    return OkStatus();
  }
  Status Get(const Manifest&, const std::string& path) override {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    bool renewed = false;
    {
      const MutexLock lock(mutex_);
      ++num_fetches_;
      while (num_handled_ < awaited_ * num_fetches_ && changed_.WaitUntil(mutex_, end)) {
      }
      renewed = num_handled_ >= awaited_ * num_fetches_;
    }
    std::ofstream(path) << "rows";
    return renewed ? OkStatus() : IoError("the lease was not renewed");
  }
  // Returns `work`, wrapped so that work posted by the thread of renewals counts as a handled
  // renewal once it has run.
  std::function<void()> Counted(std::function<void()> work) {
    const MutexLock lock(mutex_);
    if (std::this_thread::get_id() != renewing_thread_) return work;
    return [this, work = std::move(work)] {
      work();
      const MutexLock handled(mutex_);
      ++num_handled_;
      changed_.NotifyAll();
    };
  }
  // Lets the lease be lost at the renewal with this number; 0: at none.
  void LoseAt(int renewal) {
    const MutexLock lock(mutex_);
    lost_at_ = renewal;
  }
  [[nodiscard]] int num_fetches() {
    const MutexLock lock(mutex_);
    return num_fetches_;
  }

 private:
  const int awaited_;
  Mutex mutex_;
  CondVar changed_;
  bool is_held_ EBB_GUARDED_BY(mutex_) = false;
  std::thread::id renewing_thread_ EBB_GUARDED_BY(mutex_);
  int epoch_ EBB_GUARDED_BY(mutex_) = 0;
  int num_renewals_ EBB_GUARDED_BY(mutex_) = 0;
  int num_handled_ EBB_GUARDED_BY(mutex_) = 0;
  int num_fetches_ EBB_GUARDED_BY(mutex_) = 0;
  int lost_at_ EBB_GUARDED_BY(mutex_) = 0;
};

class SessionKeeperTest : public testing::Test {
 protected:
  using Entered = ApiResult<std::shared_ptr<SessionUse>>;

  void Start(int awaited, int lost_at = 0, double lease_seconds = kLeaseSeconds) {
    auto slow = std::make_unique<SlowStore>(awaited);
    store_ = slow.get();
    store_->LoseAt(lost_at);
    StartWith(std::move(slow), lease_seconds);
  }
  void StartWith(std::unique_ptr<store::SessionStore> store, double lease_seconds = kLeaseSeconds) {
    SessionKeeperOptions options;
    options.limits.lease = lease_seconds;
    const auto post = [this](std::function<void()> work) {
      if (store_ != nullptr) work = store_->Counted(std::move(work));
      boost::asio::post(thread_, std::move(work));
    };
    auto keeper = SessionKeeper::Create(std::move(store), options,
                                        {.post = post,
                                         .discard = [](uint64_t) {},
                                         .cancel = [](JobId) {},
                                         .deliver = [](const JobUpdate&) {}});
    ASSERT_TRUE(keeper.ok()) << keeper.status().ToString();
    keeper_ = *std::move(keeper);
  }
  void TearDown() override {
    if (keeper_ != nullptr) keeper_->Stop();
    thread_.join();
  }
  std::future<Entered> Enter(const SessionName& name = {"", "s"}) {
    auto promise = std::make_shared<std::promise<Entered>>();
    boost::asio::post(thread_, [this, promise, name] {
      keeper_->Enter(name, {},
                     [promise](Entered entered) { promise->set_value(std::move(entered)); });
    });
    return promise->get_future();
  }
  static std::string EpochOf(std::future<Entered>* future) {
    const Entered entered = future->get();
    if (!entered.ok()) return entered.error().code + ": " + entered.error().message;
    return (*entered)->lease.epoch;
  }

  boost::asio::thread_pool thread_{1};
  std::unique_ptr<SessionKeeper> keeper_;
  SlowStore* store_ = nullptr;
};

TEST_F(SessionKeeperTest, RenewsTheLeaseWhileASessionIsFetched) {
  Start(/*awaited=*/3);
  auto first = Enter();
  EXPECT_EQ(EpochOf(&first), "1");
  EXPECT_EQ(store_->num_fetches(), 1);
}

TEST_F(SessionKeeperTest, AnotherRequestWaitsWhileASessionIsFetched) {
  Start(/*awaited=*/2);
  auto first = Enter(), second = Enter();
  // Either request may get the session; the other one is refused as busy, because it does not wait
  // as long as the fetch lasts.
  EXPECT_THAT(
      (std::vector<std::string>{EpochOf(&first), EpochOf(&second)}),
      testing::UnorderedElementsAre("1", "session_busy: another request uses session \"s\""));
  EXPECT_EQ(store_->num_fetches(), 1);
}

TEST_F(SessionKeeperTest, WhatWasFetchedUnderALostLeaseIsFetchedAnew) {
  // A request waits a second longer than the lease of 3 s lasts, which is enough also on a busy
  // machine.
  Start(/*awaited=*/1, /*lost_at=*/1, /*lease_seconds=*/3);
  auto first = Enter();
  EXPECT_EQ(EpochOf(&first), "2");
  EXPECT_EQ(store_->num_fetches(), 2);
}

// FolderLikeStore has a session for every name, each with epoch "1", like a store in a folder. A
// fetch writes the session's name in two halves and waits between them until two fetches have
// written their first half, so that the test notices if both write to the same file.
class FolderLikeStore final : public FakeStore {
 public:
  Result<std::optional<Lease>> Acquire(const SessionName& name) override {
    return std::optional(Lease{name, "1"});
  }
  Result<Held> Renew(const Lease&) override { return Held::kYes; }
  Status Release(const Lease&) override { return OkStatus(); }
  Status Get(const Manifest& manifest, const std::string& path) override {
    std::ofstream(path) << manifest.tenant << '/';
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    bool both = false;
    {
      const MutexLock lock(mutex_);
      ++num_begun_;
      changed_.NotifyAll();
      while (num_begun_ < 2 && changed_.WaitUntil(mutex_, end)) {
      }
      both = num_begun_ >= 2;
    }
    std::ofstream(path, std::ios::app) << manifest.id;
    return both ? OkStatus() : IoError("no second fetch began");
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  int num_begun_ EBB_GUARDED_BY(mutex_) = 0;
};

TEST_F(SessionKeeperTest, SessionsOfTwoTenantsFetchedAtOnceGetFilesOfTheirOwn) {
  StartWith(std::make_unique<FolderLikeStore>());
  auto first = Enter({"tenant-one", "s"}), second = Enter({"tenant-two", "s"});
  const auto content_of = [](std::future<Entered>* future) {
    const Entered entered = future->get();
    if (!entered.ok()) return entered.error().message;
    std::ostringstream bytes;
    bytes << std::ifstream((*entered)->file).rdbuf();
    return bytes.str();
  };
  EXPECT_EQ(content_of(&first), "tenant-one/s");
  EXPECT_EQ(content_of(&second), "tenant-two/s");
}

TEST(ScratchPath, IsReturnedOnce) {
  std::vector<std::future<std::vector<std::string>>> threads;
  for (int i = 0; i < 4; ++i) {
    threads.push_back(std::async(std::launch::async, [] {
      std::vector<std::string> paths;
      for (int j = 0; j < 1000; ++j) paths.push_back(NewScratchPath("/folder", "fetched"));
      return paths;
    }));
  }
  std::set<std::string> all;
  for (auto& thread : threads) {
    for (std::string& path : thread.get()) all.insert(std::move(path));
  }
  EXPECT_EQ(all.size(), 4000u);
}

}  // namespace
}  // namespace ebb::server

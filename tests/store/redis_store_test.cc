// What can happen to a server that is another process, and how stores are named.
#include <csignal>

#include <gmock/gmock.h>

#include "src/store/redis_store.h"
#include "tests/store/store_fixture.h"

namespace ebb::store {
namespace {

using testing::HasSubstr;

const SessionName kOneSession = {"", "one"};
const StoreLimits kShort = {.lease = 60, .connect = 0.3, .operation = 0.3};

class RedisStoreTest : public StoreTest {};

TEST_P(RedisStoreTest, OneThatIsStoppedIsAnErrorUntilItIsBack) {
  const auto store = Open(kShort);
  const Lease lease = AcquireFrom(*store, kOneSession);
  ASSERT_EQ(PutInto(*store, lease, "bytes", "r"), Held::kYes);
  redis_->Stop();
  EXPECT_EQ(store->Renew(lease).status().code(), StatusCode::kIo);
  EXPECT_EQ(store->Describe(kOneSession).status().code(), StatusCode::kIo);
  const auto refused = OpenStore(*ParseStoreUrl(url_), kShort);
  EXPECT_THAT(refused.status().message(), HasSubstr("cannot reach the session store"));
  redis_->Start();
  // It has forgotten everything, and nobody else has had the lease.
  EXPECT_EQ(*store->Renew(lease), Held::kYes);
  EXPECT_EQ(PutInto(*store, lease, "again", "r"), Held::kYes);
  EXPECT_EQ(ContentOf(*store, kOneSession), "r|again");
}

TEST_P(RedisStoreTest, OneThatIsPausedIsAnErrorUntilItGoesOn) {
  const auto store = Open(kShort);
  const Lease lease = AcquireFrom(*store, kOneSession);
  ASSERT_EQ(PutInto(*store, lease, "bytes", "r"), Held::kYes);
  redis_->Pause();
  EXPECT_EQ(store->Renew(lease).status().code(), StatusCode::kIo);
  Manifest manifest = Lasting();
  EXPECT_EQ(store->Put(lease, WriteFile("more"), "r", &manifest).status().code(), StatusCode::kIo);
  redis_->Continue();
  EXPECT_EQ(*store->Renew(lease), Held::kYes);
  EXPECT_EQ(ContentOf(*store, kOneSession), "r|bytes");
}

TEST_P(RedisStoreTest, OneThatWouldLetSessionsGoIsRefused) {
  Tell({"CONFIG", "SET", "maxmemory-policy", "allkeys-lru"});
  const auto store = OpenStore(*ParseStoreUrl(url_), kShort);
  EXPECT_EQ(store.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(store.status().message(), HasSubstr("expected maxmemory-policy noeviction, found "
                                                  "allkeys-lru"));
}

TEST_P(RedisStoreTest, DatabasesAndPasswordsAreThoseOfTheUrl) {
  url_ += "?db=3";
  const auto store = Open();
  const Lease lease = AcquireFrom(*store, kOneSession);
  ASSERT_EQ(PutInto(*store, lease, "bytes", "r"), Held::kYes);
  EXPECT_GT(Tell({"DBSIZE"}).number, 0);
  url_ = redis_->url();
  EXPECT_EQ(Tell({"DBSIZE"}).number, 0);
  Tell({"CONFIG", "SET", "requirepass", "secret"});
  const auto refused = OpenStore(*ParseStoreUrl(url_), kShort);
  EXPECT_EQ(refused.status().code(), StatusCode::kIo);
  EXPECT_THAT(refused.status().message(), HasSubstr("NOAUTH"));
  StoreUrl url = *ParseStoreUrl(url_);
  url.password = "secret";
  EXPECT_TRUE(OpenStore(url, kShort).ok());
}

INSTANTIATE_TEST_SUITE_P(Every, RedisStoreTest, testing::Values(Place::kRedis, Place::kValkey),
                         NameOf);

TEST(StoreUrlTest, NamesAPlace) {
  EXPECT_EQ(ParseStoreUrl("file:/a/b")->folder, "/a/b");
  StoreUrl url = *ParseStoreUrl("redis://localhost");
  EXPECT_EQ(url.host, "localhost");
  EXPECT_EQ(url.port, 6379);
  EXPECT_EQ(url.database, 0);
  url = *ParseStoreUrl("valkey://ada:pa:ss@10.0.0.1:7000/5");
  EXPECT_EQ(url.user, "ada");
  EXPECT_EQ(url.password, "pa:ss");
  EXPECT_EQ(url.host, "10.0.0.1");
  EXPECT_EQ(url.port, 7000);
  EXPECT_EQ(url.database, 5);
  url = *ParseStoreUrl("redis://[::1]:7001");
  EXPECT_EQ(url.host, "::1");
  EXPECT_EQ(url.port, 7001);
  url = *ParseStoreUrl("redis+unix:/run/redis.sock?db=2");
  EXPECT_EQ(url.socket, "/run/redis.sock");
  EXPECT_EQ(url.database, 2);
  for (const char* bad : {"", "file:", "redis://", "redis://h:0", "redis://h:port", "redis://h/x",
                          "redis://user@h", "redis+unix:", "redis+unix:/s?x=1", "http://h"}) {
    EXPECT_EQ(ParseStoreUrl(bad).status().code(), StatusCode::kInvalidArgument) << bad;
  }
}

}  // namespace
}  // namespace ebb::store

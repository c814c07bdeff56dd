// What every store must do, held against each of them.
#include <sys/resource.h>
#include <sys/wait.h>

#include <chrono>
#include <csignal>
#include <map>
#include <thread>

#include <gmock/gmock.h>

#include "src/store/chunks.h"
#include "tests/store/store_fixture.h"

namespace ebb::store {
namespace {

using testing::HasSubstr;

const SessionName kName = {"", "one"};

void Sleep(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

class SessionStoreTest : public StoreTest {};

TEST_P(SessionStoreTest, WhatIsPutIsWhatIsGotten) {
  const auto store = Open();
  const Lease lease = AcquireFrom(*store, kName);
  EXPECT_EQ(ContentOf(*store, kName), std::nullopt);
  const std::string record("a\nb\0c", 5);
  for (const size_t size : {size_t{0}, size_t{1}, kChunkBytes, kChunkBytes + 1, 12 * kChunkBytes}) {
    const std::string bytes = RandomBytes(size, size);
    ASSERT_EQ(PutInto(*store, lease, bytes, record), Held::kYes);
    EXPECT_TRUE(ContentOf(*Open(), kName) == record + "|" + bytes) << size;
  }
  const auto stored = store->Describe(kName);
  ASSERT_TRUE(stored.ok() && stored->has_value());
  EXPECT_EQ((*stored)->manifest.bytes, 12 * kChunkBytes);
  EXPECT_EQ((*stored)->manifest.tokens, 7u);
  EXPECT_EQ((*stored)->manifest.epoch, lease.epoch);
}

TEST_P(SessionStoreTest, ALeaseHasOneHolder) {
  const auto store = Open();
  const auto other = Open();
  const Lease first = AcquireFrom(*store, kName);
  for (SessionStore* asked : {store.get(), other.get()}) {
    const auto lease = asked->Acquire(kName);
    ASSERT_TRUE(lease.ok());
    EXPECT_FALSE(lease->has_value());
  }
  // Other names are other sessions.
  const Lease elsewhere = AcquireFrom(*other, {"tenant", "one"});
  EXPECT_EQ(*store->Renew(first), Held::kYes);
  ASSERT_TRUE(store->Release(first).ok());
  const Lease second = AcquireFrom(*other, kName);
  EXPECT_NE(second.epoch, first.epoch);
  // Released once more, it takes nothing from the next holder.
  ASSERT_TRUE(store->Release(first).ok());
  EXPECT_FALSE(store->Acquire(kName)->has_value());
  EXPECT_EQ(*other->Renew(second), Held::kYes);
  EXPECT_EQ(*other->Renew(elsewhere), Held::kYes);
}

TEST_P(SessionStoreTest, TheLeaseOfAHolderThatDiesEnds) {
  auto dying = Open({.lease = 0.2});
  static_cast<void>(AcquireFrom(*dying, kName));
  dying.reset();
  const auto store = Open();
  for (int i = 0; i < 1000; ++i) {
    const auto lease = store->Acquire(kName);
    ASSERT_TRUE(lease.ok());
    if (lease->has_value()) return;
    Sleep(0.01);
  }
  FAIL() << "it never ends";
}

TEST_P(SessionStoreTest, AWriterThatLostItsLeaseChangesNothing) {
  const auto store = Open();
  const auto other = Open();
  const Lease lost = AcquireFrom(*store, kName);
  ASSERT_EQ(PutInto(*store, lost, "old", "r"), Held::kYes);
  LetLapse(kName);
  // A folder that was put back from a copy, for instance.
  if (is_file()) std::filesystem::remove(folder_.path() + "/store/t-/one.lock");
  const Lease now = AcquireFrom(*other, kName);
  ASSERT_EQ(PutInto(*other, now, "new", "r"), Held::kYes);
  EXPECT_EQ(*store->Renew(lost), Held::kNo);
  EXPECT_EQ(PutInto(*store, lost, "late", "r"), Held::kNo);
  EXPECT_EQ(*store->Delete(lost), Held::kNo);
  ASSERT_TRUE(store->Release(lost).ok());
  EXPECT_EQ(ContentOf(*other, kName), "r|new");
  EXPECT_EQ(*other->Renew(now), Held::kYes);
  // Nor does it bring back what was deleted.
  ASSERT_EQ(*other->Delete(now), Held::kYes);
  ASSERT_TRUE(other->Release(now).ok());
  EXPECT_EQ(PutInto(*store, lost, "late", "r"), Held::kNo);
  EXPECT_EQ(ContentOf(*other, kName), std::nullopt);
}

TEST_P(SessionStoreTest, ALeaseThatNobodyElseTookGoesOn) {
  const auto store = Open();
  const Lease lease = AcquireFrom(*store, kName);
  LetLapse(kName);
  EXPECT_EQ(PutInto(*store, lease, "bytes", "r"), Held::kYes);
  EXPECT_EQ(*store->Renew(lease), Held::kYes);
  EXPECT_FALSE(Open()->Acquire(kName)->has_value());
}

TEST_P(SessionStoreTest, ListsATenantsSessionsInPages) {
  const auto store = Open();
  for (const char* id : {"b", "d", "a", "c", "e"}) {
    const Lease lease = AcquireFrom(*store, {"me", id});
    ASSERT_EQ(PutInto(*store, lease, id, "r"), Held::kYes);
    ASSERT_TRUE(store->Release(lease).ok());
  }
  const Lease others = AcquireFrom(*store, {"you", "x"});
  ASSERT_EQ(PutInto(*store, others, "x", "r"), Held::kYes);
  std::string after, ids, pages;
  do {
    const auto page = store->List("me", after, 2);
    ASSERT_TRUE(page.ok()) << page.status().ToString();
    for (const Manifest& one : page->sessions) ids += one.id;
    pages += std::to_string(page->sessions.size());
    after = page->next;
  } while (!after.empty());
  EXPECT_EQ(ids, "abcde");
  EXPECT_EQ(pages, "221");
  EXPECT_TRUE(store->List("nobody", "", 10)->sessions.empty());
  const Lease c = AcquireFrom(*store, {"me", "c"});
  ASSERT_EQ(*store->Delete(c), Held::kYes);
  EXPECT_EQ(store->List("me", "", 10)->sessions.size(), 4u);
}

TEST_P(SessionStoreTest, ATouchedSessionStaysForLonger) {
  const auto store = Open();
  const Lease lease = AcquireFrom(*store, kName);
  EXPECT_EQ(store->Touch(lease, NowMs(), NowMs() + 60'000).status().code(), StatusCode::kNotFound);
  Manifest manifest = Lasting(/*ms=*/300);
  ASSERT_EQ(*store->Put(lease, WriteFile("bytes"), "r", &manifest), Held::kYes);
  const int64_t used_ms = NowMs() + 1;
  ASSERT_EQ(*store->Touch(lease, used_ms, used_ms + 60'000), Held::kYes);
  Sleep(0.35);
  ASSERT_TRUE(store->Sweep().ok());
  EXPECT_EQ(ContentOf(*Open(), kName), "r|bytes");
  EXPECT_EQ((*store->Describe(kName))->manifest.used_ms, used_ms);
  LetLapse(kName);
  ASSERT_TRUE(store->Release(lease).ok());
  const Lease now = AcquireFrom(*store, kName);
  EXPECT_EQ(*store->Touch(lease, used_ms + 9, used_ms + 60'000), Held::kNo);
  EXPECT_EQ((*store->Describe(kName))->manifest.used_ms, used_ms);
  EXPECT_EQ(*store->Touch(now, used_ms + 9, used_ms + 60'000), Held::kYes);
}

TEST_P(SessionStoreTest, IdsAreThoseOfDamagedSessionsToo) {
  const auto store = Open();
  EXPECT_TRUE(store->ListIds("me")->empty());
  for (const char* id : {"b", "a", "c"}) {
    const Lease lease = AcquireFrom(*store, {"me", id});
    ASSERT_EQ(PutInto(*store, lease, id, "r"), Held::kYes);
  }
  const Lease other = AcquireFrom(*store, {"you", "x"});
  ASSERT_EQ(PutInto(*store, other, "x", "r"), Held::kYes);
  if (is_file()) {
    std::ofstream(folder_.path() + "/store/t-me/b.manifest") << "{";
  } else {
    Tell({"HSET", "ebb:{me/b}:session", "manifest", "{"});
  }
  EXPECT_FALSE(store->Describe({"me", "b"}).ok());
  EXPECT_THAT(*store->ListIds("me"), testing::ElementsAre("a", "b", "c"));
}

TEST_P(SessionStoreTest, SessionsWhoseTimeIsOverGo) {
  const auto store = Open();
  const Lease lease = AcquireFrom(*store, kName);
  Manifest manifest = Lasting(/*ms=*/300);
  ASSERT_EQ(*store->Put(lease, WriteFile("bytes"), "r", &manifest), Held::kYes);
  EXPECT_EQ(ContentOf(*store, kName), "r|bytes");
  ASSERT_TRUE(store->Release(lease).ok());
  Sleep(0.35);
  EXPECT_EQ(ContentOf(*store, kName), std::nullopt);
  EXPECT_TRUE(store->List("", "", 10)->sessions.empty());
  // A counter and the memory of the last lease may be left. A server counts keys whose time is over
  // until it comes by.
  const size_t most = is_file() ? 0 : 2;
  for (int i = 0; i < 500; ++i) {
    ASSERT_TRUE(store->Sweep().ok());
    if (NumThings() <= most) break;
    Sleep(0.02);
  }
  EXPECT_LE(NumThings(), most);
}

TEST_P(SessionStoreTest, AWriterThatIsKilledLeavesTheOldGeneration) {
  const auto store = Open({.orphan = is_file() ? 0.0 : 0.5});
  const Lease lease = AcquireFrom(*store, kName);
  ASSERT_EQ(PutInto(*store, lease, "old", "r"), Held::kYes);
  ASSERT_TRUE(store->Release(lease).ok());
  const size_t num_things = NumThings();
  const std::string large = WriteFile(RandomBytes(64 * kChunkBytes, 1));
  for (int round = 0; round < 5; ++round) {
    const pid_t child = fork();
    if (child == 0) {
      const auto writer = Open({.orphan = 0.5});
      const auto held = writer->Acquire(kName);
      Manifest manifest = Lasting();
      if (held.ok() && held->has_value()) {
        static_cast<void>(writer->Put(**held, large, "r", &manifest));
      }
      // It would be gone before it is killed.
      _exit(manifest.generation.empty() ? 1 : 0);
    }
    Sleep(0.002 * (round + 1));
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFEXITED(status)) continue;  // it was faster
    EXPECT_EQ(ContentOf(*store, kName), "r|old");
    LetLapse(kName);
  }
  const Lease next = AcquireFrom(*store, kName);
  ASSERT_EQ(PutInto(*store, next, "new", "r"), Held::kYes);
  ASSERT_TRUE(store->Release(next).ok());
  if (!is_file()) Sleep(0.6);
  ASSERT_TRUE(store->Sweep().ok());
  EXPECT_EQ(ContentOf(*store, kName), "r|new");
  EXPECT_LE(NumThings(), num_things);
}

TEST_P(SessionStoreTest, WhatIsDamagedIsFound) {
  const auto store = Open();
  const Lease lease = AcquireFrom(*store, kName);
  ASSERT_EQ(PutInto(*store, lease, RandomBytes(2 * kChunkBytes, 1), "record"), Held::kYes);
  const auto stored = store->Describe(kName);
  ASSERT_TRUE(stored.ok() && stored->has_value());
  const Manifest manifest = (*stored)->manifest;
  const std::string got = folder_.path() + "/got";
  const std::string base = "ebb:{/one}:";
  const std::string data = folder_.path() + "/store/t-/one." + manifest.generation + ".data";
  if (is_file()) {
    std::fstream(data, std::ios::in | std::ios::out).seekp(kChunkBytes + 5).put('!').put('?');
  } else {
    Tell({"SETRANGE", base + manifest.generation + ":1", "5", "!?"});
  }
  Status status = store->Get(manifest, got);
  EXPECT_EQ(status.code(), StatusCode::kCorrupt);
  EXPECT_THAT(status.message(), HasSubstr("chunk 1 of 2 is damaged"));
  if (is_file()) {
    std::filesystem::remove(data);
  } else {
    Tell({"DEL", base + manifest.generation + ":0"});
  }
  status = store->Get(manifest, got + "-again");
  EXPECT_EQ(status.code(), StatusCode::kCorrupt);
  EXPECT_THAT(status.message(), HasSubstr("missing"));
  const std::string named = folder_.path() + "/store/t-/one.manifest";
  const auto damage = [&](const std::string& text, const std::string& record) {
    if (is_file()) {
      std::ofstream(named) << text << "\n" << record;
    } else {
      Tell({"HSET", base + "session", "manifest", text, "record", record});
    }
    return store->Describe(kName).status();
  };
  EXPECT_THAT(damage(EncodeManifest(manifest), "recorD").message(), HasSubstr("the record of"));
  EXPECT_THAT(damage("{\"version\":1", "record").message(), HasSubstr("manifest"));
  EXPECT_EQ(damage("{\"version\":1}", "record").code(), StatusCode::kCorrupt);
  EXPECT_EQ(damage("{\"version\":2}", "record").code(), StatusCode::kUnsupported);
  // Others are listed all the same.
  const Lease other = AcquireFrom(*store, {kName.tenant, "other"});
  ASSERT_EQ(PutInto(*store, other, "bytes", "record"), Held::kYes);
  const auto page = store->List(kName.tenant, "", 10);
  ASSERT_TRUE(page.ok()) << page.status().ToString();
  ASSERT_EQ(page->sessions.size(), 1u);
  EXPECT_EQ(page->sessions.front().id, "other");
  // Numbers that its types do not hold.
  for (const char* number : {"5e77", "-1", "1.5", "18446744073709551616", "\"1\""}) {
    std::string text = EncodeManifest(manifest);
    const size_t at = text.find("\"tokens\":") + 9;
    text.replace(at, text.find_first_of(",}", at) - at, number);
    const Status status = damage(text, "record");
    EXPECT_EQ(status.code(), StatusCode::kCorrupt) << number;
    EXPECT_THAT(status.message(), HasSubstr("a whole number that is not too large")) << number;
  }
  Manifest foreign = manifest;
  foreign.id = "two";
  EXPECT_THAT(damage(EncodeManifest(foreign), "record").message(),
              HasSubstr("is that of session two"));
}

TEST_P(SessionStoreTest, NamesThatAreNoneAreRefused) {
  const auto store = Open();
  for (const SessionName& name :
       {SessionName{"", ""}, SessionName{"", "../x"}, SessionName{"", "a.b"},
        SessionName{"", std::string(65, 'a')}, SessionName{std::string(65, 't'), "a"}}) {
    EXPECT_EQ(store->Acquire(name).status().code(), StatusCode::kInvalidArgument) << name.id;
    EXPECT_EQ(store->Describe(name).status().code(), StatusCode::kInvalidArgument) << name.id;
  }
  // Tenants have any names, and none reaches another one's place.
  const SessionName odd = {"../t-x/%\n", "a:b"};
  const Lease lease = AcquireFrom(*store, odd);
  ASSERT_EQ(PutInto(*store, lease, "odd", "r"), Held::kYes);
  EXPECT_EQ(ContentOf(*store, odd), "r|odd");
  EXPECT_EQ(store->List(odd.tenant, "", 10)->sessions.size(), 1u);
  ASSERT_TRUE(store->Release(lease).ok());
  ASSERT_TRUE(store->Sweep().ok());
  EXPECT_EQ(ContentOf(*store, odd), "r|odd");
}

TEST_P(SessionStoreTest, AFileThatIsNotThereLeavesTheOldGeneration) {
  const auto store = Open();
  const Lease lease = AcquireFrom(*store, kName);
  ASSERT_EQ(PutInto(*store, lease, "old", "r"), Held::kYes);
  Manifest manifest = Lasting();
  EXPECT_EQ(store->Put(lease, "/no/such/file", "r", &manifest).status().code(),
            StatusCode::kNotFound);
  EXPECT_EQ(ContentOf(*store, kName), "r|old");
}

TEST_P(SessionStoreTest, AStoreThatIsFullSaysSoAndKeepsWhatItHas) {
  const auto store = Open();
  const Lease lease = AcquireFrom(*store, kName);
  ASSERT_EQ(PutInto(*store, lease, "old", "r"), Held::kYes);
  const std::string large = WriteFile(RandomBytes(8 * kChunkBytes, 1));
  if (is_file()) {
    // Files of at most so many bytes, in a process of their own; the lease is a fork's too.
    const pid_t child = fork();
    if (child == 0) {
      std::signal(SIGXFSZ, SIG_IGN);
      const rlimit limit = {3 * kChunkBytes, 3 * kChunkBytes};
      setrlimit(RLIMIT_FSIZE, &limit);
      Manifest manifest = Lasting();
      const auto held = store->Put(lease, large, "r", &manifest);
      _exit(held.status().code() == StatusCode::kStorageFull ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  } else {
    Tell({"CONFIG", "SET", "maxmemory", "4mb"});
    Manifest manifest = Lasting();
    const auto held = store->Put(lease, large, "r", &manifest);
    EXPECT_EQ(held.status().code(), StatusCode::kStorageFull) << held.status().ToString();
    Tell({"CONFIG", "SET", "maxmemory", "0"});
  }
  EXPECT_EQ(ContentOf(*store, kName), "r|old");
  EXPECT_EQ(PutInto(*store, lease, "new", "r"), Held::kYes);
  EXPECT_EQ(ContentOf(*store, kName), "r|new");
}

// Random operations of three processes on two sessions, held against what they must come to.
TEST_P(SessionStoreTest, AnyOrderOfOperationsAgreesWithAModel) {
  struct Process {
    std::unique_ptr<SessionStore> store;
    std::map<std::string, Lease> leases;  // by id, those that were lost among them
  };
  struct Session {
    std::optional<std::string> content;
    std::optional<std::string> holder;  // the epoch, until it lapses
    std::string last;                   // epoch
  };
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    std::mt19937_64 random(seed);
    const std::string tenant = "t" + std::to_string(seed);
    std::vector<Process> processes(3);
    for (Process& process : processes) process.store = Open({.lease = 600});
    std::map<std::string, Session> sessions;
    for (int i = 0; i < 150; ++i) {
      Process& process = processes[random() % processes.size()];
      const std::string id = random() % 2 == 0 ? "a" : "b";
      const SessionName name = {tenant, id};
      Session& session = sessions[id];
      const auto own = process.leases.find(id);
      const bool has_lease = own != process.leases.end();
      const bool may_write = has_lease && own->second.epoch == session.last;
      SCOPED_TRACE(testing::Message() << "seed " << seed << ", operation " << i);
      switch (random() % 7) {
        case 0: {
          const auto lease = process.store->Acquire(name);
          ASSERT_TRUE(lease.ok()) << lease.status().ToString();
          ASSERT_EQ(lease->has_value(), !session.holder.has_value());
          if (!lease->has_value()) break;
          process.leases[id] = **lease;
          session.holder = session.last = (*lease)->epoch;
          break;
        }
        case 1:
        case 2: {
          if (!has_lease) break;
          const std::string bytes = RandomBytes(random() % 5000, random());
          const std::string record = std::to_string(random());
          ASSERT_EQ(PutInto(*process.store, own->second, bytes, record),
                    may_write ? Held::kYes : Held::kNo);
          if (may_write) session.content = record + "|" + bytes;
          break;
        }
        case 3: {
          if (!has_lease) break;
          ASSERT_TRUE(process.store->Release(own->second).ok());
          if (session.holder == own->second.epoch) session.holder.reset();
          // Given back, it is of no use any more.
          if (is_file() || random() % 2 == 0) process.leases.erase(own);
          break;
        }
        case 4: {
          if (!has_lease || random() % 4 != 0) break;
          ASSERT_EQ(*process.store->Delete(own->second), may_write ? Held::kYes : Held::kNo);
          if (may_write) session.content.reset();
          break;
        }
        case 5: {
          // Its leases lapse, and perhaps it dies with them.
          for (const auto& [held_id, lease] : process.leases) {
            Session& held = sessions[held_id];
            if (held.holder != lease.epoch) continue;
            LetLapse({tenant, held_id});
            held.holder.reset();
          }
          if (is_file() || random() % 2 == 0) {
            process.leases.clear();
            process.store = Open({.lease = 600});
          }
          break;
        }
        case 6: {
          if (!has_lease) break;
          ASSERT_EQ(*process.store->Renew(own->second), may_write ? Held::kYes : Held::kNo);
          if (may_write) session.holder = own->second.epoch;
          break;
        }
      }
      ASSERT_EQ(ContentOf(*process.store, name), session.content);
    }
    for (const auto& [id, session] : sessions) EXPECT_NE(session.last, "");
  }
}

INSTANTIATE_TEST_SUITE_P(Every, SessionStoreTest,
                         testing::Values(Place::kFile, Place::kRedis, Place::kValkey), NameOf);

}  // namespace
}  // namespace ebb::store

// Checks prompts whose rows are in the session store: servers that start later, or run at the same
// time, fetch the rows and answer with the bits of reading the prompt.
#include <filesystem>
#include <fstream>
#include <optional>

#include "src/store/chunks.h"
#include "src/store/redis_link.h"
#include "tests/server/server_fixture.h"
#include "tests/support/child_process.h"
#include "tests/support/numbers.h"
#include "tests/support/redis_server.h"
#include "tests/support/skip.h"

namespace ebb::server {
namespace {

using nlohmann::json;
using testing::HasSubstr;

constexpr int kAnswerTokens = 40;  // tokens of an answer

enum class StorePlace { kFile, kRedis };

class PrefixStoreTest : public ServerTest, public testing::WithParamInterface<StorePlace> {
 protected:
  void SetUp() override {
    if (is_file()) {
      url_ = "file:" + folder_.path() + "/store";
    } else if (RedisServer::ProgramOf(RedisKind::kRedis).empty()) {
      EBB_SKIP_WITHOUT("redis") << RedisServer::SkipReason(RedisKind::kRedis);
    } else {
      redis_.emplace(RedisKind::kRedis);
      url_ = redis_->url();
    }
  }
  // Destroys the fixture's server before the store.
  void TearDown() override { server_.reset(); }

  [[nodiscard]] bool is_file() const { return GetParam() == StorePlace::kFile; }
  [[nodiscard]] ServerOptions Storing() const {
    ServerOptions options = Options();
    options.driver.prefix_cache_bytes = 64 * kMiB;
    options.sessions = *store::ParseStoreUrl(url_);
    options.prefix_store = {.most_bytes = 256 * kMiB,
                            .least_tokens = 32,
                            .settling = 0,
                            .settling_if_busy = 0,
                            .least_patience = 30,
                            .most_patience = 30,
                            .back_off = 0.1};
    return options;
  }
  // Restarts the server, as if its process were stopped and started again.
  void Restart(const ServerOptions& options) {
    server_.reset();
    Start(options);
  }
  [[nodiscard]] std::unique_ptr<store::SessionStore> OpenTheStore() const {
    return *store::OpenStore(*store::ParseStoreUrl(url_), {});
  }
  [[nodiscard]] std::vector<std::string> Ids() const {
    return *OpenTheStore()->ListIds(PrefixStore::kTenant);
  }

  // Returns a request whose prompt has several blocks and ends with question `number`.
  static json Long(uint64_t number, const json& more = json::object()) {
    std::string text;
    for (uint64_t i = 0; i < 4; ++i) text += Question(100 + i) + " ";
    json body = {{"messages", {{{"role", "user"}, {"content", text + Question(number)}}}},
                 {"max_tokens", kAnswerTokens},
                 {"ebb", {{"logits_hash", true}}}};
    body.update(more);
    return body;
  }
  static json Ask(uint16_t port, const json& body, const std::string& headers = "") {
    Client client(port);
    client.Send(Client::Request("POST", "/v1/chat/completions", body.dump(),
                                "Content-Type: application/json\r\n" + headers));
    const ClientAnswer answer = client.Receive();
    EXPECT_EQ(answer.status, 200) << answer.body;
    return answer.json();
  }
  json Ask(const json& body, const std::string& headers = "") { return Ask(port(), body, headers); }
  static int CachedTokens(const json& answer) {
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"];
  }
  static int PromptTokens(const json& answer) { return answer["usage"]["prompt_tokens"]; }
  // Sends the request without prefix caching.
  json ReadUncached(json body) {
    body["cache_prompt"] = false;
    return Ask(body);
  }
  static void ExpectSame(const json& answer, const json& expected) {
    EXPECT_EQ(answer["ebb"]["logits_hash"], expected["ebb"]["logits_hash"]);
    EXPECT_EQ(answer["choices"], expected["choices"]);
  }
  static int64_t Metric(uint16_t port, const std::string& name) {
    const std::string text = Client(port).Get("/metrics").body;
    const size_t found = text.find("\n" + name + " ");
    EXPECT_NE(found, std::string::npos) << name;
    return found == std::string::npos ? -1 : std::stoll(text.substr(found + name.size() + 2));
  }
  int64_t Metric(const std::string& name) { return Metric(port(), name); }
  // Waits until a metric has reached a value.
  void AwaitMetric(const std::string& name, int64_t value) {
    for (int i = 0; i < 3000; ++i) {
      if (Metric(name) >= value) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    FAIL() << name << " is " << Metric(name);
  }
  // Changes a byte of an entry's rows; `offset` from the end.
  void FlipByte(const std::string& id, size_t offset) {
    const auto stored = OpenTheStore()->Describe({PrefixStore::kTenant, id});
    ASSERT_TRUE(stored.ok() && stored->has_value());
    const store::Manifest& manifest = (*stored)->manifest;
    if (is_file()) {
      std::fstream file(PathOf(id, manifest.generation + ".data"),
                        std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(-static_cast<std::streamoff>(offset), std::ios::end).put('!').put('?');
      return;
    }
    const size_t last = manifest.chunk_hashes.size() - 1;
    const size_t size = manifest.bytes - last * store::kChunkBytes;
    Tell({"SETRANGE", KeyOf(id, fmt::format("{}:{}", manifest.generation, last)),
          std::to_string(size - offset), "!?"});
  }
  void CutOff(const std::string& id) {
    const auto stored = OpenTheStore()->Describe({PrefixStore::kTenant, id});
    const store::Manifest& manifest = (*stored)->manifest;
    if (is_file()) {
      std::filesystem::resize_file(PathOf(id, manifest.generation + ".data"), manifest.bytes / 2);
    } else {
      Tell({"SET", KeyOf(id, manifest.generation + ":0"), "short"});
    }
  }
  void DamageRecord(const std::string& id) {
    if (is_file()) {
      std::ofstream(PathOf(id, "manifest"), std::ios::app) << "x";
    } else {
      Tell({"HSET", KeyOf(id, "session"), "record", "x"});
    }
  }
  // Replaces the rows and the record of an entry by the given ones, with valid checksums.
  void Overwrite(const std::string& id, const std::string& file, const std::string& record) {
    const auto store = OpenTheStore();
    const auto lease = store->Acquire({PrefixStore::kTenant, id});
    ASSERT_TRUE(lease.ok() && lease->has_value());
    store::Manifest manifest = (*store->Describe({PrefixStore::kTenant, id}))->manifest;
    ASSERT_TRUE(store->Put(**lease, file, record, &manifest).ok());
    ASSERT_TRUE(store->Release(**lease).ok());
  }
  std::string RowsOf(const std::string& id) {
    const auto store = OpenTheStore();
    std::string file = folder_.path() + "/rows-" + id;
    EXPECT_TRUE(store->Get((*store->Describe({PrefixStore::kTenant, id}))->manifest, file).ok());
    return file;
  }
  static std::string RecordOf(store::SessionStore& store, const std::string& id) {
    return (*store.Describe({PrefixStore::kTenant, id}))->record;
  }
  [[nodiscard]] std::string PathOf(const std::string& id, const std::string& suffix) const {
    return fmt::format("{}/store/t-%2Fprefixes/{}.{}", folder_.path(), id, suffix);
  }
  static std::string KeyOf(const std::string& id, const std::string& suffix) {
    return fmt::format("ebb:{{%2Fprefixes/{}}}:{}", id, suffix);
  }
  void Tell(const std::vector<std::string_view>& words) {
    auto link = store::RedisLink::Connect(*store::ParseStoreUrl(url_), {});
    ASSERT_TRUE(link.ok()) << link.status().ToString();
    ASSERT_TRUE((*link)->Do(words).ok());
  }
  // Reads the prompts of some questions and stops, so that the store has them.
  void Fill(const std::vector<uint64_t>& numbers, const ServerOptions& options) {
    Restart(options);
    for (const uint64_t number : numbers) static_cast<void>(Ask(Long(number)));
    server_.reset();
  }

  TemporaryFolder folder_;
  std::optional<RedisServer> redis_;
  std::string url_;
};

TEST_P(PrefixStoreTest, ARestartedServerTakesAPromptBackBitForBit) {
  Start(Storing());
  const json first = Ask(Long(1));
  EXPECT_EQ(CachedTokens(first), 0);
  Restart(Storing());
  const json second = Ask(Long(1));
  EXPECT_EQ(CachedTokens(second), PromptTokens(first) - 2);
  ExpectSame(second, first);
  ExpectSame(ReadUncached(Long(1)), first);
  EXPECT_EQ(Metric("ebb_prefix_store_hits_total"), 1);
  EXPECT_GE(Metric("ebb_prefix_store_tokens_total"), PromptTokens(first) - 64);
  // The prompt is in memory now, and is not written a second time.
  EXPECT_EQ(CachedTokens(Ask(Long(1))), PromptTokens(first) - 2);
  EXPECT_EQ(Metric("ebb_prefix_store_hits_total"), 1);
  Restart(Storing());
  static_cast<void>(Ask(Long(1)));
  EXPECT_EQ(Metric("ebb_prefix_store_written_total"), 0);
  EXPECT_EQ(Metric("ebb_prefix_store_prompts"), 1);
}

TEST_P(PrefixStoreTest, AnotherServerTakesWhatOneHasReadWhileBothRun) {
  Start(Storing());
  const json first = Ask(Long(1));
  AwaitMetric("ebb_prefix_store_written_total", 1);
  const auto other = Server::Start(model_, Storing());
  ASSERT_TRUE(other.ok()) << other.status().ToString();
  const json second = Ask((*other)->port(), Long(1));
  EXPECT_EQ(CachedTokens(second), PromptTokens(first) - 2);
  ExpectSame(second, first);
  // The server also finds entries that are written while it runs.
  const json later = Ask(Long(2, {{"cache_salt", "later"}}));
  AwaitMetric("ebb_prefix_store_written_total", 2);
  // Waits, since the server lists the store once a second.
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  const json again = Ask((*other)->port(), Long(2, {{"cache_salt", "later"}}));
  EXPECT_EQ(CachedTokens(again), PromptTokens(later) - 2);
  ExpectSame(again, later);
}

TEST_P(PrefixStoreTest, ALongerPromptAndOneThatDiffersAtItsEndTakeTheBeginning) {
  Start(Storing());
  const json first = Ask(Long(1));
  Restart(Storing());
  const json other = Ask(Long(2));
  EXPECT_GE(CachedTokens(other), 64);
  EXPECT_LT(CachedTokens(other), PromptTokens(first));
  ExpectSame(other, ReadUncached(Long(2)));
  Restart(Storing());
  json talk = Long(1);
  talk["messages"].push_back({{"role", "assistant"}, {"content", "It is 7."}});
  talk["messages"].push_back({{"role", "user"}, {"content", Question(3)}});
  const json longer = Ask(talk);
  EXPECT_GE(CachedTokens(longer), PromptTokens(first) / 2);
  ExpectSame(longer, ReadUncached(talk));
}

TEST_P(PrefixStoreTest, ALongerPromptTakesThePlaceOfItsBeginning) {
  ServerOptions options = Storing();
  Start(options);
  static_cast<void>(Ask(Long(1)));
  AwaitMetric("ebb_prefix_store_written_total", 1);
  json talk = {{"prompt", ""}, {"max_tokens", 4}};
  std::string text;
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 4; ++j) text += Question(200 + 4 * i + j) + " ";
    talk["prompt"] = text;
    EXPECT_EQ(Client(port()).Post("/v1/completions", talk).status, 200);
    AwaitMetric("ebb_prefix_store_written_total", 2 + i);
  }
  server_.reset();
  EXPECT_EQ(Ids().size(), 2u);
}

TEST_P(PrefixStoreTest, TenantsAndSaltsAreApartAsInMemory) {
  ServerOptions options = Storing();
  std::string keys;
  for (const std::string name : {"one", "two"}) {
    keys += name + " ";
    for (const unsigned char byte : HashKey("key-" + name)) keys += fmt::format("{:02x}", byte);
    keys += " admin\n";
  }
  options.keys = std::make_shared<const KeyRing>(*KeyRing::Parse(keys, "f"));
  const auto as = [](const std::string& name) {
    return "Authorization: Bearer key-" + name + "\r\n";
  };
  Start(options);
  const json salted = Long(1, {{"cache_salt", "mine"}});
  const json first = Ask(Long(1), as("one"));
  static_cast<void>(Ask(Long(2, {{"cache_prompt", false}}), as("one")));
  Restart(options);
  EXPECT_EQ(CachedTokens(Ask(Long(1), as("two"))), 0);
  EXPECT_EQ(CachedTokens(Ask(salted, as("one"))), 0);
  EXPECT_GT(CachedTokens(Ask(Long(1), as("one"))), 0);
  Restart(options);
  ExpectSame(Ask(salted, as("one")), first);
  EXPECT_EQ(CachedTokens(Ask(Long(1, {{"cache_salt", "theirs"}}), as("one"))), 0);
  EXPECT_GT(CachedTokens(Ask(Long(1), as("two"))), 0);
  // Entries are not visible as sessions of any tenant.
  Client client(port());
  client.Send(Client::Request("GET", "/v1/sessions", "", as("one")));
  EXPECT_TRUE(client.Receive().json()["data"].empty());
}

TEST_P(PrefixStoreTest, AnotherModelAnotherPolicyAndOtherEnginesFindNothing) {
  Fill({1}, Storing());
  ServerOptions chunked = Storing();
  chunked.defaults.engine.prefill_chunk = 256;
  Start(chunked);
  EXPECT_EQ(CachedTokens(Ask(Long(1))), 0);
  ServerOptions attention = Storing();
  attention.defaults.session.policy = {.name = "attention", .budget = *ParseBudget("25%")};
  Restart(attention);
  EXPECT_EQ(CachedTokens(Ask(Long(1))), 0);
  server_.reset();
  const auto widened = model_;
  model_ = *Model::Load({.path = EBB_SOURCE_DIR "/training/pebble/pebble.gguf"});
  Start(Storing());
  const json stored = Ask(Long(1));
  EXPECT_EQ(CachedTokens(stored), 0);
  EXPECT_EQ(Metric("ebb_prefix_store_dropped_total{reason=\"damaged\"}"), 0);
  server_.reset();
  model_ = widened;
  // Each server finds its own entry.
  for (const ServerOptions& options : {Storing(), chunked, attention}) {
    Restart(options);
    EXPECT_GT(CachedTokens(Ask(Long(1))), 0);
  }
}

TEST_P(PrefixStoreTest, PoliciesAndTiersGiveTheirBitsFromTheStore) {
  struct Setting {
    std::string policy, budget;
    std::optional<TierSetting> tiers;
    uint64_t kv_cap_bytes = 0;
  };
  const TierSetting shares = {.engine = {.t1 = T1Place::kFile, .t2_type = CompressedType::kInt8},
                              .shares = {.t0_share = 0.4, .t2_share = 0.3, .evict_share = 0.2}};
  const TierSetting capped = {.engine = {.t0_cap_bytes = 4 * kMiB, .t1 = T1Place::kFile}};
  for (const Setting& setting : {Setting{"attention", "25%", {}}, Setting{"recency", "", shares},
                                 Setting{"full", "", capped}, Setting{"full", "", {}, 8 * kMiB}}) {
    ServerOptions options = Storing();
    SetTiers(setting.tiers, &options.defaults.engine, &options.defaults.session);
    options.defaults.engine.kv_cap_bytes = setting.kv_cap_bytes;
    options.defaults.session.policy.name = setting.policy;
    if (!setting.budget.empty()) {
      options.defaults.session.policy.budget = *ParseBudget(setting.budget);
    }
    Restart(options);
    const json first = Ask(Long(1));
    Restart(options);
    const json second = Ask(Long(1));
    EXPECT_GT(CachedTokens(second), PromptTokens(second) / 2) << setting.policy;
    ExpectSame(second, first);
  }
}

TEST_P(PrefixStoreTest, LosslessRequestsReadTheirPrompts) {
  const json body =
      Long(1, {{"ebb", {{"policy", "attention"}, {"budget", "25%"}, {"lossless", true}}}});
  Start(Storing());
  const json first = Ask(body);
  Restart(Storing());
  const json second = Ask(body);
  EXPECT_EQ(CachedTokens(second), 0);
  EXPECT_EQ(second["choices"], first["choices"]);
  EXPECT_EQ(Metric("ebb_prefix_store_prompts"), 0);
}

TEST_P(PrefixStoreTest, ADamagedEntryIsRemovedAndThePromptIsRead) {
  const std::vector<std::function<void(const std::string&)>> damages = {
      [&](const std::string& id) { FlipByte(id, 40); }, [&](const std::string& id) { CutOff(id); },
      [&](const std::string& id) { DamageRecord(id); }};
  for (size_t i = 0; i < damages.size(); ++i) {
    Fill({1}, Storing());
    const std::vector<std::string> ids = Ids();
    ASSERT_EQ(ids.size(), 1u) << i;
    damages[i](ids.front());
    Start(Storing());
    const json answer = Ask(Long(1));
    EXPECT_EQ(CachedTokens(answer), 0) << i;
    ExpectSame(answer, ReadUncached(Long(1)));
    AwaitMetric("ebb_prefix_store_dropped_total{reason=\"damaged\"}", 1);
    // The prompt was stored again after it had been read.
    Restart(Storing());
    EXPECT_GT(CachedTokens(Ask(Long(1))), 0) << i;
  }
}

// Checks what happens if hashes collide or entries are swapped: the store returns a complete entry
// with good checksums that is another prompt, another tenant's, or no prompt.
TEST_P(PrefixStoreTest, AnEntryThatDoesNotMatchItsRecordIsNeverUsed) {
  Start(Storing());
  static_cast<void>(Ask(Long(1)));
  static_cast<void>(Ask(Long(1, {{"cache_salt", "theirs"}})));
  json other = Long(1);
  other["messages"][0]["content"] = "Entirely different words, and many of them, " +
                                    other["messages"][0]["content"].get<std::string>();
  static_cast<void>(Ask(other));
  const json expected = ReadUncached(Long(1));
  server_.reset();
  ASSERT_EQ(Ids().size(), 3u);
  // It is unknown which entry answers Long(1), so each gets the rows of another one.
  const std::vector<std::string> ids = Ids();
  std::vector<std::string> rows, records;
  const auto store = OpenTheStore();
  for (const std::string& id : ids) {
    rows.push_back(RowsOf(id));
    records.push_back(RecordOf(*store, id));
  }
  for (size_t i = 0; i < ids.size(); ++i) Overwrite(ids[i], rows[(i + 1) % 3], records[i]);
  Start(Storing());
  const json answer = Ask(Long(1));
  EXPECT_EQ(CachedTokens(answer), 0);
  ExpectSame(answer, expected);
  AwaitMetric("ebb_prefix_store_dropped_total{reason=\"damaged\"}", 1);
  server_.reset();
  // The entries get a file that is no session; then a record under another entry's id.
  const std::string nonsense = folder_.path() + "/nonsense";
  std::ofstream(nonsense) << "no session";
  for (const std::string& id : Ids()) Overwrite(id, nonsense, RecordOf(*store, id));
  Start(Storing());
  ExpectSame(Ask(Long(1)), expected);
  server_.reset();
  const auto left = Ids();
  ASSERT_GE(left.size(), 2u);
  const std::string of_first = RecordOf(*store, left[0]), of_second = RecordOf(*store, left[1]);
  Overwrite(left[0], rows[0], of_second);
  Overwrite(left[1], rows[1], of_first);
  Start(Storing());
  ExpectSame(Ask(Long(1)), expected);
  AwaitMetric("ebb_prefix_store_dropped_total{reason=\"damaged\"}", 2);
}

TEST_P(PrefixStoreTest, TheStoreHoldsNoMoreThanItMayAndKeepsWhatWasUsedLast) {
  const auto salted = [](int i) {
    return Long(1, {{"cache_salt", std::to_string(i)}, {"max_tokens", 2}});
  };
  ServerOptions options = Storing();
  Start(options);
  static_cast<void>(Ask(salted(0)));
  AwaitMetric("ebb_prefix_store_written_total", 1);
  const auto of_one = static_cast<uint64_t>(Metric("ebb_prefix_store_bytes"));
  EXPECT_GT(of_one, 0u);
  options.prefix_store.most_bytes = 3 * of_one + of_one / 2;
  Restart(options);
  for (int i = 1; i < 3; ++i) {
    static_cast<void>(Ask(salted(i)));
    AwaitMetric("ebb_prefix_store_written_total", i);
  }
  // One prompt comes from the store, one from memory.
  EXPECT_GT(CachedTokens(Ask(salted(0))), 0);
  EXPECT_GT(CachedTokens(Ask(salted(2))), 0);
  static_cast<void>(Ask(salted(3)));
  AwaitMetric("ebb_prefix_store_written_total", 3);
  EXPECT_EQ(Metric("ebb_prefix_store_dropped_total{reason=\"room\"}"), 1);
  EXPECT_LE(Metric("ebb_prefix_store_bytes"), static_cast<int64_t>(3 * of_one + of_one / 2));
  Restart(options);
  for (const int i : {0, 2, 3}) EXPECT_GT(CachedTokens(Ask(salted(i))), 0) << i;
  EXPECT_EQ(CachedTokens(Ask(salted(1))), 0);
  options.prefix_store.most_bytes = of_one / 2;
  Restart(options);
  static_cast<void>(Ask(salted(9)));
  server_.reset();
  // An entry larger than the limit is not written, and no entry is removed for it.
  EXPECT_EQ(Ids().size(), 3u);
}

TEST_P(PrefixStoreTest, AnEntryThatIsNotUsedForItsLifetimeExpires) {
  ServerOptions options = Storing();
  options.prefix_store.lifetime = 0.5;
  Fill({1}, options);
  EXPECT_EQ(Ids().size(), 1u);
  std::this_thread::sleep_for(std::chrono::milliseconds(600));
  Start(options);
  EXPECT_EQ(CachedTokens(Ask(Long(1))), 0);
}

TEST_P(PrefixStoreTest, ManyClientsAfterARestartAllTakeItAndOneFetchesIt) {
  Start(Storing());
  const json first = Ask(Long(1));
  Restart(Storing());
  std::vector<std::thread> clients;
  for (int i = 0; i < 8; ++i) {
    clients.emplace_back([&] {
      const json answer = Ask(Long(1));
      EXPECT_GT(CachedTokens(answer), 0);
      ExpectSame(answer, first);
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(Metric("ebb_prefix_store_hits_total"), 1);
}

TEST_P(PrefixStoreTest, ServersThatWriteTheSamePromptAgree) {
  Start(Storing());
  const auto other = Server::Start(model_, Storing());
  ASSERT_TRUE(other.ok());
  std::vector<std::thread> clients;
  for (const uint16_t at : {port(), (*other)->port()}) {
    clients.emplace_back([at] { static_cast<void>(Ask(at, Long(1))); });
  }
  for (std::thread& client : clients) client.join();
  for (int i = 0; i < 3000 && Ids().empty(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(Ids().size(), 1u);
  Restart(Storing());
  EXPECT_GT(CachedTokens(Ask(Long(1))), 0);
}

TEST_P(PrefixStoreTest, AStoreThatIsAwayOrSlowCostsNoAnswer) {
  ServerOptions options = Storing();
  options.prefix_store.least_patience = options.prefix_store.most_patience = 0.05;
  Fill({1}, Storing());
  Start(options);
  const std::string folder = folder_.path() + "/store";
  if (is_file()) {
    std::filesystem::rename(folder, folder + "-away");
    std::ofstream(folder) << "in its place";
  } else {
    redis_->Pause();
  }
  // Neither memory nor the store can supply these prompts, so each is read.
  for (int i = 0; i < 3; ++i) {
    const json body = Long(1, {{"cache_salt", std::to_string(i)}});
    EXPECT_EQ(CachedTokens(Ask(body)), 0);
  }
  if (is_file()) {
    std::filesystem::remove(folder);
    std::filesystem::rename(folder + "-away", folder);
  } else {
    redis_->Continue();
  }
  Restart(Storing());
  EXPECT_GT(CachedTokens(Ask(Long(1))), 0);
}

TEST_P(PrefixStoreTest, NothingIsStoredWhereItIsOff) {
  ServerOptions options = Storing();
  options.prefix_store.most_bytes = 0;
  Fill({1}, options);
  EXPECT_TRUE(Ids().empty());
}

INSTANTIATE_TEST_SUITE_P(Every, PrefixStoreTest,
                         testing::Values(StorePlace::kFile, StorePlace::kRedis),
                         [](const auto& test) {
                           return test.param == StorePlace::kFile ? "File" : "Redis";
                         });

}  // namespace
}  // namespace ebb::server

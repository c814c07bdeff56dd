#include "src/server/monitoring/dashboard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace ebb::server {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

struct Sent {
  HttpAnswer answer;
  std::function<std::string()> take;
  std::function<void()> gone;
  int num_pokes = 0;
  bool sent = false;
  bool ended = false;
};

class Kept final : public Reply {
 public:
  explicit Kept(std::shared_ptr<Sent> sent) : sent_(std::move(sent)) {}
  void Send(HttpAnswer answer) override {
    sent_->answer = std::move(answer);
    sent_->sent = true;
  }
  void Stream(HttpAnswer answer, std::function<std::string()> take) override {
    sent_->answer = std::move(answer);
    sent_->take = std::move(take);
  }
  void NotifyData() override { ++sent_->num_pokes; }
  void EndStream() override { sent_->ended = true; }
  void OnDisconnect(std::function<void()> gone) override { sent_->gone = std::move(gone); }

 private:
  const std::shared_ptr<Sent> sent_;
};

std::string MessageIn(const HttpAnswer& answer) {
  return Json::parse(answer.body)["error"]["message"].get<std::string>();
}

class DashboardTest : public testing::Test {
 protected:
  void Make(DashboardMode mode) {
    dashboard_ = std::make_unique<Dashboard>(
        nullptr, DashboardSetting{.mode = mode, .model_id = "m"},
        DashboardSource{
            .look =
                [this](auto tell) {
                  ++num_looks_;
                  tell(snapshot_);
                },
            .trace = [this](JobId id,
                            auto tell) { tell(id == 7 ? std::optional(fates_) : std::nullopt); },
            .later =
                [this](double seconds, auto work) {
                  later_seconds_ = seconds;
                  later_ = std::move(work);
                }});
  }
  std::shared_ptr<Sent> Get(const std::string& path) {
    auto sent = std::make_shared<Sent>();
    std::vector<Route> routes;
    dashboard_->AddRoutes(&routes);
    Router(std::move(routes)).Handle({.method = "GET", .path = path}, std::make_shared<Kept>(sent));
    return sent;
  }

  Snapshot snapshot_;
  TokenFates fates_ = {.id = 7, .prompt_tokens = 2, .tokens = {1, 2, 3}, .tiers = "012"};
  int num_looks_ = 0;
  double later_seconds_ = 0;
  std::function<void()> later_;
  std::unique_ptr<Dashboard> dashboard_;
};

TEST_F(DashboardTest, NothingIsDoneWhileNobodyWatches) {
  Make(DashboardMode::kFigures);
  EXPECT_EQ(num_looks_, 0);
  const auto watcher = Get("/v1/ebb/events");
  EXPECT_EQ(num_looks_, 1);
  EXPECT_EQ(watcher->num_pokes, 1);
  EXPECT_THAT(watcher->take(), StartsWith("data: {"));
  EXPECT_EQ(watcher->take(), "");
  watcher->gone();
  later_();
  EXPECT_EQ(num_looks_, 1);
  EXPECT_EQ(dashboard_->num_watchers(), 0u);
  // Snapshots start again when a client connects.
  (void)Get("/v1/ebb/events");
  EXPECT_EQ(num_looks_, 2);
}

TEST_F(DashboardTest, ThereAreAtMostFourSnapshotsASecond) {
  Make(DashboardMode::kFigures);
  (void)Get("/v1/ebb/events");
  EXPECT_GE(later_seconds_, 0.25);
  (void)Get("/v1/ebb/events");
  // The second client gets its first snapshot when the first client gets its next one.
  EXPECT_EQ(num_looks_, 1);
  snapshot_.jobs.push_back({});
  later_();
  EXPECT_EQ(num_looks_, 2);
  EXPECT_EQ(later_seconds_, 0.25);
}

TEST_F(DashboardTest, WhoeverReadsSlowlyGetsTheNewestSnapshotAlone) {
  Make(DashboardMode::kFigures);
  const auto watcher = Get("/v1/ebb/events");
  snapshot_.now = 5;
  later_();
  snapshot_.now = 6;
  later_();
  const std::string text = watcher->take();
  EXPECT_THAT(text, HasSubstr("\"uptime_seconds\":6"));
  EXPECT_EQ(text.find("data:"), text.rfind("data:"));
}

TEST_F(DashboardTest, SoManyMayWatch) {
  Make(DashboardMode::kFigures);
  for (int i = 0; i < 16; ++i) EXPECT_EQ(Get("/v1/ebb/events")->answer.status, 200);
  const HttpAnswer refused = Get("/v1/ebb/events")->answer;
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(MessageIn(refused), "the dashboard has 16 viewers already, which is the limit");
  dashboard_->Close();
  EXPECT_EQ(dashboard_->num_watchers(), 0u);
}

TEST_F(DashboardTest, TextIsToldOnlyWhereTheServerWasStartedWithIt) {
  Make(DashboardMode::kFigures);
  const Json fates = Json::parse(Get("/v1/ebb/requests/7")->answer.body);
  EXPECT_EQ(fates["tiers"], "012");
  EXPECT_FALSE(fates.contains("texts"));
  EXPECT_FALSE(fates.contains("tokens"));
  EXPECT_FALSE(Json::parse(Get("/v1/ebb/status")->answer.body)["shows_text"].get<bool>());
  Make(DashboardMode::kText);
  EXPECT_TRUE(Json::parse(Get("/v1/ebb/status")->answer.body)["shows_text"].get<bool>());
}

TEST_F(DashboardTest, ItCanBeSwitchedOff) {
  Make(DashboardMode::kOff);
  for (const char* path : {"/v1/ebb/status", "/v1/ebb/events", "/v1/ebb/requests/7"}) {
    EXPECT_EQ(Get(path)->answer.status, 404) << path;
  }
}

TEST_F(DashboardTest, RequestsAreNamedByTheirNumber) {
  Make(DashboardMode::kFigures);
  EXPECT_EQ(Get("/v1/ebb/requests/7/tokens/1")->answer.status, 200);
  EXPECT_EQ(MessageIn(Get("/v1/ebb/requests/8")->answer), "the request has not begun, or is over");
  EXPECT_EQ(MessageIn(Get("/v1/ebb/requests/x")->answer),
            "expected /v1/ebb/requests/NUMBER or /v1/ebb/requests/NUMBER/tokens/FIRST");
  for (const char* path : {"8", "", "x", "7/", "7/tokens", "7/tokens/", "7/tokens/x", "7x",
                           "7/tokens/1/2", "-7", "99999999999999999999"}) {
    EXPECT_EQ(Get(std::string("/v1/ebb/requests/") + path)->answer.status, 404) << path;
  }
  EXPECT_EQ(Get("/v1/ebb/what")->answer.status, 404);
}

TEST(StatusJson, TellsFloorsElasticPartsAndWhatIsParked) {
  Snapshot snapshot;
  snapshot.figures.arenas[0] = {.used_bytes = 150, .cap_bytes = 1000};
  const auto add = [&](Phase phase, uint64_t floor, size_t t0, size_t t1) {
    JobView& job = snapshot.jobs.emplace_back();
    job.phase = phase;
    job.t0_floor_bytes = floor;
    job.page_bytes = {t0, t1, 0, 0};
  };
  add(Phase::kDecoding, 60, 100, 100);
  add(Phase::kReading, 80, 50, 0);
  add(Phase::kParked, 70, 0, 300);
  add(Phase::kWaiting, 70, 0, 0);
  snapshot.jobs[2].wait = {.cause = WaitCause::kT0, .bytes = 20};
  snapshot.jobs[3].wait = {.cause = WaitCause::kTurn, .behind = 2};
  const Json json = StatusJson(snapshot, {.model_id = "m"});
  EXPECT_EQ(json["t0_floor_bytes"], 110);
  EXPECT_EQ(json["t0_reserved_bytes"], 30) << "the request that reads has 50 of 80";
  EXPECT_EQ(json["t0_elastic_bytes"], 40);
  EXPECT_EQ(json["parked_bytes"], 300);
  EXPECT_EQ(json["tiers"][0]["cap_bytes"], 1000);
  EXPECT_EQ(json["jobs"].size(), 4u);
  EXPECT_EQ(json["jobs"][2]["state"], "parked");
  EXPECT_EQ(json["jobs"][2]["waits_for"], Json({{"cause", "t0"}, {"bytes", 20}}));
  EXPECT_EQ(json["jobs"][3]["waits_for"], Json({{"cause", "turn"}, {"behind", 2}}));
  EXPECT_EQ(json["jobs"][0]["waits_for"], nullptr);
}

TEST(StripOf, EachPartIsTheTierOfMostOfItsTokens) {
  EXPECT_EQ(StripOf("", 4), "");
  EXPECT_EQ(StripOf("013", 4), "013");
  EXPECT_EQ(StripOf("00112233", 4), "0123");
  EXPECT_EQ(StripOf("001112", 2), "01");
  // If two tiers are equally frequent, the faster one is shown.
  EXPECT_EQ(StripOf("10", 1), "0");
  EXPECT_EQ(StripOf("0123", 3).size(), 3u);
}

}  // namespace
}  // namespace ebb::server

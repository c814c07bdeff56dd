// Tests the dashboard's feed on a server with tiers, and its page in a headless browser if chromium
// is installed.
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "tests/server/browser.h"
#include "tests/server/server_fixture.h"
#include "tests/support/skip.h"

namespace ebb::server {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

class DashboardServerTest : public ServerTest {
 protected:
  // Starts a server with requests that run one after the other, longer than any test, on a T0 with
  // a cap and a T1.
  void StartWithRequests(DashboardMode mode) {
    ServerOptions options = Options();
    options.dashboard = mode;
    options.driver.most_running = 1;
    TierSetting tiers;
    tiers.engine.t0_cap_bytes = size_t{64} << 20;
    tiers.engine.t1 = T1Place::kHost;
    SetTiers(tiers, &options.defaults.engine, &options.defaults.session);
    Start(options);
    Ask("/v1/chat/completions",
        Chat(1, {{"stream", true}, {"ignore_eos", true}, {"ebb", {{"t0", "50%"}}}}));
    Await([](const Figures& figures) { return figures.generated_tokens >= 300; });
  }
  void Ask(const std::string& path, json body) {
    body["n"] = 8;
    for (int i = 0; i < 4; ++i) {
      asking_.push_back(std::make_unique<Client>(port()));
      asking_.back()->Send(
          Client::Request("POST", path, body.dump(), "Content-Type: application/json\r\n"));
    }
  }
  void EndRequests() {
    asking_.clear();
    Await([](const Figures& figures) { return figures.waiting + figures.decoding == 0; });
  }
  // Returns the token fates of the running request, whichever it is.
  json FatesOfFirst(const std::string& more = "") {
    Client client(port());
    for (int i = 0; i < 100; ++i) {
      const json status = client.Get("/v1/ebb/status").json();
      id_ = status["jobs"][0]["id"];
      const ClientAnswer fates = client.Get(fmt::format("/v1/ebb/requests/{}{}", id_, more));
      if (fates.status == 200) return fates.json();
    }
    ADD_FAILURE() << "no request runs";
    return {};
  }

  std::vector<std::unique_ptr<Client>> asking_;
  uint64_t id_ = 0;
};

TEST_F(DashboardServerTest, TheStatusAgreesWithTheMetrics) {
  StartWithRequests(DashboardMode::kFigures);
  Client client(port());
  json running = client.Get("/v1/ebb/status").json();
  // The first request may just have started, without rows in T0.
  for (int i = 0; i < 6000 && running["tiers"][0]["used_bytes"] == 0; ++i) {
    running = client.Get("/v1/ebb/status").json();
  }
  ASSERT_GE(running["jobs"].size(), 2u) << running.dump();
  const json& job = running["jobs"][0];
  EXPECT_GT(job["prompt_tokens"].get<int>(), 5);
  EXPECT_EQ(running["jobs"].back()["state"], "waiting");
  EXPECT_EQ(job["waits_for"], nullptr);
  EXPECT_EQ(running["jobs"].back()["waits_for"]["cause"], "turn");
  EXPECT_EQ(running["jobs"][1]["waits_for"]["cause"], "running") << running["jobs"][1].dump();
  EXPECT_EQ(running["tiers"][0]["cap_bytes"], 64 << 20);
  EXPECT_GT(running["tiers"][0]["used_bytes"].get<size_t>(), 0u);
  EndRequests();
  const json idle = client.Get("/v1/ebb/status").json();
  EXPECT_EQ(idle["jobs"].size(), 0u);
  const std::string metrics = client.Get("/metrics").body;
  EXPECT_THAT(metrics, HasSubstr(fmt::format("\nebb_generated_tokens_total {}\n",
                                             idle["generated_tokens"].get<uint64_t>())));
  EXPECT_THAT(metrics,
              HasSubstr(fmt::format("\nebb_steps_total {}\n", idle["steps"].get<uint64_t>())));
}

TEST_F(DashboardServerTest, EachTokenHasItsTier) {
  StartWithRequests(DashboardMode::kText);
  json fates = json::object();
  // After some hundred tokens, rows have left T0.
  for (int i = 0; i < 6000 && fates.value("generated_tokens", 0) < 200; ++i) fates = FatesOfFirst();
  const std::string tiers = fates["tiers"];
  ASSERT_EQ(fates["texts"].size(), tiers.size());
  EXPECT_EQ(tiers.find_first_not_of("0123"), std::string::npos);
  EXPECT_NE(tiers.find('0'), std::string::npos);
  EXPECT_NE(tiers.find('1'), std::string::npos) << "half of the rows leave T0";
  EXPECT_FALSE(fates["history"].empty());
  std::string text;
  for (const json& token : fates["texts"]) text += token.get<std::string>();
  EXPECT_THAT(text, HasSubstr(Question(1)));
  const json later = FatesOfFirst("/tokens/10");
  EXPECT_EQ(later["from"], 10);
  EXPECT_EQ(later["texts"].size() + 10, later["tiers"].get<std::string>().size());
  Client client(port());
  EXPECT_EQ(client.Get("/v1/ebb/requests/999999").status, 404);
  EndRequests();
  EXPECT_EQ(client.Get(fmt::format("/v1/ebb/requests/{}", id_)).status, 404);
}

TEST_F(DashboardServerTest, NoWordOfARequestIsToldUnlessItWasAskedFor) {
  StartWithRequests(DashboardMode::kFigures);
  const json fates = FatesOfFirst();
  EXPECT_FALSE(fates.contains("texts"));
  EXPECT_FALSE(fates.contains("tokens"));
  EXPECT_FALSE(fates["tiers"].get<std::string>().empty());
  EXPECT_THAT(Client(port()).Get("/v1/ebb/status").body, Not(HasSubstr("chatcmpl")));
}

TEST_F(DashboardServerTest, EventsComeWhileSomebodyWatches) {
  StartWithRequests(DashboardMode::kFigures);
  Client watching(port());
  watching.Send(Client::Request("GET", "/v1/ebb/events"));
  std::string text;
  const auto count_events = [&] {
    size_t count = 0;
    for (size_t at = 0; (at = text.find("data: {", at)) != std::string::npos; ++at) ++count;
    return count;
  };
  while (count_events() < 3) {
    const std::string some = watching.ReceiveSome(1000);
    ASSERT_FALSE(some.empty()) << "the stream ended";
    text += some;
  }
  EXPECT_THAT(text, HasSubstr("text/event-stream"));
}

TEST_F(DashboardServerTest, AWatcherDoesNotHoldUpTheEnd) {
  Start();
  Client watching(port());
  watching.Send(Client::Request("GET", "/v1/ebb/events"));
  (void)watching.ReceiveSome(300);
  server_.reset();
  EXPECT_TRUE(watching.IsClosedByServer());
}

TEST_F(DashboardServerTest, SwitchedOffThereIsNothing) {
  ServerOptions options = Options();
  options.dashboard = DashboardMode::kOff;
  Start(options);
  Client client(port());
  EXPECT_EQ(client.Get("/dashboard").status, 404);
  EXPECT_EQ(client.Get("/").status, 200) << "the chat page has a switch of its own";
  EXPECT_EQ(client.Get("/props").json()["ebb"]["dashboard"], false);
  EXPECT_EQ(client.Get("/v1/ebb/status").status, 404);
}

TEST_F(DashboardServerTest, WithoutTheChatPageTheAddressLeadsToIt) {
  ServerOptions options = Options();
  options.chat_page = ChatPageMode::kOff;
  Start(options);
  const ClientAnswer answer = Client(port()).Get("/");
  EXPECT_EQ(answer.status, 307);
  EXPECT_EQ(answer.headers.at("location"), "/dashboard");
  EXPECT_EQ(Client(port()).Get("/dashboard").status, 200);
  EXPECT_EQ(Client(port()).Get("/props").json()["ebb"]["chat_page"], false);
  // Without the dashboard the page's other tab is missing too.
  options.dashboard = DashboardMode::kOff;
  Start(options);
  for (const char* path : {"/", "/dashboard", "/chat/app.js"}) {
    EXPECT_EQ(Client(port()).Get(path).status, 404) << path;
  }
}

class BrowserTest : public DashboardServerTest {
 protected:
  void SetUp() override {
    const std::string program = FindChromium();
    if (program.empty()) EBB_SKIP_WITHOUT("chromium") << "there is no chromium";
    browser_ = std::make_unique<Browser>(program);
    browser_->SetSize(390, 844);
  }
  // Returns the page as the browser has drawn it once `holds` is true.
  std::string Drawn(const std::string& holds) {
    browser_->Open(fmt::format("http://{}/dashboard", server_->addresses().front()));
    EXPECT_TRUE(browser_->Await(holds));
    return browser_->Evaluate("document.documentElement.outerHTML");
  }

  std::unique_ptr<Browser> browser_;
};

TEST_F(BrowserTest, ThePageShowsTheRequestAndItsText) {
  StartWithRequests(DashboardMode::kText);
  // Waits, since a request that has just started has no tokens yet.
  const std::string page =
      Drawn("document.querySelector('#fate-text .t0') && document.querySelector('#fate-text .t1')");
  EXPECT_THAT(page, HasSubstr("class=\"live\""));
  EXPECT_THAT(page, HasSubstr(" tokens, up for "));
  EXPECT_THAT(page, HasSubstr("<b id=\"decoding\">1</b>"));
  EXPECT_THAT(page, HasSubstr("of 64.0 MiB"));
  EXPECT_THAT(page, HasSubstr("for a running one to end"));
  EXPECT_THAT(page, HasSubstr("for its turn, behind #"));
  EXPECT_THAT(page, HasSubstr("Tokens of request #"));
  EXPECT_THAT(page, HasSubstr("class=\"t0\""));
  EXPECT_THAT(page, HasSubstr("class=\"t1\""));
}

TEST_F(BrowserTest, WithoutTextThePageSaysHowToGetIt) {
  StartWithRequests(DashboardMode::kFigures);
  const std::string page = Drawn("document.getElementById('fate-no-text')?.hidden === false");
  EXPECT_THAT(page, HasSubstr("Tokens of request #"));
  EXPECT_THAT(page, HasSubstr("<p id=\"fate-no-text\" class=\"soft\">"));
  EXPECT_THAT(page, HasSubstr("<div id=\"fate-text\" hidden=\"\">"));
}

TEST_F(BrowserTest, TheTabIsBesideTheChatsOrAlone) {
  constexpr const char* kLive = "document.getElementById('server-state')?.className === 'live'";
  const auto run = [&](const std::string& expression) { return browser_->Evaluate(expression); };
  Start();
  browser_->SetSize(1200, 800);
  browser_->Open(fmt::format("http://{}/", server_->addresses().front()));
  ASSERT_TRUE(browser_->Await("window.ebbChat?.state.props"));
  EXPECT_EQ(run("document.getElementById('server').hidden"), true);
  run("document.getElementById('server-link').click()");
  ASSERT_TRUE(browser_->Await(kLive));
  EXPECT_EQ(run("location.pathname"), "/dashboard");
  EXPECT_EQ(run("document.getElementById('composer').hidden"), true);
  run("document.getElementById('new').click()");
  EXPECT_EQ(run("location.pathname"), "/");
  EXPECT_EQ(run("document.getElementById('server').hidden"), true);
  EXPECT_EQ(run("document.activeElement.id"), "input");
  run("history.back()");
  ASSERT_TRUE(browser_->Await("!document.getElementById('server').hidden"));
  EXPECT_EQ(run("getComputedStyle(document.getElementById('sidebar')).display"), "flex");
  // Starting the second server stops the first one, whose page does not notice.
  ServerOptions options = Options();
  options.chat_page = ChatPageMode::kOff;
  Start(options);
  browser_->Open(fmt::format("http://{}/", server_->addresses().front()));
  ASSERT_TRUE(browser_->Await(kLive));
  EXPECT_EQ(run("location.pathname"), "/dashboard");
  ASSERT_TRUE(browser_->Await("document.body.classList.contains('server-alone')"));
  EXPECT_EQ(run("getComputedStyle(document.getElementById('sidebar')).display"), "none");
}

TEST_F(BrowserTest, WhatAPromptSaysIsTextAndNothingElse) {
  ServerOptions options = Options();
  options.dashboard = DashboardMode::kText;
  options.driver.most_running = 1;
  Start(options);
  Ask("/v1/completions", {{"prompt", "<img src=x onerror=\"document.title='taken'\"><b id=evil>"},
                          {"stream", true},
                          {"ignore_eos", true}});
  Await([](const Figures& figures) { return figures.decoding == 1; });
  const std::string page = Drawn("document.getElementById('fate-text')?.textContent.includes('<')");
  EXPECT_THAT(page, HasSubstr("<title>ebb</title>"));
  EXPECT_THAT(page, Not(HasSubstr("<img src=\"x\"")));
  EXPECT_THAT(page, Not(HasSubstr("<b id=\"evil\"")));
  EXPECT_THAT(page, HasSubstr("&lt;"));
}

}  // namespace
}  // namespace ebb::server

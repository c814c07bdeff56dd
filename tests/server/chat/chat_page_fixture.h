// ChatPageTest opens the chat page in a headless browser, if chromium is installed.
#ifndef EBB_TESTS_SERVER_CHAT_CHAT_PAGE_FIXTURE_H_
#define EBB_TESTS_SERVER_CHAT_CHAT_PAGE_FIXTURE_H_

#include <memory>
#include <string>

#include <fmt/format.h>

#include "tests/server/browser.h"
#include "tests/server/server_fixture.h"
#include "tests/support/skip.h"

namespace ebb::server {

// kFakeAnswers defines answerWith(pieces, pause): the next chat gets `pieces` (deltas of one token
// each) as its answer instead of the server's, with a pause of `pause` milliseconds after each.
inline constexpr const char* kFakeAnswers = R"js(
window.answerWith = (pieces, pause) => {
  const real = window.fetch;
  window.fetch = (url, options) => {
    if (url !== '/v1/chat/completions') return real(url, options);
    window.fetch = real;
    const encoder = new TextEncoder();
    const event = (json) => encoder.encode(`data: ${JSON.stringify(json)}\n\n`);
    const stream = new ReadableStream({ async start(control) {
      let id = 0;
      options.signal.addEventListener('abort', () => control.error(new DOMException('', 'AbortError')));
      for (const delta of pieces) {
        const text = delta.content ?? delta.reasoning_content;
        control.enqueue(event({ choices: [{ index: 0, delta }], ebb: { tokens: [{ id, text }] } }));
        ++id;
        if (pause || id % 20 === 0) await new Promise((resolve) => setTimeout(resolve, pause));
        if (options.signal.aborted) return;
      }
      control.enqueue(event({ choices: [{ index: 0, delta: {}, finish_reason: 'stop' }] }));
      control.enqueue(encoder.encode('data: [DONE]\n\n'));
      control.close();
    } });
    return Promise.resolve(new Response(stream, { headers: { 'Content-Type': 'text/event-stream' } }));
  };
};
)js";

class ChatPageTest : public ServerTest {
 protected:
  void SetUp() override {
    const std::string program = FindChromium();
    if (program.empty()) EBB_SKIP_WITHOUT("chromium") << "there is no chromium";
    browser_ = std::make_unique<Browser>(program);
    browser_->RunBeforePages(kFakeAnswers);
  }

  // Returns options with tiers, and with answers that never end if `on_end` says so.
  static ServerOptions WithTiers(GenerateOptions::OnEnd on_end = GenerateOptions::OnEnd::kStop) {
    ServerOptions options = Options();
    TierSetting tiers;
    tiers.engine.t1 = T1Place::kHost;
    tiers.shares.t0_share = 0.2;
    SetTiers(tiers, &options.defaults.engine, &options.defaults.session);
    options.defaults.generate.on_end = on_end;
    return options;
  }
  void Open(const ServerOptions& options) {
    Start(options);
    Reopen();
  }
  void Reopen() { OpenAt(fmt::format("http://127.0.0.1:{}/", port())); }
  void OpenAt(const std::string& url) {
    browser_->Open(url);
    AwaitPage();
  }
  void Reload() {
    browser_->Reload();
    AwaitPage();
  }
  void AwaitPage() { ASSERT_TRUE(browser_->Await("window.ebbChat?.state.props")) << Complaints(); }
  void Say(const std::string& text) {
    Run("document.getElementById('input').focus()");
    browser_->Type(text);
    browser_->Press("Enter");
  }
  void Ask(const std::string& text) {
    Say(text);
    ASSERT_TRUE(browser_->Await("ebbChat.state.current.leaf && !ebbChat.running"));
    ASSERT_TRUE(browser_->Await("document.querySelector('.assistant:not([aria-busy])')"));
  }
  // Shows `markdown` as an answer, one word at a time.
  void Answer(const std::string& markdown) {
    Run(fmt::format("answerWith({}.match(/\\s*\\S+\\s*/g).map((content) => ({{ content }})))",
                    nlohmann::json(markdown).dump()));
    Ask("show");
  }
  nlohmann::json Run(const std::string& expression) { return browser_->Evaluate(expression); }
  void Click(const std::string& selector) {
    Run(fmt::format("document.querySelector({}).click()", nlohmann::json(selector).dump()));
  }
  [[nodiscard]] size_t Count(const std::string& selector) {
    return Run(
        fmt::format("document.querySelectorAll({}).length", nlohmann::json(selector).dump()));
  }
  [[nodiscard]] std::string Text(const std::string& selector) {
    return Run(fmt::format("document.querySelector({})?.textContent ?? ''",
                           nlohmann::json(selector).dump()));
  }
  [[nodiscard]] std::string Complaints() const {
    std::string all;
    for (const std::string& one : browser_->complaints()) all += one + "\n";
    return all;
  }
  void ExpectAskedThisServerAlone() const {
    const std::string here = fmt::format("http://127.0.0.1:{}/", port());
    for (const std::string& url : browser_->requests()) EXPECT_THAT(url, testing::StartsWith(here));
  }

  std::unique_ptr<Browser> browser_;
};

}  // namespace ebb::server

#endif  // EBB_TESTS_SERVER_CHAT_CHAT_PAGE_FIXTURE_H_

// Tests the chat page in a headless browser, if chromium is installed.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "tests/server/browser.h"
#include "tests/server/chat/chat_page_fixture.h"
#include "tests/support/child_process.h"

namespace ebb::server {
namespace {

using nlohmann::json;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

TEST_F(ChatPageTest, AQuestionIsAnsweredWithItsThoughtFolded) {
  Open(Options());
  EXPECT_EQ(Run("document.activeElement.id"), "input") << "one can type at once";
  Ask(Question(1));
  const json told = Client(port()).Post("/v1/chat/completions", Chat(1)).json();
  const json& message = told["choices"][0]["message"];
  EXPECT_EQ(Text(".user .bubble"), Question(1));
  EXPECT_EQ(Trimmed(Text(".assistant > .text")), message["content"].get<std::string>());
  const int num_thought = told["usage"]["completion_tokens_details"]["reasoning_tokens"];
  EXPECT_EQ(Text(".thought summary"), fmt::format("Thought for {} tokens", num_thought));
  EXPECT_EQ(Text(".thought .text"), "") << "a folded thought is not drawn";
  EXPECT_EQ(Run("ebbChat.state.current.nodes[ebbChat.state.current.leaf].thought"),
            message["reasoning_content"]);
  Click(".thought summary");
  ASSERT_TRUE(browser_->Await("document.querySelector('.thought .text').textContent.length > 10"));
  EXPECT_THAT(Text("#title"), StartsWith(Question(1).substr(0, 20)));
  EXPECT_EQ(Complaints(), "");
  ExpectAskedThisServerAlone();
}

TEST_F(ChatPageTest, AConversationIsThereAfterAReload) {
  Open(Options());
  Ask(Question(1));
  const std::string answer = Text(".assistant > .text");
  Ask(Question(2));
  EXPECT_EQ(Count(".message"), 4u);
  browser_->Open("about:blank");
  Reopen();
  ASSERT_TRUE(browser_->Await("document.querySelector('#conversations .row')"));
  Click("#conversations .row");
  ASSERT_TRUE(browser_->Await("document.querySelectorAll('.message').length === 4"));
  EXPECT_EQ(Text(".assistant > .text"), answer);
}

TEST_F(ChatPageTest, AnAnswerCanBeStoppedAndContinued) {
  constexpr const char* kText =
      "(({ thought, text }) => thought + "
      "text)(ebbChat.state.current.nodes[ebbChat.state.current.leaf])";
  ServerOptions options = WithTiers(GenerateOptions::OnEnd::kIgnore);
  Open(options);
  Say(Question(1));
  ASSERT_TRUE(browser_->Await("ebbChat.running?.node.trace.ids.length > 50"));
  EXPECT_FALSE(Run("document.getElementById('stop').hidden").get<bool>());
  EXPECT_EQ(Run("document.querySelector('.assistant').getAttribute('aria-busy')"), "true");
  browser_->Press("Escape");
  ASSERT_TRUE(browser_->Await("!ebbChat.running"));
  Await([](const Figures& figures) { return figures.decoding == 0; });
  EXPECT_THAT(Text(".assistant .facts"), HasSubstr("stopped"));
  const std::string begun = Run(kText);
  EXPECT_GT(begun.size(), 100u);
  Click("[aria-label^='Continue']");
  ASSERT_TRUE(browser_->Await("ebbChat.running?.node.trace.ids.length > 20"));
  Click("#stop");
  ASSERT_TRUE(browser_->Await("!ebbChat.running"));
  const std::string whole = Run(kText);
  EXPECT_THAT(whole, StartsWith(begun));
  EXPECT_GT(whole.size(), begun.size() + 50);
  EXPECT_EQ(Count(".message"), 2u);
}

TEST_F(ChatPageTest, ASecondAnswerIsABranch) {
  Open(Options());
  Ask(Question(1));
  EXPECT_EQ(Count(".switch"), 0u);
  Click(".assistant [aria-label='Answer again']");
  ASSERT_TRUE(browser_->Await("!ebbChat.running && document.querySelector('.switch')"));
  EXPECT_EQ(Text(".assistant .switch span"), "2 / 2");
  Click("[data-go=left]");
  EXPECT_EQ(Text(".assistant .switch span"), "1 / 2");
  EXPECT_EQ(Run("document.activeElement.dataset.go"), "right") << "the focus stays at the switch";
}

TEST_F(ChatPageTest, AnEditedMessageIsABranch) {
  Open(Options());
  Ask(Question(1));
  Ask(Question(2));
  Click(".user [aria-label^=Edit]");
  EXPECT_EQ(Run("document.activeElement.value"), Question(1));
  Run("document.activeElement.select()");
  browser_->Type(Question(3));
  browser_->Press("Enter");
  ASSERT_TRUE(browser_->Await("!ebbChat.running && document.querySelector('.user .switch')"));
  EXPECT_EQ(Count(".message"), 2u) << "what came behind the old message is on its branch";
  EXPECT_EQ(Text(".user .bubble"), Question(3));
  Click(".user [data-go=left]");
  EXPECT_EQ(Count(".message"), 4u);
  EXPECT_EQ(Text(".user .bubble"), Question(1));
}

TEST_F(ChatPageTest, AServerThatDiesAndComesBackLosesNoMessage) {
  ServerOptions options = WithTiers(GenerateOptions::OnEnd::kIgnore);
  Open(options);
  options.port = port();
  Say(Question(1));
  ASSERT_TRUE(browser_->Await("ebbChat.running?.node.trace.ids.length > 20"));
  server_.reset();
  ASSERT_TRUE(browser_->Await("!ebbChat.running"));
  EXPECT_FALSE(Run("document.querySelector('.assistant .error').hidden").get<bool>());
  EXPECT_EQ(Count(".message"), 2u);
  Say(Question(2));
  ASSERT_TRUE(
      browser_->Await("document.getElementById('notice').textContent.includes('does not answer')"));
  options.defaults.generate.on_end = GenerateOptions::OnEnd::kStop;
  Start(options);
  ASSERT_TRUE(browser_->Await("document.getElementById('notice').textContent.includes('is back')"));
  Ask(Question(3));
  EXPECT_GT(Text(".message:last-child > .text").size(), 0u);
}

TEST_F(ChatPageTest, TenThousandTokensDoNotSlowItDown) {
  Open(Options());
  // The text has paragraphs, lists, code and formulas, as long answers do.
  const std::string block =
      "Some words of a paragraph that has *emphasis* and `code` in it.\\n\\n"
      "- one item\\n- another with $x^2$\\n\\n"
      "```python\\nfor i in range(10):\\n    print(i)\\n```\\n\\n";
  Run(fmt::format(R"js((() => {{
    const block = '{}'.match(/\S+\s*/g);
    const pieces = Array.from({{ length: 10000 }}, (_, i) =>
        i < 5000 ? {{ reasoning_content: block[i % block.length] }} : {{ content: block[i % block.length] }});
    window.length = pieces.reduce((sum, {{ content = '', reasoning_content = '' }}) =>
        sum + content.length + reasoning_content.length, 0);
    answerWith(pieces);
    window.longTasks = 0;
    new PerformanceObserver((list) => {{
      for (const {{ duration }} of list.getEntries()) longTasks = Math.max(longTasks, duration);
    }}).observe({{ type: 'longtask' }});
  }})())js",
                  block));
  Say("show");
  ASSERT_TRUE(browser_->Await("document.querySelector('.thought')?.hidden === false"));
  Click(".thought summary");
  ASSERT_TRUE(
      browser_->Await("!ebbChat.running && document.querySelectorAll('.assistant > .text "
                      ".code').length > 100"));
  const double parsed = Run("ebbChat.work.characters");
  const double length = Run("window.length");
  // Drawing the whole text with each token would parse a thousand times as much.
  EXPECT_LT(parsed, 40 * length);
  EXPECT_LT(Run("ebbChat.work.blocks").get<double>(), 15000);
  RecordProperty("longest_task_ms", Run("Math.round(longTasks)").dump());
  EXPECT_THAT(Text(".thought summary"), HasSubstr("5,000 tokens"));
  // The page has scrolled to the newest text.
  EXPECT_TRUE(Run("(() => { const box = document.getElementById('scroll');"
                  "return box.scrollHeight - box.scrollTop - box.clientHeight < 80; })()")
                  .get<bool>());
}

TEST_F(ChatPageTest, HostileMarkdownIsText) {
  Open(Options());
  Answer(R"(<script>window.taken = 1</script> <img src=x onerror="window.taken = 1">

![a picture](https://elsewhere.example/pixel.png) [a link](javascript:window.taken=1)
[another](https://elsewhere.example/page) [data](data:text/html,<script>taken=1</script>)
<iframe src="https://elsewhere.example"></iframe> <a href="javascript:taken=1" onclick="taken=1">x</a>

<style>body { display: none }</style> <svg onload="window.taken = 1"></svg>
<form action="https://elsewhere.example"><input name=a></form>

$\href{javascript:window.taken=1}{x}$ $\includegraphics{https://elsewhere.example/b.png}$

```html"onmouseover="window.taken=1
<script>window.taken = 1</script>
``` )");
  ASSERT_TRUE(browser_->Await("document.querySelector('.katex')"));
  EXPECT_TRUE(Run("window.taken === undefined").get<bool>());
  EXPECT_EQ(Count("#messages :is(script, img, iframe, style, form, object, embed, link)"), 0u);
  EXPECT_EQ(Count("#messages [onclick], #messages [onerror], #messages [onmouseover]"), 0u);
  const json links =
      Run("[...document.querySelectorAll('#messages a[href]')].map((a) => a.protocol + a.rel)");
  EXPECT_EQ(links.size(), 2u) << links.dump();
  for (const json& link : links) EXPECT_EQ(link, "https:noopener noreferrer nofollow");
  EXPECT_THAT(Text(".assistant > .text"), HasSubstr("<script>window.taken = 1</script>"));
  ExpectAskedThisServerAlone();
}

TEST_F(ChatPageTest, MarkdownCodeAndFormulasAreDrawn) {
  Open(Options());
  Answer(R"(# A title

Euler: \(e^{i\pi} = -1\), and it costs $5 or $6.

\[ \int_0^1 \frac{\color{red}{x}}{\sqrt{1+x^2}}\,dx \]

| a | b |
|---|--:|
| 1 | 2 |

```python
def f(x):
    return x  # the same
```
1. one
2. two
)");
  ASSERT_TRUE(browser_->Await("document.querySelectorAll('.katex').length === 2"));
  ASSERT_TRUE(browser_->Await("document.querySelector('.hljs-keyword')"));
  EXPECT_EQ(Text(".assistant h1"), "A title");
  EXPECT_EQ(Count(".assistant td"), 2u);
  EXPECT_EQ(Count(".assistant ol li"), 2u);
  EXPECT_THAT(Text(".assistant .text p"), HasSubstr("it costs $5 or $6"));
  EXPECT_TRUE(
      browser_->Await("getComputedStyle(document.querySelector('.katex "
                      ".frac-line')).borderBottomStyle === 'solid'"))
      << "the style of KaTeX is there";
  EXPECT_GT(Run("[...document.querySelectorAll('.katex [style]')].length").get<int>(), 0)
      << "the policy lets KaTeX set styles";
  EXPECT_EQ(Complaints(), "");
}

TEST_F(ChatPageTest, TheMemoryOfTheConversationIsShownAndTokensAreTinted) {
  Open(WithTiers());
  Ask(Question(1));
  Ask(Question(2));
  EXPECT_FALSE(Run("document.querySelector('#memory .filled').hidden").get<bool>());
  EXPECT_EQ(Count("#memory dt"), 4u);
  EXPECT_THAT(
      Run("document.querySelector('#memory .bar').getAttribute('aria-label')").get<std::string>(),
      HasSubstr("T1 "));
  EXPECT_THAT(Text("#memory"), HasSubstr("in host memory"));
  Click("#tint");
  EXPECT_EQ(Run("document.getElementById('tint').getAttribute('aria-pressed')"), "true");
  const auto sizes = Run("[0, 1, 2, 3].map((t) => CSS.highlights.get(`ebb-t${t}`).size)");
  EXPECT_GT(sizes[0].get<int>() + sizes[1].get<int>(), 0) << sizes.dump();
  EXPECT_EQ(sizes[3], 0);
  // Both questions and both answers were found in the cache.
  EXPECT_EQ(Text("#legend-note"), "");
  // Guesses are marked when asked for.
  Run("const { trace } = ebbChat.state.current.nodes[ebbChat.state.current.leaf];"
      "trace.guessed = trace.ids.map((_, i) => i).filter((i) => i % 2 === 1)");
  EXPECT_EQ(Run("CSS.highlights.get('ebb-guessed').size"), 0);
  Click("#mark-guessed");
  EXPECT_GT(Run("CSS.highlights.get('ebb-guessed').size").get<int>(), 0);
  Click("#mark-guessed");
  EXPECT_EQ(Run("CSS.highlights.get('ebb-guessed').size"), 0);
  Click("#tint");
  EXPECT_TRUE(Run("CSS.highlights.get('ebb-t0') === undefined").get<bool>());
}

TEST_F(ChatPageTest, AnotherSettingIsComparedTokenByToken) {
  Open(WithTiers());
  Ask(Question(1));
  Click(".assistant .toggle.small");
  ASSERT_TRUE(browser_->Await("document.getElementById('compare').open"));
  Click(".presets button");
  ASSERT_TRUE(browser_->Await(
      "document.querySelector('.verdict.alike, .verdict.differs, .verdict.error')"));
  EXPECT_THAT(Text(".verdict"), StartsWith("The same answer: all "));
  EXPECT_EQ(Text(".side:first-child .plain"), Text(".side:last-child .plain"));
  browser_->Press("Escape");
  ASSERT_TRUE(browser_->Await("!document.getElementById('compare').open"));
}

TEST_F(ChatPageTest, TheFirstTokenThatDiffersIsMarked) {
  ServerOptions options = Options();
  options.defaults.sampling = {.temperature = 2, .top_k = 0, .top_p = 1, .min_p = 0};
  Open(options);
  Ask(Question(1));
  Click(".assistant .toggle.small");
  Run("[...document.querySelectorAll('.presets button')].at(-1).click()");
  ASSERT_TRUE(
      browser_->Await("document.querySelector('.verdict.differs') && "
                      "!document.querySelectorAll('.head button')[0].hidden"));
  EXPECT_THAT(Text(".verdict"), HasSubstr("differs"));
  EXPECT_EQ(Text(".side:first-child .same"), Text(".side:last-child .same"));
  EXPECT_NE(Text(".side:first-child mark"), Text(".side:last-child mark"));
  Click(".head button");
  EXPECT_EQ(Text(".assistant .switch span"), "2 / 2") << "kept as a branch";
}

TEST_F(ChatPageTest, ConversationsAreSessionsOfTheServer) {
  const TemporaryFolder folder;
  ServerOptions options = Options();
  const auto url = store::ParseStoreUrl("file:" + folder.path());
  ASSERT_TRUE(url.ok());
  options.sessions = *url;
  Open(options);
  EXPECT_THAT(Text("#kept"), HasSubstr("sessions of the server"));
  const auto sessions = [this] { return Client(port()).Get("/v1/sessions").json()["data"].size(); };
  Ask(Question(1));
  Ask(Question(2));
  EXPECT_EQ(sessions(), 1u) << "both turns are in one";
  Run("[...document.querySelectorAll('.user [aria-label^=Edit]')].at(-1).click()");
  Run("document.activeElement.select()");
  browser_->Type(Question(3));
  browser_->Press("Enter");
  ASSERT_TRUE(browser_->Await("!ebbChat.running && document.querySelector('.user .switch')"));
  EXPECT_EQ(sessions(), 2u) << "a branch has a copy";
  const std::string answer = Text(".message:last-child > .text");
  EXPECT_GT(answer.size(), 0u);
  // Another browser finds the conversation on the server, with both branches.
  Browser other(FindChromium());
  other.Open(fmt::format("http://127.0.0.1:{}/", port()));
  ASSERT_TRUE(other.Await("document.querySelector('#conversations .row')"));
  ASSERT_TRUE(other.Await("Object.keys(ebbChat.state.conversations[0].sessions).length === 2"));
  other.Evaluate("document.querySelector('#conversations .row').click()");
  EXPECT_EQ(other.Evaluate("document.querySelectorAll('.message').length"), 4);
  EXPECT_EQ(other.Evaluate("document.querySelectorAll('.switch').length"), 1);
  EXPECT_GT(
      other.Evaluate("[...document.querySelectorAll('.thought')].filter((t) => !t.hidden).length")
          .get<int>(),
      0);
  Run("window.confirm = () => true");
  Click("#conversations [aria-label^=Delete]");
  for (int i = 0; i < 600 && sessions() > 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_EQ(sessions(), 0u) << "they go with the conversation";
}

TEST_F(ChatPageTest, SettingsGoIntoTheRequest) {
  Open(Options());
  Click("#open-settings");
  EXPECT_THAT(Text("#settings"), HasSubstr("This server has no tiers"));
  Run("document.querySelector('#settings [id^=setting-max_tokens]').focus()");
  browser_->Type("7");
  browser_->Press("Enter");
  ASSERT_TRUE(browser_->Await("!document.getElementById('settings').open"));
  EXPECT_EQ(Text("#setting"), "at most 7 tokens");
  Ask(Question(1));
  EXPECT_EQ(Run("ebbChat.state.current.nodes[ebbChat.state.current.leaf].tokens"), 7);
  EXPECT_THAT(Text(".assistant .facts"), HasSubstr("cut off"));
}

TEST_F(ChatPageTest, AKeyIsAskedForWhereTheServerHasKeys) {
  ServerOptions options = Options();
  options.keys = std::make_shared<const KeyRing>();
  Start(options);
  browser_->Open(fmt::format("http://127.0.0.1:{}/", port()));
  ASSERT_TRUE(browser_->Await("document.getElementById('key-dialog').open"));
  EXPECT_EQ(Run("document.activeElement.id"), "key");
}

TEST_F(ChatPageTest, APhoneAndAScreenReaderHaveAllOfIt) {
  Open(WithTiers());
  browser_->SetSize(390, 844);
  Answer(
      "A very long line of `code_that_has_no_blank_in_it_and_is_wider_than_a_phone_is_at_all` and "
      "```\nx = 1234567890123456789012345678901234567890123456789012345678901234567890\n```");
  EXPECT_LE(Run("document.documentElement.scrollWidth").get<int>(), 390);
  EXPECT_LE(Run("document.getElementById('scroll').scrollWidth - "
                "document.getElementById('scroll').clientWidth")
                .get<int>(),
            0);
  // The sidebar slides away once the window is narrow.
  ASSERT_TRUE(browser_->Await(
      "getComputedStyle(document.getElementById('sidebar')).visibility === 'hidden'"));
  Click("#open-sidebar");
  ASSERT_TRUE(browser_->Await(
      "getComputedStyle(document.getElementById('sidebar')).visibility === 'visible'"));
  browser_->Press("Escape");
  ASSERT_TRUE(browser_->Await(
      "getComputedStyle(document.getElementById('sidebar')).visibility === 'hidden'"));
  // Each control has a name, and changes are announced.
  EXPECT_EQ(
      Run("[...document.querySelectorAll('button, input, select, textarea, summary')].filter((e) =>"
          "!(e.ariaLabel || e.textContent.trim() || e.labels?.length)).map((e) => e.outerHTML)"),
      json::array());
  // The chat's state and notices, its messages, the result of a search, the reasons of a token, and
  // the state of the tab "Server".
  EXPECT_EQ(Count("[role=status], [role=alert], [role=log]"), 6u);
}

}  // namespace
}  // namespace ebb::server

// Tests the chat page in several tabs, with addresses of its conversations, and with several
// answers at once.
#include <chrono>
#include <string>
#include <thread>

#include "tests/server/chat/chat_page_fixture.h"

namespace ebb::server {
namespace {

using nlohmann::json;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

class ChatTabsTest : public ChatPageTest {
 protected:
  static ServerOptions Endless() { return WithTiers(GenerateOptions::OnEnd::kIgnore); }
  std::string Address() { return Run("location.href"); }
  // Opens `url` in a new tab and returns the tab's number.
  size_t OpenInTab(const std::string& url) {
    const size_t tab = browser_->OpenTab();
    OpenAt(url);
    return tab;
  }
  // Returns the texts of the user's messages on the shown branch.
  json Asked() {
    return Run("[...document.querySelectorAll('.bubble')].map((bubble) => bubble.textContent)");
  }
  // Waits until `condition` is true of `c`, the stored conversation of the address.
  void AwaitStored(const std::string& condition) {
    const std::string ask = fmt::format(
        "import('/chat/store.js').then(({{ load }}) => load(location.hash.slice(1))).then((c) => "
        "Boolean({}))",
        condition);
    for (int i = 0; i < 1200; ++i) {
      if (Run(ask) == true) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    FAIL() << "it is not stored: " << condition;
  }
  // Begins a conversation whose answer does not end.
  void BeginEndless(const std::string& question) {
    Click("#new");
    ASSERT_TRUE(browser_->Await("document.querySelectorAll('.message').length === 0"));
    Say(question);
    ASSERT_TRUE(browser_->Await("ebbChat.running?.node.trace.ids.length > 5"))
        << Text("#notice") << Complaints();
  }
  // Requests an answer that grows by a word every 50 ms, for longer than any test.
  void AskSlowly() {
    Run("answerWith(Array.from({ length: 10000 }, (_, i) => ({ content: `${i} ` })), 50)");
    Say("show");
    ASSERT_TRUE(browser_->Await("ebbChat.running?.node.trace.ids.length > 5"));
  }
  size_t NumMessages() { return Run("Object.keys(ebbChat.state.current.nodes).length"); }
};

TEST_F(ChatTabsTest, TwoTabsOnOneConversationKeepEachOthersMessages) {
  Open(Options());
  Ask(Question(1));
  const size_t other = OpenInTab(Address());
  ASSERT_TRUE(browser_->Await("document.querySelectorAll('.message').length === 2"));
  Ask(Question(2));
  browser_->UseTab(0);
  ASSERT_TRUE(
      browser_->Await("document.querySelectorAll('.message').length === 4 && "
                      "ebbChat.state.elsewhere.size === 0"))
      << "the branch that is shown follows the other tab";
  Ask(Question(3));
  const json all = {Question(1), Question(2), Question(3)};
  for (const size_t tab : {size_t{0}, other}) {
    browser_->UseTab(tab);
    EXPECT_TRUE(browser_->Await("document.querySelectorAll('.message').length === 6"));
    Reload();
    ASSERT_TRUE(browser_->Await("document.querySelectorAll('.message').length === 6"));
    EXPECT_EQ(Asked(), all);
  }
  EXPECT_EQ(Complaints(), "");
}

TEST_F(ChatTabsTest, ATabThatHearsNothingOfAnotherOverwritesNoneOfItsMessages) {
  browser_->RunBeforePages("delete window.BroadcastChannel");
  Open(Options());
  Ask(Question(1));
  OpenInTab(Address());
  ASSERT_TRUE(browser_->Await("document.querySelectorAll('.message').length === 2"));
  Ask(Question(2));
  Ask(Question(3));
  browser_->UseTab(0);
  EXPECT_EQ(NumMessages(), 2u);
  Ask(Question(4));  // after the first answer, as this tab knows it
  ASSERT_TRUE(browser_->Await("document.querySelectorAll('.switch').length === 1"));
  Reload();
  ASSERT_TRUE(browser_->Await("document.querySelectorAll('.message').length === 4"));
  EXPECT_EQ(NumMessages(), 8u);
  EXPECT_EQ(Asked(), json({Question(1), Question(4)}));
  Click("[data-go=left]");
  EXPECT_EQ(Asked(), json({Question(1), Question(2), Question(3)}));
  // A tab that only selects a branch writes nothing else.
  browser_->UseTab(1);
  Click(".message:nth-child(2) [aria-label='Answer again']");
  ASSERT_TRUE(browser_->Await("!ebbChat.running && document.querySelector('[data-go=left]')"));
  Click("[data-go=left]");
  Reload();
  ASSERT_TRUE(browser_->Await("document.querySelectorAll('.message').length > 0"));
  EXPECT_EQ(NumMessages(), 9u);
}

TEST_F(ChatTabsTest, BothTabsThatContinueAnAnswerKeepTheirText) {
  browser_->RunBeforePages("delete window.BroadcastChannel");
  Open(Endless());
  Say(Question(1));
  ASSERT_TRUE(browser_->Await("ebbChat.running?.node.trace.ids.length > 20"));
  Click("#stop");
  ASSERT_TRUE(browser_->Await("!ebbChat.running"));
  AwaitStored("Object.values(c.nodes).some((node) => node.finish === 'stopped')");
  const auto go_on = [this](const std::string& length) {
    Click("[aria-label^='Continue']");
    ASSERT_TRUE(browser_->Await("ebbChat.running?.node.trace.ids.length > " + length));
    Click("#stop");
    ASSERT_TRUE(browser_->Await("!ebbChat.running"));
    EXPECT_EQ(Count(".message"), 2u);
    EXPECT_EQ(Count(".switch"), 0u) << "what the continuation begins with is no branch";
  };
  OpenInTab(Address());
  ASSERT_TRUE(browser_->Await("document.querySelectorAll('.message').length === 2"));
  go_on("60");
  AwaitStored("Object.values(c.nodes).filter((node) => node.finish === 'stopped').length === 2");
  const json other = Run("ebbChat.state.current.nodes[ebbChat.state.current.leaf].trace.ids");
  browser_->UseTab(0);
  Click("[aria-label^='Continue']");
  ASSERT_TRUE(browser_->Await("ebbChat.running?.node.trace.ids.length > 10"));
  Click("#stop");
  AwaitStored("Object.values(c.nodes).filter((node) => node.finish === 'stopped').length === 3");
  Reload();
  ASSERT_TRUE(browser_->Await("document.querySelectorAll('.message').length === 2"));
  EXPECT_EQ(Text(".assistant .switch span"), "2 / 2");
  Click("[data-go=left]");
  EXPECT_EQ(Run("ebbChat.state.current.nodes[ebbChat.state.current.leaf].trace.ids"), other);
}

TEST_F(ChatTabsTest, AConversationThatIsDeletedWhileAnotherTabAnswersItStaysDeleted) {
  Open(Options());
  AskSlowly();
  OpenInTab(Address());
  ASSERT_TRUE(browser_->Await("document.querySelectorAll('.message').length === 2"));
  ASSERT_TRUE(browser_->Await("document.querySelector('#conversations .busy:not([hidden])')"))
      << "the list shows that the other tab answers";
  Say(Question(2));
  EXPECT_THAT(Text("#notice"), HasSubstr("answered in another tab"));
  EXPECT_EQ(Run("document.getElementById('input').value"), Question(2));
  Run("window.confirm = () => true");
  Click("#conversations [aria-label^=Delete]");
  browser_->UseTab(0);
  ASSERT_TRUE(browser_->Await("ebbChat.state.runs.size === 0"));
  EXPECT_EQ(Text("#title"), "New chat");
  EXPECT_THAT(Text("#notice"), HasSubstr("deleted in another tab"));
  for (const size_t tab : {size_t{0}, size_t{1}}) {
    browser_->UseTab(tab);
    EXPECT_EQ(Count("#conversations li"), 0u);
    Reload();
    EXPECT_EQ(Count("#conversations li"), 0u);
  }
}

TEST_F(ChatTabsTest, ATabThatDoesNotHearOfADeletionDoesNotStoreTheConversationAgain) {
  browser_->RunBeforePages("delete window.BroadcastChannel; window.confirm = () => true");
  Open(Options());
  Ask(Question(1));
  OpenInTab(Address());
  ASSERT_TRUE(browser_->Await("document.querySelectorAll('.message').length === 2"));
  Click("#conversations [aria-label^=Delete]");
  AwaitStored("!c || c.removed");
  browser_->UseTab(0);
  Say(Question(2));
  ASSERT_TRUE(browser_->Await("document.getElementById('notice').textContent.includes('deleted')"));
  Reload();
  EXPECT_EQ(Count("#conversations li"), 0u);
}

TEST_F(ChatTabsTest, SettingsOfTwoTabsAreBothKept) {
  const auto open = [this] { Click("#open-settings"); };
  const auto set = [this](const std::string& key, const std::string& value) {
    Run(fmt::format("document.querySelector('#settings [id^=setting-{}]').focus()", key));
    browser_->Type(value);
    Click("#settings .primary");
  };
  Open(Options());
  open();
  OpenInTab(Address());
  open();
  set("max_tokens", "7");
  browser_->UseTab(0);
  set("system", "Be brief.");
  for (const size_t tab : {size_t{0}, size_t{1}}) {
    browser_->UseTab(tab);
    EXPECT_TRUE(
        browser_->Await("document.getElementById('setting').textContent === "
                        "'system prompt · at most 7 tokens'"))
        << Text("#setting");
    Reload();
    EXPECT_EQ(Text("#setting"), "system prompt · at most 7 tokens");
  }
  open();
  Run("document.querySelector('#settings [id^=setting-max_tokens]').value = ''");
  Click("#settings .primary");
  EXPECT_EQ(Text("#setting"), "system prompt");
}

TEST_F(ChatTabsTest, ANewChatHasAnAddressFromItsFirstQuestion) {
  Open(Endless());
  EXPECT_THAT(Address(), EndsWith("/"));
  AskSlowly();
  const std::string address = Address();
  EXPECT_EQ(address, fmt::format("http://127.0.0.1:{}/#", port()) +
                         Run("ebbChat.state.current.id").get<std::string>());
  AwaitStored("c.nodes[c.leaf].text.startsWith('0 1 2 3 4 5 ')");
  Reload();
  EXPECT_EQ(Address(), address);
  EXPECT_EQ(Asked(), json({"show"}));
  EXPECT_THAT(Text(".assistant > .text"), StartsWith("0 1 2 3 4 5 "));
  Click("[aria-label^='Continue']");
  ASSERT_TRUE(browser_->Await("ebbChat.running?.node.trace.ids.length > 20"));
  Click("#stop");
  ASSERT_TRUE(browser_->Await("!ebbChat.running"));
  EXPECT_EQ(Count(".message"), 2u);
}

TEST_F(ChatTabsTest, BackAndForwardGoBetweenChats) {
  Open(Options());
  Ask(Question(1));
  const std::string first = Address();
  Click("#new");
  EXPECT_EQ(Count(".message"), 0u);
  Ask(Question(2));
  const std::string second = Address();
  EXPECT_NE(first, second);
  const auto shows = [this](int number) {
    return browser_->Await(fmt::format("document.querySelector('.bubble')?.textContent === {}",
                                       json(Question(number)).dump()));
  };
  Run("history.back()");
  EXPECT_TRUE(shows(1));
  EXPECT_EQ(Address(), first);
  Run("history.forward()");
  EXPECT_TRUE(shows(2));
  EXPECT_EQ(Address(), second);
  Click("#conversations li:last-child .row");
  EXPECT_TRUE(shows(1));
  Run("history.back()");
  EXPECT_TRUE(shows(2));
  Click(".skip");
  EXPECT_EQ(Address(), second) << "the skip link moves the focus alone";
  EXPECT_EQ(Run("document.activeElement.id"), "input");
  OpenAt(fmt::format("http://127.0.0.1:{}/?#0123456789abcdef", port()));
  EXPECT_EQ(Text("#title"), "New chat");
  EXPECT_THAT(Text("#notice"), HasSubstr("does not have that chat"));
}

TEST_F(ChatTabsTest, SeveralChatsAreAnsweredAtOnceAndEachHasItsOwnStop) {
  Open(Endless());
  for (const int number : {1, 2, 3}) {
    BeginEndless(fmt::format("{} of several chats with a title that no sidebar has room for: {}",
                             number, Question(number)));
  }
  EXPECT_EQ(Run("ebbChat.state.runs.size"), 3);
  Run("window.before = [...ebbChat.state.runs.values()].map(({ node }) => node.trace.ids.length)");
  EXPECT_TRUE(browser_->Await(
      "[...ebbChat.state.runs.values()].every(({ node }, i) => node.trace.ids.length > before[i])"))
      << "all go on";
  EXPECT_EQ(Run("[...document.querySelectorAll('#conversations .busy')].filter((dot) => {"
                "  const box = dot.getBoundingClientRect();"
                "  return document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2) "
                "=== dot;"
                "}).length"),
            3)
      << "the dots are in sight";
  Say("and?");
  EXPECT_THAT(Text("#notice"), HasSubstr("being answered"));
  EXPECT_EQ(Run("document.getElementById('input').value"), "and?") << "no text is lost";
  Run("document.getElementById('input').value = ''");
  // A chat without an answer has no Stop, and Esc in it stops nothing.
  Click("#new");
  EXPECT_TRUE(Run("document.getElementById('stop').hidden").get<bool>());
  EXPECT_FALSE(Run("document.getElementById('send').hidden").get<bool>());
  browser_->Press("Escape");
  Click("#conversations li:last-child .row");
  ASSERT_TRUE(browser_->Await("document.querySelector('.assistant[aria-busy]')"));
  EXPECT_THAT(Text("#title"), StartsWith("1 of several"));
  EXPECT_EQ(Run("ebbChat.state.runs.size"), 3);
  browser_->Press("Escape");
  ASSERT_TRUE(browser_->Await("ebbChat.state.runs.size === 2"));
  EXPECT_TRUE(Run("document.getElementById('stop').hidden").get<bool>());
  // A comparison runs while the other chats are answered.
  Click(".assistant .toggle.small");
  ASSERT_TRUE(browser_->Await("document.getElementById('compare').open"));
  Click(".presets button");
  ASSERT_TRUE(browser_->Await("document.querySelector('.verdict').textContent.includes('so far')"));
  browser_->Press("Escape");
  ASSERT_TRUE(browser_->Await("!document.getElementById('compare').open"));
  EXPECT_EQ(Run("ebbChat.state.runs.size"), 2);
  for (const int left : {1, 0}) {
    Click("#conversations li:has(.busy:not([hidden])) .row");
    ASSERT_TRUE(browser_->Await("ebbChat.running"));
    Click("#stop");
    ASSERT_TRUE(browser_->Await(fmt::format("ebbChat.state.runs.size === {}", left)));
  }
  EXPECT_TRUE(browser_->Await(
      "[...document.querySelectorAll('#conversations .busy')].every((dot) => dot.hidden)"));
}

TEST_F(ChatTabsTest, ABrowserThatIsOfflineKeepsAllChatsAndTheirQuestions) {
  Open(Options());
  Ask(Question(1));
  browser_->SetOffline(true);
  Say(Question(2));
  ASSERT_TRUE(
      browser_->Await("!ebbChat.running && document.querySelectorAll('.error:not([hidden])'"
                      ").length === 1"));
  EXPECT_THAT(Text("#notice"), HasSubstr("does not answer"));
  Click("#new");
  Say(Question(3));
  ASSERT_TRUE(
      browser_->Await("!ebbChat.running && document.querySelectorAll('.error:not([hidden])'"
                      ").length === 1"));
  browser_->SetOffline(false);
  ASSERT_TRUE(browser_->Await("document.getElementById('notice').textContent.includes('is back')"));
  Reload();
  EXPECT_EQ(Asked(), json({Question(3)}));
  Click(".assistant [aria-label='Answer again']");
  ASSERT_TRUE(browser_->Await("!ebbChat.running && document.querySelector('.switch')"));
  EXPECT_EQ(Count("#conversations li"), 2u);
  Click("#conversations li:last-child .row");
  ASSERT_TRUE(browser_->Await("document.querySelectorAll('.message').length === 4"));
  EXPECT_EQ(Asked(), json({Question(1), Question(2)}));
}

}  // namespace
}  // namespace ebb::server

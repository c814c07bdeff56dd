// Tests features of the chat page: files, drafts, titles, search, export and import, settings of
// one chat, the use of the context, why a token is in its tier, printing and touch.
#include <string>

#include "tests/server/chat/chat_page_fixture.h"
#include "tests/support/child_process.h"

namespace ebb::server {
namespace {

using nlohmann::json;
using testing::EndsWith;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::Not;
using testing::StartsWith;

// kBringFiles defines bring(way, files), which brings files {name, text} to the page as a user
// does, `sent`, the body of the last request, and `saved`, the text of the last download.
constexpr const char* kBringFiles = R"js(
(() => {
  const realFetch = window.fetch;
  window.fetch = (url, options) => {
    if (options?.body) window.sent = JSON.parse(options.body);
    return realFetch(url, options);
  };
  URL.createObjectURL = (blob) => {
    blob.text().then((text) => { window.saved = text; });
    return '#';
  };
  const { click } = HTMLAnchorElement.prototype;
  HTMLAnchorElement.prototype.click = function () {
    this.download ? window.savedName = this.download : click.call(this);
  };
  window.bring = (way, files, into = '#picker') => {
    const data = new DataTransfer();
    if (way === 'text') data.setData('text/plain', files[0].text);
    else for (const { name, text } of files) data.items.add(new File([text], name));
    const event = { bubbles: true, cancelable: true };
    if (way === 'button') {
      document.querySelector(into).files = data.files;
      document.querySelector(into).dispatchEvent(new Event('change'));
    } else if (way === 'drop') {
      for (const type of ['dragover', 'drop']) {
        document.querySelector('main').dispatchEvent(new DragEvent(type, { ...event, dataTransfer: data }));
      }
    } else {
      document.getElementById('input').dispatchEvent(new ClipboardEvent('paste', { ...event, clipboardData: data }));
    }
  };
})();
)js";

class ChatFeaturesTest : public ChatPageTest {
 protected:
  void SetUp() override {
    ChatPageTest::SetUp();
    if (browser_ != nullptr) browser_->RunBeforePages(kBringFiles);
  }
  void Reload() {
    // A read waits for all earlier writes, which the end of the page would abort.
    Run("new Promise((done) => { indexedDB.open('ebb-chat').onsuccess = ({ target }) => {"
        "target.result.transaction('conversations').objectStore('conversations').count()"
        ".onsuccess = () => done(true); }; })");
    ChatPageTest::Reload();
  }
  void AwaitFiles(size_t count) {
    ASSERT_TRUE(browser_->Await(
        fmt::format("document.querySelectorAll('#files li').length === {}", count)));
  }
  void Rename(const std::string& title) {
    Click("#conversations [aria-label^=Rename]");
    Run("document.querySelector('#conversations .title').select()");
    browser_->Type(title);
    browser_->Press("Enter");
  }
  void SetOwn(const std::string& key, const std::string& value) {
    Run(fmt::format("document.querySelector('#settings [id^=setting-{}]').value = {}", key,
                    json(value).dump()));
  }
  // Clicks the middle of the first word of an element.
  void ClickWord(const std::string& selector) {
    Run(fmt::format(R"js((() => {{
      const range = document.createRange();
      const walker = document.createTreeWalker(document.querySelector('{}'), NodeFilter.SHOW_TEXT);
      const text = walker.nextNode();
      range.setStart(text, 0);
      range.setEnd(text, 2);
      range.startContainer.parentElement.scrollIntoView({{ block: 'center' }});
      const {{ x, y, width, height }} = range.getBoundingClientRect();
      text.parentElement.dispatchEvent(new MouseEvent('click',
          {{ bubbles: true, clientX: x + width / 2, clientY: y + height / 2 }}));
    }})())js",
                    selector));
  }
};

TEST_F(ChatFeaturesTest, TextFilesComeByButtonDropAndPaste) {
  Open(Options());
  Run("bring('button', [{ name: 'a.py', text: 'x = 1' }, { name: 'b.bin', text: 'a\\0b' }])");
  AwaitFiles(1);
  ASSERT_TRUE(browser_->Await("document.getElementById('notice').textContent !== ''"));
  EXPECT_EQ(Text("#notice"), "b.bin is no text. This page sends text files only.");
  Run("bring('drop', [{ name: 'c.md', text: 'with ``` a fence' }])");
  AwaitFiles(2);
  Run("bring('files', [{ name: 'd.txt', text: 'pasted file' }])");
  AwaitFiles(3);
  Run("bring('text', [{ name: '', text: 'long '.repeat(1000) }])");
  AwaitFiles(4);
  EXPECT_THAT(Text("#files"), HasSubstr("pasted text.txt4.9 KiB"));
  Run("bring('text', [{ name: '', text: 'short' }])");
  Click("#files [aria-label='Remove pasted text.txt']");
  AwaitFiles(3);
  Ask("What is in them?");
  EXPECT_EQ(Run("sent.messages"),
            json::array({{{"role", "user"},
                          {"content",
                           "a.py:\n```\nx = 1\n```\n\nc.md:\n````\nwith ``` a fence\n````\n\n"
                           "d.txt:\n```\npasted file\n```\n\nWhat is in them?"}}}));
  EXPECT_EQ(Count("#files li"), 0u);
  EXPECT_EQ(Count(".user .file"), 3u);
  EXPECT_EQ(Text(".user .bubble"), "What is in them?");
  EXPECT_EQ(Text(".file .plain"), "") << "a file is drawn once it is opened";
  Click(".file summary");
  ASSERT_TRUE(browser_->Await("document.querySelector('.file .plain').textContent === 'x = 1'"));
  EXPECT_EQ(Complaints(), "");
}

TEST_F(ChatFeaturesTest, AMessageMayBeFilesAlone) {
  Open(Options());
  Run("bring('button', [{ name: 'only.txt', text: 'two words' }])");
  AwaitFiles(1);
  Ask("");
  EXPECT_EQ(Text("#title"), "only.txt");
  EXPECT_EQ(Run("sent.messages[0].content"), "only.txt:\n```\ntwo words\n```");
}

TEST_F(ChatFeaturesTest, ADraftAndItsFilesSurviveAReload) {
  Open(Options());
  Ask(Question(1));
  Run("document.getElementById('input').focus()");
  browser_->Type("a question that is not finished");
  Run("bring('button', [{ name: 'a.txt', text: 'one' }])");
  AwaitFiles(1);
  Reload();
  EXPECT_EQ(Run("document.getElementById('input').value"), "a question that is not finished");
  EXPECT_EQ(Count("#files li"), 1u);
  EXPECT_FALSE(Run("document.getElementById('send').disabled").get<bool>());
  Click("#new");
  EXPECT_EQ(Run("document.getElementById('input').value"), "") << "each chat has its own";
  EXPECT_EQ(Count("#files li"), 0u);
  Run("history.back()");
  ASSERT_TRUE(browser_->Await("document.getElementById('input').value.startsWith('a question')"));
  Run("document.getElementById('input').focus()");
  browser_->Press("Enter");
  ASSERT_TRUE(
      browser_->Await("!ebbChat.running && document.querySelectorAll('.assistant').length === 2"));
  Reload();
  EXPECT_EQ(Run("document.getElementById('input').value"), "") << "it was sent";
}

TEST_F(ChatFeaturesTest, ChatsAreRenamedAndFound) {
  Open(Options());
  Ask(Question(1));
  Rename("Tides & <b>rivers</b>");
  EXPECT_EQ(Text("#title"), "Tides & <b>rivers</b>");
  Click("#new");
  Answer("An answer about zebras.");
  Reload();
  const auto find = [this](const std::string& words) {
    Run(
        fmt::format("(() => {{ const field = document.getElementById('search');"
                    "field.value = '{}'; field.dispatchEvent(new Event('input')); }})()",
                    words));
    return Text("#conversations");
  };
  EXPECT_EQ(find(""), "showTides & <b>rivers</b>");
  EXPECT_EQ(find("RIVERS tid"), "Tides & <b>rivers</b>");
  EXPECT_EQ(find("zebra"), "show") << "words of an answer count";
  EXPECT_TRUE(Run("document.getElementById('none-found').hidden").get<bool>());
  EXPECT_EQ(find("nowhere"), "");
  EXPECT_FALSE(Run("document.getElementById('none-found').hidden").get<bool>());
}

TEST_F(ChatFeaturesTest, AnotherTabFollowsANewTitle) {
  Open(Options());
  Ask(Question(1));
  const std::string address = Run("location.href");
  browser_->OpenTab();
  OpenAt(address);
  ASSERT_TRUE(browser_->Await("document.querySelectorAll('.message').length === 2"));
  Rename("From the second tab");
  browser_->UseTab(0);
  ASSERT_TRUE(browser_->Await(
      "document.getElementById('conversations').textContent === 'From the second tab'"));
  Ask(Question(2));
  Reload();
  EXPECT_EQ(Text("#title"), "From the second tab") << "the older title does not come back";
}

TEST_F(ChatFeaturesTest, ChatsAreExportedAndImported) {
  Open(Options());
  Run("bring('button', [{ name: 'a.txt', text: 'one' }])");
  AwaitFiles(1);
  Run("answerWith([{ reasoning_content: 'a thought' }, { content: '**bold**' }])");
  Ask("The question");
  Click(".assistant [aria-label='Answer again']");
  ASSERT_TRUE(browser_->Await("!ebbChat.running && document.querySelector('.switch')"));
  Click("[data-go=left]");
  Click("#open-transfer");
  Click("#transfer fieldset:nth-of-type(1) button:nth-of-type(1)");
  ASSERT_TRUE(browser_->Await("window.saved"));
  EXPECT_EQ(Run("savedName"), "The-question.md");
  EXPECT_EQ(Run("saved"),
            "# The question\n\n## You\n\na.txt:\n```\none\n```\n\nThe question\n\n## Model\n\n"
            "<details><summary>Thought</summary>\n\na thought\n\n</details>\n\n**bold**\n");
  Run("delete window.saved");
  Click("#transfer fieldset:nth-of-type(2) button");
  ASSERT_TRUE(browser_->Await("window.saved"));
  const std::string exported = Run("saved");
  EXPECT_THAT(exported, Not(HasSubstr("trace")));
  Run("window.confirm = () => true");
  Click("#conversations [aria-label^=Delete]");
  EXPECT_EQ(Count("#conversations li"), 0u);
  const auto import = [&](const std::string& text) {
    Run("document.querySelector('#transfer [role=status]').textContent = ''");
    Run(fmt::format("bring('button', [{{ name: 'x.json', text: {} }}], '#transfer input')",
                    json(text).dump()));
    EXPECT_TRUE(browser_->Await("document.querySelector('#transfer [role=status]').textContent"));
    return Text("#transfer [role=status]");
  };
  EXPECT_EQ(import(exported), "Imported: “The question”.");
  EXPECT_EQ(import("nonsense"), "The file is not JSON.");
  EXPECT_EQ(import("[{\"a\": 1}]"), "There is no chat in the file.");
  // llama-server's form, and one whose messages are above each other.
  EXPECT_EQ(import(R"([{"conv": {"name": "Llama's"}, "messages": [
      {"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]}])"),
            "Imported: “Llama's”.");
  EXPECT_EQ(import(R"({"format": "ebb-chats", "version": 1, "chats": [{"title": "<img src=x>",
      "leaf": "b", "messages": [{"id": "a", "parent": "b", "role": "user", "text": "x"},
                                {"id": "b", "parent": "a", "role": "user", "text": "y"}]}]})"),
            "There is no chat in the file.");
  Click("#transfer .primary");
  EXPECT_EQ(Count("#conversations li"), 2u);
  Run("[...document.querySelectorAll('#conversations .row')].find((row) => "
      "row.textContent === 'The question').click()");
  ASSERT_TRUE(browser_->Await("document.querySelector('.switch')"));
  EXPECT_EQ(Text(".assistant .switch span"), "1 / 2") << "the branch that was shown";
  EXPECT_EQ(Text(".assistant strong"), "bold");
  EXPECT_EQ(Count(".user .file"), 1u);
  Reload();
  EXPECT_EQ(Count(".message"), 2u);
  Ask(Question(2));
  EXPECT_EQ(Run("sent.messages.length"), 3) << "an imported chat continues";
}

TEST_F(ChatFeaturesTest, AChatHasSettingsOfItsOwn) {
  Open(Options());
  Ask(Question(1));
  Click("#open-settings");
  Run("document.getElementById('scope').value = 'own'");
  SetOwn("system", "Be brief.");
  SetOwn("max_tokens", "5");
  Click("#settings .primary");
  EXPECT_EQ(Text("#setting"), "this chat · system prompt · at most 5 tokens");
  Ask(Question(2));
  EXPECT_EQ(Run("sent.messages[0]"), (json{{"role", "system"}, {"content", "Be brief."}}));
  EXPECT_EQ(Run("sent.max_tokens"), 5);
  Reload();
  EXPECT_EQ(Text("#setting"), "this chat · system prompt · at most 5 tokens");
  Click("#new");
  EXPECT_EQ(Text("#setting"), "");
  Ask(Question(3));
  EXPECT_EQ(Run("sent.messages.length"), 1);
  EXPECT_EQ(Run("sent.max_tokens"), nullptr);
  // Saving for all chats takes this chat's own away.
  Run("[...document.querySelectorAll('#conversations .row')].at(-1).click()");
  ASSERT_TRUE(browser_->Await("document.getElementById('setting').textContent.startsWith('this')"));
  Click("#open-settings");
  EXPECT_EQ(Run("document.getElementById('scope').value"), "own");
  Run("(() => { const scope = document.getElementById('scope'); scope.value = 'all';"
      "scope.dispatchEvent(new Event('change')); })()");
  SetOwn("top_k", "3");
  Click("#settings .primary");
  EXPECT_EQ(Text("#setting"), "top k 3");
}

TEST_F(ChatFeaturesTest, SettingsAreNamedInWords) {
  Open(WithTiers());
  Click("#open-settings");
  EXPECT_THAT(Text("#settings"), HasSubstr("Default: nothing compressed"));
  SetOwn("t0", "20");
  SetOwn("t2", "old:int4");
  SetOwn("evict", "10");
  SetOwn("lossless", "off");
  Click("#settings .primary");
  EXPECT_EQ(Text("#setting"),
            "20 % in fast memory · old tokens in 4 bits · 10 % evicted · not lossless");
}

TEST_F(ChatFeaturesTest, SamplersGoIntoTheRequestUnderLlamasNamesIfTheyAreGiven) {
  Open(Options());
  Ask(Question(1));
  for (const char* name : {"temperature", "repeat_penalty", "dry_multiplier", "xtc_probability",
                           "mirostat", "samplers", "typical_p"}) {
    EXPECT_EQ(Run(fmt::format("'{}' in sent", name)), false) << name;
  }
  Click("#open-settings");
  EXPECT_EQ(Run("document.querySelector('#settings .more').open"), false);
  EXPECT_EQ(Run("document.querySelector('[id^=setting-dry_base]').placeholder"), "1.75");
  EXPECT_THAT(Run("document.querySelector('[id^=setting-samplers]').placeholder").dump(),
              HasSubstr("penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature"));
  const std::vector<std::pair<std::string, std::string>> settings = {
      {"presence_penalty", "0.5"},
      {"frequency_penalty", "0.25"},
      {"repetition_penalty", "1.1"},
      {"dry_multiplier", "0.8"},
      {"dry_base", "2"},
      {"dry_allowed_length", "3"},
      {"dry_penalty_last_n", "64"},
      {"xtc_probability", "0.5"},
      {"xtc_threshold", "0.2"},
      {"typical_p", "0.9"},
      {"top_n_sigma", "2"},
      {"dynatemp_range", "0.3"},
      {"dynatemp_exponent", "1.5"},
      {"mirostat_tau", "4"},
      {"mirostat_eta", "0.2"},
      {"samplers", "penalties; dry;temperature"}};
  for (const auto& [key, value] : settings) SetOwn(key, value);
  Run("document.querySelector('#settings select[id^=setting-mirostat]').value = '2'");
  Click("#settings .primary");
  EXPECT_EQ(Text("#setting"),
            "repetition penalty 1.1 · presence penalty 0.5 · frequency penalty 0.25 · DRY penalty "
            "0.8 · DRY base 2 · DRY free length 3 · DRY window 64 · XTC probability 0.5 · XTC "
            "threshold 0.2 · typical p 0.9 · top n sigma 2 · temperature range 0.3 · range "
            "exponent 1.5 · Mirostat target 4 · Mirostat rate 0.2 · Mirostat 2 · samplers "
            "penalties; dry;temperature");
  Ask(Question(2));
  for (const auto& [key, value] : settings) {
    if (key == "samplers" || key == "repetition_penalty") continue;
    EXPECT_EQ(Run(fmt::format("sent.{}", key)), json::parse(value)) << key;
  }
  EXPECT_EQ(Run("sent.repeat_penalty"), 1.1);
  EXPECT_EQ(Run("sent.mirostat"), 2);
  EXPECT_EQ(Run("sent.samplers"), (json{"penalties", "dry", "temperature"}));
  EXPECT_EQ(Run("ebbChat.state.current.nodes && Object.values(ebbChat.state.current.nodes)"
                ".filter((node) => node.error).length"),
            0);
  Click("#open-settings");
  EXPECT_EQ(Run("document.querySelector('#settings .more').open"), true);
}

TEST_F(ChatFeaturesTest, SamplersOfAChatAreExported) {
  Open(Options());
  Ask(Question(1));
  Click("#open-settings");
  Run("document.getElementById('scope').value = 'own'");
  SetOwn("xtc_probability", "0.5");
  Click("#settings .primary");
  Click("#open-transfer");
  Click("#transfer fieldset:nth-of-type(2) button");
  ASSERT_TRUE(browser_->Await("window.saved"));
  EXPECT_EQ(json::parse(Run("saved").get<std::string>())["chats"][0]["settings"],
            (json{{"xtc_probability", "0.5"}}));
}

TEST_F(ChatFeaturesTest, TheContextAndTheSpeedAreShownWhileItAnswers) {
  Open(WithTiers(GenerateOptions::OnEnd::kIgnore));
  Say(Question(1));
  ASSERT_TRUE(
      browser_->Await("/^[\\d,]+ of [\\d,]+ tokens · [\\d.,]+ tokens\\/s$/.test("
                      "document.getElementById('usage').textContent)"))
      << Text("#usage");
  const std::string context =
      Run("ebbChat.state.props.default_generation_settings.n_ctx.toLocaleString('en')");
  EXPECT_THAT(Text("#usage"), HasSubstr(" of " + context + " tokens"));
  browser_->Press("Escape");
  ASSERT_TRUE(browser_->Await("!ebbChat.running"));
  EXPECT_THAT(Text("#usage"), EndsWith(" of " + context + " tokens"));
}

TEST_F(ChatFeaturesTest, AClickOnATokenSaysWhyItLiesThere) {
  const TemporaryFolder folder;
  ServerOptions options = WithTiers();
  const auto url = store::ParseStoreUrl("file:" + folder.path());
  ASSERT_TRUE(url.ok());
  options.sessions = *url;
  Open(options);
  Ask(Question(1));
  ClickWord(".user .bubble");
  EXPECT_EQ(Text(".why .answer"), "") << "only coloured tokens are asked about";
  Click("#tint");
  ClickWord(".user .bubble");
  ASSERT_TRUE(browser_->Await("document.querySelector('.why .tier')")) << Text(".why");
  EXPECT_THAT(Text(".why .answer"), HasSubstr("protected: a token of a prompt"));
  EXPECT_THAT(Text(".why .token"), MatchesRegex("Token [0-9]+ .* in T0"));
  // The number is the way for the keyboard.
  Run("document.querySelector('.why input').value = ebbChat.state.current.nodes["
      "ebbChat.state.current.leaf].memory.tokens - 1");
  Click(".why button");
  ASSERT_TRUE(browser_->Await(
      "document.querySelector('.why .answer').textContent.includes('one of the newest')"))
      << Text(".why");
  EXPECT_EQ(Complaints(), "");
}

TEST_F(ChatFeaturesTest, ARunningAnswerSaysWhyWithoutASession) {
  Open(WithTiers(GenerateOptions::OnEnd::kIgnore));
  Say(Question(1));
  ASSERT_TRUE(browser_->Await("ebbChat.running?.node.memory?.tokens > 350"));
  Run("document.querySelector('.why input').value = 100");
  Click(".why button");
  ASSERT_TRUE(browser_->Await("document.querySelector('.why .tier')")) << Text(".why");
  EXPECT_THAT(Text(".why .answer"), HasSubstr("from the lowest: 1 to "));
  browser_->Press("Escape");
  ASSERT_TRUE(browser_->Await("!ebbChat.running"));
  Click(".why button");
  ASSERT_TRUE(browser_->Await(
      "document.querySelector('.why .answer').textContent.includes('--sessions file:FOLDER')"));
}

TEST_F(ChatFeaturesTest, MarkdownThatOthersForget) {
  Open(Options());
  Answer(
      "| a | b |\n|---|---|\n| word | 4.1e-3 |\n\n- [ ] open\n- [x] done\n- plain\n\n"
      "A claim[^1].\n\n[^1]: Its source.\n\nA bad $\\frac{1}{$ and a good $x^2$ formula.\n");
  ASSERT_TRUE(
      browser_->Await("document.querySelector('.katex') && document.querySelector('.broken')"));
  EXPECT_EQ(Text("td.number"), "4.1e-3") << "a number does not break";
  EXPECT_EQ(Count("li.task"), 2u);
  EXPECT_EQ(Text(".footnote"), "1 Its source.");
  EXPECT_EQ(Text(".text p:not(.footnote)"), "A claim1.");
  EXPECT_EQ(Text(".broken"), "\\frac{1}{");
  EXPECT_THAT(Run("document.querySelector('.broken').title").get<std::string>(),
              StartsWith("This formula cannot be drawn: "));
  EXPECT_EQ(Complaints(), "");
}

TEST_F(ChatFeaturesTest, ALongQuestionIsFolded) {
  Open(Options());
  Run("answerWith([{ content: 'yes' }])");
  Run("document.getElementById('input').focus()");
  browser_->Type(std::string(5000, 'x'));
  browser_->Press("Enter");
  ASSERT_TRUE(browser_->Await("!ebbChat.running && document.querySelector('.bubble.folded')"));
  EXPECT_LT(Run("document.querySelector('.bubble').offsetHeight").get<int>(), 260);
  Click(".message.user > .toggle");
  EXPECT_EQ(Count(".bubble.folded"), 0u);
}

TEST_F(ChatFeaturesTest, ThePageIsPrintedWhole) {
  Open(WithTiers());
  Answer("A long answer.\n\n" + std::string(200, 'y') + "\n\n# End");
  browser_->SetMedia("print");
  const auto style = [this](const std::string& selector, const std::string& name) {
    return Run(fmt::format("getComputedStyle(document.querySelector('{}')).{}", selector, name))
        .get<std::string>();
  };
  for (const char* hidden : {"#sidebar", "#memory", "#composer", "#tint", ".buttons"}) {
    EXPECT_EQ(style(hidden, "display"), "none") << hidden;
  }
  for (const char* whole : {"body", "main", "#scroll"}) {
    EXPECT_EQ(style(whole, "overflow"), "visible") << whole;
  }
  EXPECT_EQ(style("#title", "display"), "block");
}

TEST_F(ChatFeaturesTest, EachControlIsLargeEnoughForAFinger) {
  Open(WithTiers());
  browser_->SetSize(390, 844);
  Ask(Question(1));
  constexpr const char* kSmall = R"js(
    [...document.querySelectorAll('button, summary, select, input, .row')]
        .filter((element) => element.checkVisibility() && element.getBoundingClientRect().width > 0)
        .filter((element) => element.getBoundingClientRect().height < 44)
        .map((element) => element.id || element.ariaLabel || element.textContent)
  )js";
  EXPECT_EQ(Run(kSmall), json::array());
  Click("#open-sidebar");
  EXPECT_EQ(Run(kSmall), json::array());
  browser_->Press("Escape");
  Click("#open-settings");
  EXPECT_EQ(Run(kSmall), json::array());
}

}  // namespace
}  // namespace ebb::server

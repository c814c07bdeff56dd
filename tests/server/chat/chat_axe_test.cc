// Checks the states of the chat page with axe-core, in both themes, if the environment variable
// EBB_AXE names its file (axe.min.js): no finding that it calls serious or critical.
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/server/chat/chat_page_fixture.h"

namespace ebb::server {
namespace {

class ChatAxeTest : public ChatPageTest {
 protected:
  void SetUp() override {
    ChatPageTest::SetUp();
    const char* const path = std::getenv("EBB_AXE");
    if (path == nullptr) EBB_SKIP_WITHOUT("axe") << "EBB_AXE names no axe.min.js";
    std::ifstream file(path);
    axe_.assign(std::istreambuf_iterator<char>(file), {});
    ASSERT_FALSE(axe_.empty()) << path;
  }
  void ExpectAccessible(const std::string& where) {
    Run(axe_ + "\n;0");
    EXPECT_EQ(Run("axe.run(document, { resultTypes: ['violations'] }).then(({ violations }) => "
                  "violations.filter(({ impact }) => ['serious', 'critical'].includes(impact))"
                  ".map(({ id, nodes }) => `${id}: ${nodes.map(({ target }) => target)}`))"),
              nlohmann::json::array())
        << where;
  }
  void ExpectDialogAccessible(const std::string& id, const std::string& where) {
    ExpectAccessible(where + ", " + id);
    Run(fmt::format("document.getElementById('{}').close()", id));
  }

  std::string axe_;
};

TEST_F(ChatAxeTest, NoStateHasASeriousFinding) {
  for (const std::string theme : {"light", "dark"}) {
    Start(WithTiers());
    browser_->SetSize(1280, 800);
    browser_->SetColours(theme);
    Reopen();
    ExpectAccessible(theme + ", empty page");
    Run("(() => { const data = new DataTransfer(); data.items.add(new File(['x'], 'a.txt'));"
        "const picker = document.getElementById('picker'); picker.files = data.files;"
        "picker.dispatchEvent(new Event('change')); })()");
    ASSERT_TRUE(browser_->Await("document.querySelector('#files li')"));
    ExpectAccessible(theme + ", a file");
    Ask(Question(1));
    Click("#new");
    Answer(
        "# Title\n\nSome `code`, $x^2$, [a link](https://elsewhere.example/)[^1].\n\n"
        "| a | b |\n|---|---|\n| 1 | $y$ |\n\n```python\nx = 1\n```\n\n- [x] done\n\n[^1]: Note");
    ExpectAccessible(theme + ", Markdown");
    Run("[...document.querySelectorAll('#conversations .row')].at(-1).click()");
    ASSERT_TRUE(browser_->Await("document.querySelector('#memory .filled:not([hidden])')"));
    Click(".thought summary");
    Click(".file summary");
    Click("#tint");
    Run("document.querySelector('.why input').value = 3");
    Click(".why button");
    ASSERT_TRUE(browser_->Await("document.querySelector('.why .answer .note')"));
    ExpectAccessible(theme + ", answer with its memory");
    Click("#conversations [aria-label^=Rename]");
    ExpectAccessible(theme + ", title");
    Run("document.activeElement.blur()");
    Click(".user [aria-label^=Edit]");
    ExpectAccessible(theme + ", edited message");
    Click("#open-settings");
    Click("#settings .more summary");
    ExpectDialogAccessible("settings", theme);
    Click("#open-transfer");
    ExpectDialogAccessible("transfer", theme);
    Click(".assistant .toggle.small");
    ExpectDialogAccessible("compare", theme);
    browser_->SetSize(390, 844);
    ExpectAccessible(theme + ", phone");
    Click("#open-sidebar");
    ExpectAccessible(theme + ", sidebar on a phone");
    browser_->Open(fmt::format("http://127.0.0.1:{}/dashboard", port()));
    ASSERT_TRUE(browser_->Await("document.querySelector('#server-state.live')"));
    ExpectAccessible(theme + ", server");
    server_.reset();
  }
}

}  // namespace
}  // namespace ebb::server

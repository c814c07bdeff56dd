// Checks the contrast of the chat page's controls, in both themes and under the pointer, as WCAG
// 2.2 computes it: 4.5 for text, 3 for icons.
#include <string>

#include "tests/server/chat/chat_page_fixture.h"

namespace ebb::server {
namespace {

using nlohmann::json;

constexpr const char* kContrast = R"js(
(() => {
  const context = new OffscreenCanvas(1, 1).getContext('2d', { willReadFrequently: true });
  const parse = (colour) => {
    context.clearRect(0, 0, 1, 1);
    context.fillStyle = colour;
    context.fillRect(0, 0, 1, 1);
    const [red, green, blue, alpha] = context.getImageData(0, 0, 1, 1).data;
    return { rgb: [red, green, blue], alpha: alpha / 255 };
  };
  const over = ({ rgb, alpha }, below) => rgb.map((part, i) => part * alpha + below[i] * (1 - alpha));
  const luminance = (rgb) => {
    const [red, green, blue] = rgb.map((part) => part / 255)
        .map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const behind = (element) => {
    const layers = [];
    for (let at = element; at; at = at.parentElement) layers.push(parse(getComputedStyle(at).backgroundColor));
    return layers.reverse().reduce((below, layer) => over(layer, below), [255, 255, 255]);
  };
  window.contrastOf = (element, colour = getComputedStyle(element).color) => {
    const back = behind(element);
    const both = [luminance(over(parse(colour), back)), luminance(back)].sort((a, b) => b - a);
    return (both[0] + 0.05) / (both[1] + 0.05);
  };
  // Each element of the topmost layer that has text or an icon of its own and takes the pointer.
  window.controls = () => {
    const layer = document.querySelector('dialog[open]') ?? document;
    return [...layer.querySelectorAll('button, a, summary, input, select, textarea')]
        .filter((element) => !element.disabled && element.checkVisibility());
  };
  window.pointAt = (element) => {
    element.scrollIntoView({ block: 'nearest' });
    const box = element.getBoundingClientRect();
    return { x: box.x + box.width / 2, y: box.y + box.height / 2 };
  };
  // {name, contrast, needed} of the texts and icons in it.
  window.measure = (element) => [element, ...element.querySelectorAll('*')]
      .filter((part) => part.checkVisibility() && (part.tagName === 'svg' || part.matches('input, select, textarea') ||
                        [...part.childNodes].some(({ nodeType, data }) => nodeType === 3 && data.trim())))
      .map((part) => ({ name: `${element.ariaLabel ?? ''} ${part.outerHTML.slice(0, 80)}`,
                        contrast: contrastOf(part), needed: part.tagName === 'svg' ? 3 : 4.5 }));
})();
)js";

class ChatColoursTest : public ChatPageTest {
 protected:
  // Expects enough contrast of each visible control: normally, with the focus, and under the
  // pointer.
  void ExpectReadable(const std::string& where) {
    const int count = Run("(window.seen = controls()).length");
    EXPECT_GT(count, 1) << where;
    for (int i = 0; i < count; ++i) {
      const std::string element = fmt::format("seen[{}]", i);
      const json at = Run(fmt::format("pointAt({})", element));
      Measure(element, where + ", plain");
      browser_->MovePointer(at["x"], at["y"]);
      Measure(element, where + ", under the pointer");
      Run(element + ".focus()");
      Measure(element, where + ", with the focus under the pointer");
      browser_->MovePointer(0, 0);
    }
  }
  void Measure(const std::string& element, const std::string& where) {
    for (const json& part : Run(fmt::format("measure({})", element))) {
      EXPECT_GE(part["contrast"].get<double>(), part["needed"].get<double>())
          << where << ": " << part["name"].get<std::string>();
    }
  }
};

TEST_F(ChatColoursTest, EachControlCanBeReadInEachStateAndTheme) {
  browser_->RunBeforePages(kContrast);
  for (const std::string theme : {"light", "dark"}) {
    Start(WithTiers());
    browser_->SetColours(theme);
    Reopen();
    Run("document.getElementById('input').value = 'a text'");
    Run("document.getElementById('input').dispatchEvent(new Event('input'))");
    ExpectReadable(theme + ", empty page");
    Run("document.getElementById('input').value = ''");
    Ask(Question(1));
    Click(".assistant [aria-label='Answer again']");
    ASSERT_TRUE(browser_->Await("!ebbChat.running && document.querySelector('.switch')"));
    Click("#tint");
    Click("#new");
    Answer("Some `code`, [a link](https://elsewhere.example/) and\n\n```python\nx = 1\n```\n");
    ExpectReadable(theme + ", answer and pressed button");
    EXPECT_GE(Run("contrastOf(document.querySelector('#conversations li'), getComputedStyle("
                  "document.querySelector('.busy')).backgroundColor)")
                  .get<double>(),
              3)
        << theme << ": the dot of a chat that is answered";
    Click(".user [aria-label^=Edit]");
    ExpectReadable(theme + ", edited message");
    Click("#open-settings");
    Click("#settings .more summary");
    ExpectReadable(theme + ", settings");
    Run("document.getElementById('settings').close()");
    Click(".assistant .toggle.small");
    ExpectReadable(theme + ", comparison");
    Run("document.getElementById('compare').close()");
    for (const bool is_good : {false, true}) {
      Run(
          fmt::format("((notice) => {{ notice.hidden = false; notice.textContent = 'a notice'; "
                      "notice.classList.toggle('good', {}); }})(document.getElementById('notice'))",
                      is_good));
      Measure("document.getElementById('notice')", theme + ", notice");
    }
    server_.reset();
  }
}

}  // namespace
}  // namespace ebb::server

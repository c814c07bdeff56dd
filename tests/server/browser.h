// A chromium without a window, driven over a pipe by its debugging protocol: it loads pages, takes
// text and keys, evaluates scripts, and notes which addresses were asked for and what went wrong.
#ifndef EBB_TESTS_SERVER_BROWSER_H_
#define EBB_TESTS_SERVER_BROWSER_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/support/temp_folder.h"

namespace ebb::server {

// The name of a chromium that PATH finds; empty: there is none.
[[nodiscard]] std::string FindChromium();

class Browser {
 public:
  explicit Browser(const std::string& program);
  ~Browser();
  Browser(const Browser&) = delete;
  Browser& operator=(const Browser&) = delete;

  // Opens a tab of the same profile, which the other members then drive, and returns its number;
  // the first is 0.
  size_t OpenTab();
  void UseTab(size_t tab);
  // Runs `script` in each page of this tab and of those opened later, before its own scripts.
  void RunBeforePages(const std::string& script);
  void SetSize(int width, int height);
  // Sets the theme of the system, "light" or "dark", and no motion.
  void SetColours(const std::string& scheme);
  void SetOffline(bool is_offline);
  void Open(const std::string& url);
  void Reload();
  // The value of an expression, or of the promise that it is; null where it throws.
  nlohmann::json Evaluate(const std::string& expression);
  // Evaluates until it is true, for at most a minute. Returns whether it became true.
  [[nodiscard]] bool Await(const std::string& condition);
  // Into the element that has the focus.
  void Type(const std::string& text);
  void MovePointer(double x, double y);
  // "Enter", "Escape", "Tab", "a".
  void Press(const std::string& key);

  // Addresses that pages asked for.
  [[nodiscard]] const std::vector<std::string>& requests() const { return requests_; }
  // Exceptions of scripts, and what the browser refused or could not load.
  [[nodiscard]] const std::vector<std::string>& complaints() const { return complaints_; }

 private:
  nlohmann::json Call(const std::string& method,
                      nlohmann::json parameters = nlohmann::json::object());
  nlohmann::json Receive();
  void Note(const nlohmann::json& event);

  const TempFolder folder_;  // a profile of its own
  pid_t pid_ = -1;
  int to_ = -1;
  int from_ = -1;
  int next_id_ = 1;
  std::string session_;  // of the tab that is driven
  std::vector<std::string> tabs_;
  std::vector<std::string> scripts_;
  std::string received_;
  std::vector<std::string> requests_;
  std::vector<std::string> complaints_;
};

}  // namespace ebb::server

#endif  // EBB_TESTS_SERVER_BROWSER_H_

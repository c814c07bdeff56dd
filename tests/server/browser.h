// Browser drives a headless chromium over a pipe by its debugging protocol: it loads pages, types
// text and keys, evaluates scripts, and records requested addresses and errors.
#ifndef EBB_TESTS_SERVER_BROWSER_H_
#define EBB_TESTS_SERVER_BROWSER_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/support/temp_folder.h"

namespace ebb::server {

// Returns the name of a chromium on PATH; empty if there is none.
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
  // Sets the system's theme, "light" or "dark", and turns motion off.
  void SetColours(const std::string& scheme);
  // Shows pages as on "print" or "screen".
  void SetMedia(const std::string& media);
  void SetOffline(bool is_offline);
  void Open(const std::string& url);
  void Reload();
  // Returns the value of an expression, or of its promise; null if it throws.
  nlohmann::json Evaluate(const std::string& expression);
  // Evaluates `condition` until it is true, for at most a minute. Returns whether it became true.
  [[nodiscard]] bool Await(const std::string& condition);
  // Types text into the element that has the focus.
  void Type(const std::string& text);
  void MovePointer(double x, double y);
  // Presses a key: "Enter", "Escape", "Tab", "a".
  void Press(const std::string& key);

  // Returns the addresses that pages requested.
  [[nodiscard]] const std::vector<std::string>& requests() const { return requests_; }
  // Returns exceptions of scripts, and what the browser refused or could not load.
  [[nodiscard]] const std::vector<std::string>& complaints() const { return complaints_; }

 private:
  nlohmann::json Call(const std::string& method,
                      nlohmann::json parameters = nlohmann::json::object());
  nlohmann::json Receive();
  void Note(const nlohmann::json& event);

  const TempFolder folder_;  // the browser's profile
  pid_t pid_ = -1;
  int to_ = -1;
  int from_ = -1;
  int next_id_ = 1;
  std::string session_;  // the session of the current tab
  std::vector<std::string> tabs_;
  std::vector<std::string> scripts_;
  std::string received_;
  std::vector<std::string> requests_;
  std::vector<std::string> complaints_;
};

}  // namespace ebb::server

#endif  // EBB_TESTS_SERVER_BROWSER_H_

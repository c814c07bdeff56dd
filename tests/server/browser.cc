#include "tests/server/browser.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <map>
#include <thread>
#include <utility>

#include <gtest/gtest.h>

#include "tests/support/child_process.h"

extern char** environ;

namespace ebb::server {
namespace {

using nlohmann::json;

// kReads and kWrites are the descriptors at which chromium reads commands and writes answers.
constexpr int kReads = 3;
constexpr int kWrites = 4;

// Returns a pipe {read, write} with other descriptors than these.
std::pair<int, int> MakePipe() {
  int ends[2] = {-1, -1};
  EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
  for (int& end : ends) {
    const int moved = fcntl(end, F_DUPFD_CLOEXEC, 10);
    close(end);
    end = moved;
  }
  return {ends[0], ends[1]};
}

}  // namespace

std::string FindChromium() {
  for (const char* name : {"chromium", "chromium-browser", "google-chrome"}) {
    if (!FindProgram(name).empty()) return name;
  }
  return "";
}

Browser::Browser(const std::string& program) {
  const auto [commands_out, commands_in] = MakePipe();
  const auto [answers_out, answers_in] = MakePipe();
  to_ = commands_in;
  from_ = answers_out;
  std::vector<std::string> arguments = {program,
                                        "--headless=new",
                                        "--no-sandbox",
                                        "--disable-gpu",
                                        "--no-first-run",
                                        "--remote-debugging-pipe",
                                        "--user-data-dir=" + folder_.File("profile")};
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, commands_out, kReads);
  posix_spawn_file_actions_adddup2(&actions, answers_in, kWrites);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  EXPECT_EQ(posix_spawnp(&pid_, program.c_str(), &actions, nullptr, pointers.data(), environ), 0);
  posix_spawn_file_actions_destroy(&actions);
  close(commands_out);
  close(answers_in);
  OpenTab();
}

Browser::~Browser() {
  close(to_);  // chromium exits when its pipe is closed
  close(from_);
  if (pid_ < 0) return;
  for (int i = 0; i < 100; ++i) {
    if (waitpid(pid_, nullptr, WNOHANG) != 0) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

size_t Browser::OpenTab() {
  session_.clear();
  const json target = Call("Target.createTarget", {{"url", "about:blank"}});
  const json attached = Call("Target.attachToTarget",
                             {{"targetId", target.value("targetId", "")}, {"flatten", true}});
  tabs_.push_back(attached.value("sessionId", ""));
  UseTab(tabs_.size() - 1);
  for (const char* domain : {"Page", "Runtime", "Network", "Log"}) {
    Call(std::string(domain) + ".enable");
  }
  for (const std::string& script : scripts_) {
    Call("Page.addScriptToEvaluateOnNewDocument", {{"source", script}});
  }
  SetSize(1280, 800);
  return tabs_.size() - 1;
}

void Browser::UseTab(size_t tab) {
  session_ = tabs_.at(tab);
  Call("Page.bringToFront");
}

void Browser::RunBeforePages(const std::string& script) {
  scripts_.push_back(script);
  Call("Page.addScriptToEvaluateOnNewDocument", {{"source", script}});
}

void Browser::SetOffline(bool is_offline) {
  Call("Network.emulateNetworkConditions", {{"offline", is_offline},
                                            {"latency", 0},
                                            {"downloadThroughput", -1},
                                            {"uploadThroughput", -1}});
}

void Browser::SetColours(const std::string& scheme) {
  Call("Emulation.setEmulatedMedia",
       {{"features",
         {{{"name", "prefers-color-scheme"}, {"value", scheme}},
          {{"name", "prefers-reduced-motion"}, {"value", "reduce"}}}}});
}

void Browser::SetMedia(const std::string& media) {
  Call("Emulation.setEmulatedMedia", {{"media", media}});
}

void Browser::SetSize(int width, int height) {
  Call("Emulation.setDeviceMetricsOverride",
       {{"width", width}, {"height", height}, {"deviceScaleFactor", 1}, {"mobile", false}});
}

void Browser::Open(const std::string& url) {
  Call("Page.navigate", {{"url", url}});
  EXPECT_TRUE(Await("document.readyState === 'complete'"));
}

void Browser::Reload() {
  Evaluate("window.isBeforeReload = true");
  Call("Page.reload");
  EXPECT_TRUE(Await("!window.isBeforeReload && document.readyState === 'complete'"));
}

json Browser::Evaluate(const std::string& expression) {
  const json answer =
      Call("Runtime.evaluate",
           {{"expression", expression}, {"awaitPromise", true}, {"returnByValue", true}});
  if (answer.contains("exceptionDetails")) {
    ADD_FAILURE() << expression << "\n" << answer["exceptionDetails"].dump();
    return nullptr;
  }
  return answer.contains("result") ? answer["result"].value("value", json()) : json();
}

bool Browser::Await(const std::string& condition) {
  for (int i = 0; i < 1200; ++i) {
    if (Evaluate("Boolean(" + condition + ")") == true) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return false;
}

void Browser::Type(const std::string& text) { Call("Input.insertText", {{"text", text}}); }

void Browser::MovePointer(double x, double y) {
  Call("Input.dispatchMouseEvent", {{"type", "mouseMoved"}, {"x", x}, {"y", y}});
}

void Browser::Press(const std::string& key) {
  static const std::map<std::string, int> kCodes = {{"Enter", 13}, {"Escape", 27}, {"Tab", 9}};
  const auto code = kCodes.find(key);
  json event = {{"type", "keyDown"}, {"key", key}, {"code", key}};
  if (code != kCodes.end()) event["windowsVirtualKeyCode"] = code->second;
  if (key == "Enter") event["text"] = "\r";
  Call("Input.dispatchKeyEvent", event);
  event["type"] = "keyUp";
  Call("Input.dispatchKeyEvent", event);
}

json Browser::Call(const std::string& method, json parameters) {
  const int id = next_id_++;
  json command = {{"id", id}, {"method", method}, {"params", std::move(parameters)}};
  if (!session_.empty()) command["sessionId"] = session_;
  std::string bytes = command.dump();
  bytes.push_back('\0');
  for (size_t sent = 0; sent < bytes.size();) {
    const ssize_t some = write(to_, bytes.data() + sent, bytes.size() - sent);
    if (some <= 0) return json::object();
    sent += static_cast<size_t>(some);
  }
  for (;;) {
    json message = Receive();
    if (message.is_null()) {
      ADD_FAILURE() << "chromium has ended";
      return json::object();
    }
    if (message.value("id", 0) == id) {
      if (message.contains("error")) ADD_FAILURE() << method << ": " << message["error"].dump();
      return message.value("result", json::object());
    }
    if (message.contains("method")) Note(message);
  }
}

json Browser::Receive() {
  size_t end = 0;
  while ((end = received_.find('\0')) == std::string::npos) {
    char buffer[1 << 16];
    const ssize_t some = read(from_, buffer, sizeof(buffer));
    if (some <= 0) return nullptr;
    received_.append(buffer, static_cast<size_t>(some));
  }
  json message = json::parse(received_.begin(), received_.begin() + static_cast<ptrdiff_t>(end));
  received_.erase(0, end + 1);
  return message;
}

void Browser::Note(const json& event) {
  const std::string method = event["method"];
  const json& parameters = event["params"];
  if (method == "Network.requestWillBeSent") {
    requests_.push_back(parameters["request"]["url"]);
  } else if (method == "Runtime.exceptionThrown") {
    complaints_.push_back(parameters["exceptionDetails"].dump());
  } else if (method == "Log.entryAdded") {
    const json& entry = parameters["entry"];
    if (entry["level"] == "error") complaints_.push_back(entry["text"]);
  }
}

}  // namespace ebb::server

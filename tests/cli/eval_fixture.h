// A small task, and `ebb-lab eval` over it.
#ifndef EBB_TESTS_CLI_EVAL_FIXTURE_H_
#define EBB_TESTS_CLI_EVAL_FIXTURE_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/cli/program.h"
#include "tests/cli/tiny_model.h"

namespace ebb {

inline std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

inline std::vector<nlohmann::json> Lines(const std::string& path) {
  std::vector<nlohmann::json> lines;
  std::istringstream text(ReadFile(path));
  for (std::string line; std::getline(text, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

class EvalTest : public testing::Test {
 protected:
  EvalTest() {
    std::ofstream file(task_);
    for (int i = 0; i < 6; ++i) {
      file << nlohmann::json{{"question", "What is " + std::to_string(i) + " + 1?"},
                             {"answer", "One more.\n#### " + std::to_string(i + 1)}}
                  .dump()
           << "\n";
    }
  }

  [[nodiscard]] std::string Out(const std::string& name) const { return model_.File(name); }
  [[nodiscard]] std::string Arguments(const std::string& out, const std::string& more) const {
    return "ebb-lab eval -n 24 --quiet -m " + model_.path() + " --task " + task_ +
           ":gsm8k --policies full,streaming,random --budgets 50% --sinks 2 --window 4 --out " +
           Out(out) + " " + more;
  }
  ProgramEnd Eval(const std::string& out, const std::string& more = "") {
    return RunEbb(Arguments(out, more));
  }
  // Returns the settings of a run's answers, in their order, and how many answers each has ("n").
  [[nodiscard]] std::vector<nlohmann::json> SettingsOf(const std::string& out) const {
    std::vector<nlohmann::json> settings;
    std::vector<int> counts;
    for (const nlohmann::json& line : Lines(Out(out) + "/results.jsonl")) {
      nlohmann::json setting;
      for (const char* name : {"policy", "budget", "tiers", "options"}) setting[name] = line[name];
      const auto found = std::ranges::find(settings, setting);
      if (found == settings.end()) {
        settings.push_back(setting);
        counts.push_back(1);
      } else {
        ++counts[found - settings.begin()];
      }
    }
    for (size_t i = 0; i < settings.size(); ++i) settings[i]["n"] = counts[i];
    return settings;
  }
  [[nodiscard]] nlohmann::ordered_json Grid(const std::string& out) const {
    return nlohmann::ordered_json::parse(ReadFile(Out(out) + "/grid.json"));
  }
  // Byte for byte; times, and the date and threads of grid.json, apart.
  void ExpectSame(const std::string& one, const std::string& other) {
    EXPECT_EQ(ReadFile(Out(one) + "/results.jsonl"), ReadFile(Out(other) + "/results.jsonl"));
    nlohmann::ordered_json grids[] = {Grid(one), Grid(other)};
    for (nlohmann::ordered_json& grid : grids) EXPECT_EQ(grid.erase("made_by"), 1u);
    EXPECT_EQ(grids[0].dump(), grids[1].dump());
  }

  TinyModel model_;
  std::string task_ = model_.File("task.jsonl");
};

}  // namespace ebb

#endif  // EBB_TESTS_CLI_EVAL_FIXTURE_H_

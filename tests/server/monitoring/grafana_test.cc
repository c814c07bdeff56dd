// Checks that the server exports all metrics that the board of examples/grafana uses.
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>

#include "tests/server/server_fixture.h"

namespace ebb::server {
namespace {

using nlohmann::json;

std::set<std::string> NamesIn(const std::string& text) {
  static const std::regex name("ebb_[a-z0-9_]+");
  std::set<std::string> names;
  for (std::sregex_iterator one(text.begin(), text.end(), name), end; one != end; ++one) {
    names.insert(one->str());
  }
  return names;
}

class GrafanaTest : public ServerTest {
 protected:
  static json Board() {
    std::ifstream file(EBB_SOURCE_DIR "/examples/grafana/ebb.json");
    return json::parse(file);
  }
  // Collects the metrics of all queries, also of those of variables.
  static std::set<std::string> NamesOfBoard() {
    std::set<std::string> names;
    const json board = Board();
    for (const json& panel : board["panels"]) {
      EXPECT_FALSE(panel["targets"].empty()) << panel["title"];
      for (const json& target : panel["targets"]) names.merge(NamesIn(target["expr"]));
    }
    for (const json& variable : board["templating"]["list"]) {
      names.merge(NamesIn(variable["query"].dump()));
    }
    return names;
  }
};

TEST_F(GrafanaTest, EachMetricOfTheBoardIsTold) {
  Start();
  Client client(port());
  // This request makes samples of all metrics exist.
  ASSERT_EQ(client.Post("/v1/chat/completions", Chat(1, {{"max_tokens", 3}})).status, 200);
  const std::string metrics = client.Get("/metrics").body;
  std::set<std::string> samples;
  std::istringstream lines(metrics);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("#")) samples.insert(line.substr(0, line.find_first_of("{ ")));
  }
  ASSERT_GT(samples.size(), 20u);
  const std::set<std::string> names = NamesOfBoard();
  ASSERT_GT(names.size(), 15u);
  for (const std::string& name : names) EXPECT_TRUE(samples.contains(name)) << name;
}

TEST_F(GrafanaTest, PanelsDoNotOverlap) {
  std::set<std::pair<int, int>> taken;
  const json board = Board();
  for (const json& panel : board["panels"]) {
    const json& at = panel["gridPos"];
    for (int x = at["x"]; x < at["x"].get<int>() + at["w"].get<int>(); ++x) {
      EXPECT_LT(x, 24);
      for (int y = at["y"]; y < at["y"].get<int>() + at["h"].get<int>(); ++y) {
        EXPECT_TRUE(taken.emplace(x, y).second) << panel["title"];
      }
    }
  }
}

}  // namespace
}  // namespace ebb::server

// Runs the recipes of docs/user/clients.md unchanged, each in an empty environment, with a model of
// random weights. EBB_CLIENTS_HOME names a home folder with their packages; else the page's own
// commands install them, if PyPI can be reached.
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "apps/common/terminal/subprocess.h"
#include "tests/server/agents/agent_server.h"
#include "tests/server/client.h"
#include "tests/support/skip.h"
#include "tests/support/temp_folder.h"

namespace ebb::server {
namespace {

using testing::HasSubstr;

constexpr const char* kPage = EBB_SOURCE_DIR "/docs/user/clients.md";
constexpr const char* kModel = "qwen2.5-coder-0.5b";  // the page's name of the model

std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
  return text;
}

class RecipesTest : public testing::Test {
 protected:
  // Returns the code blocks below a heading: the installation, and the use.
  static std::vector<std::string> Blocks(const std::string& heading) {
    std::ifstream file(kPage);
    const std::string page((std::istreambuf_iterator<char>(file)), {});
    const size_t begin = page.find("\n## " + heading + "\n");
    if (begin == std::string::npos) return {};
    const std::string section = page.substr(begin, page.find("\n## ", begin + 1) - begin);
    constexpr std::string_view kFence = "```\n";
    std::vector<std::string> blocks;
    for (size_t at = section.find(kFence); at != std::string::npos;) {
      at += kFence.size();
      const size_t end = section.find(kFence, at);
      blocks.push_back(section.substr(at, end - at));
      at = section.find(kFence, end + kFence.size());
    }
    return blocks;
  }
  // Returns the output of the commands; empty if they fail.
  static std::string RunCommands(std::vector<std::string> arguments, const std::string& commands) {
    arguments.insert(arguments.end(), {"sh", "-e", "-c", "cd \"$HOME\"; " + commands});
    const auto end = cli::RunProcess(arguments, cli::ProcessOutput::kKeepBoth);
    if (!end.ok() || end->exit_code != 0) {
      ADD_FAILURE() << (end.ok() ? end->output : end.status().ToString());
      return "";
    }
    return end->output;
  }
  [[nodiscard]] std::string Home() const {
    const char* named = std::getenv("EBB_CLIENTS_HOME");
    return named != nullptr ? named : folder_.File("");
  }

  void Start(const std::string& heading, const std::vector<std::string>& options) {
    blocks_ = Blocks(heading);
    ASSERT_EQ(blocks_.size(), 2u) << heading;
    if (std::getenv("EBB_CLIENTS_HOME") == nullptr) {
      const auto end = cli::RunProcess({"env", "HOME=" + Home(), "sh", "-e", "-c", blocks_[0]},
                                       cli::ProcessOutput::kKeepBoth);
      if (!end.ok() || end->exit_code != 0) {
        EBB_SKIP_WITHOUT("python") << "the packages cannot be installed";
      }
    }
    std::vector<std::string> all = {"--alias", kModel};
    all.insert(all.end(), options.begin(), options.end());
    server_ = std::make_unique<AgentServer>(all);
    ASSERT_NE(server_->port(), 0);
  }
  // Runs the recipe with `question` instead of its own question. Requests to other machines fail at
  // once.
  [[nodiscard]] std::string Run(const std::string& question = "Say hello.") const {
    const std::string own = fmt::format("http://127.0.0.1:{}", server_->port());
    return RunCommands(
        {"env", "-i", "HOME=" + Home(), "PATH=/usr/local/bin:/usr/bin:/bin",
         "HTTP_PROXY=http://127.0.0.1:9", "HTTPS_PROXY=http://127.0.0.1:9", "NO_PROXY=127.0.0.1"},
        Replaced(Replaced(blocks_[1], "http://127.0.0.1:8080", own), "Say hello.", question));
  }
  void ExpectThatAllWereAnswered(int requests) const {
    const std::string metrics = Client(server_->port()).Get("/metrics").body;
    EXPECT_GE(server_->Metric("ebb_request_seconds_count"), requests) << metrics;
  }

  const TempFolder folder_;
  std::vector<std::string> blocks_;
  std::unique_ptr<AgentServer> server_;
};

// kShort are options that make answers end soon.
const std::vector<std::string> kShort = {"--stop", "e", "-n", "100"};

TEST_F(RecipesTest, ClaudeCodeAnswersAndASecondSessionSharesItsPrompt) {
  Start("Claude Code", kShort);
  if (IsSkipped() || HasFatalFailure()) return;
  EXPECT_THAT(Run(), Not(testing::IsEmpty()));
  const double read = server_->Metric("ebb_prompt_tokens_total");
  EXPECT_GT(read, 10'000);
  EXPECT_THAT(Run("Why is the sea salt?"), Not(testing::IsEmpty()));
  // A system message of 9 KB follows the question and is read again.
  EXPECT_LT(server_->Metric("ebb_prompt_tokens_total"), 1.25 * read);
}

TEST_F(RecipesTest, CodexAnswers) {
  Start("Codex", kShort);
  if (IsSkipped() || HasFatalFailure()) return;
  EXPECT_THAT(Run(), HasSubstr("turn.completed"));
}

TEST_F(RecipesTest, MiniSweAgentAnswers) {
  Start("mini-swe-agent", kShort);
  if (IsSkipped() || HasFatalFailure()) return;
  EXPECT_THAT(Run(), HasSubstr("Saved trajectory"));
  ExpectThatAllWereAnswered(2);
}

TEST_F(RecipesTest, AiderAnswers) {
  Start("aider", kShort);
  if (IsSkipped() || HasFatalFailure()) return;
  EXPECT_THAT(Run(), HasSubstr("received"));
  ExpectThatAllWereAnswered(1);
}

TEST_F(RecipesTest, PydanticAiReadsTextsSchemasAndCalls) {
  Start("Pydantic AI", {"-n", "100"});
  if (IsSkipped() || HasFatalFailure()) return;
  const std::string output = Run();
  size_t values = 0;
  for (size_t at = output.find("Sea(state="); at != std::string::npos; ++values) {
    at = output.find("Sea(state=", at + 1);
  }
  EXPECT_EQ(values, 4u) << output;
}

TEST_F(RecipesTest, OpenAiAgentsSdkCallsATool) {
  Start("OpenAI Agents SDK", {"-n", "200"});
  if (IsSkipped() || HasFatalFailure()) return;
  EXPECT_THAT(Run(), HasSubstr("is calm."));
}

TEST_F(RecipesTest, LmEvaluationHarnessScoresAnswers) {
  Start("lm-evaluation-harness", kShort);
  if (IsSkipped() || HasFatalFailure()) return;
  EXPECT_THAT(Run(), HasSubstr("exact_match"));
  ExpectThatAllWereAnswered(2);
}

}  // namespace
}  // namespace ebb::server

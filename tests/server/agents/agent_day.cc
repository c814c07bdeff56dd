#include "tests/server/agents/agent_day.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <span>
#include <thread>
#include <utility>

#include <fmt/format.h>

namespace ebb::server {
namespace {

using nlohmann::json;
using Kind = AgentStep::Kind;

constexpr size_t kHugeBytes = 200'000;
constexpr size_t kMostNotes = 10;
// kMessagesTools and the constants below are the sizes in bytes of the tools' JSON and of the
// system texts.
constexpr std::array kMessagesTools = {5372, 3981, 1006, 754,  3331, 2020, 1975,
                                       2533, 5017, 1846, 1475, 5806, 663,  214};
constexpr std::array kMessagesSystem = {62, 6754};
constexpr std::array kResponsesTools = {1635, 819, 1425, 391, 297, 785, 2196, 900, 5033, 700};
constexpr std::array kResponsesSystem = {16979, 2299};
constexpr std::array kChatTools = {243, 600};
constexpr std::array kChatSystem = {62};

size_t CommonSteps(const std::vector<AgentStep>& a, const std::vector<AgentStep>& b) {
  return std::ranges::mismatch(a, b).in1 - a.begin();
}

std::string Post(uint16_t port, const std::string& path, const json& body) {
  Client client(port);
  client.Send(Client::Request("POST", path, WithLoneSurrogates(body.dump()),
                              "Content-Type: application/json\r\n"));
  return client.Receive().body;
}

}  // namespace

void AgentCounts::Add(const AgentCounts& more) {
  turns += more.turns;
  hang_ups += more.hang_ups;
  pictures += more.pictures;
  cut_calls += more.cut_calls;
  lone_surrogates += more.lone_surrogates;
  edits += more.edits;
  summaries += more.summaries;
  huge_results += more.huge_results;
  parks += more.parks;
  shareable_tokens += more.shareable_tokens;
  shared_tokens += more.shared_tokens;
  failures.insert(failures.end(), more.failures.begin(), more.failures.end());
  misses.insert(misses.end(), more.misses.begin(), more.misses.end());
}

Agent::Agent(AgentApi api, uint64_t seed, const AgentSizes& sizes, uint16_t port)
    : api_(api), sizes_(sizes), port_(port), texts_(seed) {
  const auto fill = [&](const auto& tools, const auto& system) {
    const auto scaled = [&](int bytes) { return static_cast<size_t>(bytes * sizes.preamble); };
    for (const int bytes : tools) {
      preamble_.tools.push_back(
          texts_.Tool(fmt::format("tool_{}", preamble_.tools.size()), scaled(bytes)));
    }
    for (const int bytes : system) preamble_.system.push_back(texts_.Prose(scaled(bytes)));
  };
  const std::string environment = texts_.Prose(576);
  switch (api) {
    case AgentApi::kMessages:
      fill(kMessagesTools, kMessagesSystem);
      opening_.push_back({.kind = Kind::kUser, .text = environment});
      opening_.push_back({.kind = Kind::kSystem,
                          .text = texts_.Prose(static_cast<size_t>(9143 * sizes.preamble))});
      break;
    case AgentApi::kResponses:
      fill(kResponsesTools, kResponsesSystem);
      opening_.push_back({.kind = Kind::kUser, .text = environment});
      break;
    case AgentApi::kChat:
      fill(kChatTools, kChatSystem);
      opening_.push_back({.kind = Kind::kUser, .text = texts_.Prose(2859)});
      break;
  }
  const json counted = {{"content", "<|im_start|>assistant\n"}, {"parse_special", true}};
  generation_tokens_ = json::parse(Post(port_, "/tokenize", counted))["count"];
  Begin();
}

void Agent::Begin() {
  steps_ = opening_;
  steps_.push_back({.kind = Kind::kUser, .text = texts_.Prose(40 + texts_.Draw(400))});
  if (api_ != AgentApi::kMessages) return;
  // Claude Code's first line changes with every conversation.
  const std::string line = fmt::format(
      "x-anthropic-billing-header: cc_version=2.1.332.{:03x}; cc_entrypoint=cli; cch={:05x};",
      texts_.Draw(4096), texts_.Draw(1 << 20));
  std::vector<std::string>& system = preamble_.system;
  if (system.front().starts_with("x-anthropic")) system.erase(system.begin());
  system.insert(system.begin(), line);
}

json Agent::Body() const { return AgentBody(api_, preamble_, steps_); }

void Agent::Fail(const std::string& what) {
  if (counts_.failures.size() == kMostNotes) return;
  counts_.failures.push_back(
      fmt::format("{}, turn {}: {}", AgentPath(api_), counts_.turns, what.substr(0, 600)));
}

void Agent::TakeTurn(bool has_huge_result) {
  EditHistory();
  json body = Body();
  if (texts_.Draw(12) == 0) HangUp(body);
  body["stream"] = texts_.Draw(2) == 0;
  LimitAnswer(api_, 2 + texts_.Draw(16), &body);
  if (texts_.Draw(8) == 0) DemandCall(api_, &body);
  // A person waits for some of these answers.
  if (api_ == AgentApi::kChat && texts_.Draw(4) == 0) body["priority"] = -1;
  AgentReply reply = Ask(body);
  if (!reply.error.empty()) {
    Fail(fmt::format("{} {}", reply.status, reply.error));
    Begin();  // a user would start again too
    return;
  }
  ++counts_.turns;
  counts_.parks += reply.parks;
  CountShared(reply);
  AddAnswer(std::move(reply));
  AddResults(has_huge_result);
}

void Agent::EditHistory() {
  if (answered_tokens_ > sizes_.most_prompt_tokens) {
    // The agent summarises the conversation and continues from the summary.
    ++counts_.summaries;
    answered_tokens_ = 0;
    Begin();
    steps_.back().text = texts_.Prose(3000);
    return;
  }
  if (texts_.Draw(25) != 0 || steps_.size() < opening_.size() + 6) return;
  ++counts_.edits;
  if (texts_.Draw(2) == 0) {
    // The user goes back and asks for something else.
    while (steps_.size() > opening_.size() + 3) {
      const bool is_answer = steps_.back().kind == Kind::kAssistant;
      steps_.pop_back();
      if (is_answer && texts_.Draw(2) == 0) break;
    }
    while (steps_.back().kind == Kind::kAssistant) steps_.pop_back();
    steps_.push_back({.kind = Kind::kUser, .text = texts_.Prose(200)});
    return;
  }
  // The agent removes old results from the conversation.
  for (AgentStep& step : std::span(steps_).subspan(steps_.size() / 2)) {
    for (AgentResult& result : step.results) result.text = "[old result, taken out]";
  }
}

void Agent::HangUp(json body) {
  ++counts_.hang_ups;
  body["stream"] = true;
  LimitAnswer(api_, 2000, &body);
  Client client(port_);
  client.Send(Client::Request("POST", AgentPath(api_), WithLoneSurrogates(body.dump()),
                              "Content-Type: application/json\r\n"));
  if (texts_.Draw(3) > 0) (void)client.ReceiveSome(static_cast<size_t>(300 + texts_.Draw(3000)));
}

// Sends a request, and retries as clients do when the server asks for that.
AgentReply Agent::Ask(const json& body) {
  const std::string request =
      Client::Request("POST", AgentPath(api_), WithLoneSurrogates(body.dump()),
                      "Content-Type: application/json\r\n");
  for (int tries = 0;; ++tries) {
    Client client(port_);
    client.Send(request);
    const ClientAnswer answer = client.Receive();
    const bool may_try_again = answer.headers.contains("retry-after") && tries < 100;
    if (!may_try_again) return ReadAgentReply(api_, answer);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

void Agent::CountShared(const AgentReply& reply) {
  const size_t common = CommonSteps(answered_, steps_);
  if (common > 0) {
    const bool goes_on = common == answered_.size() && answered_tokens_ > 0;
    const int shareable =
        goes_on ? answered_tokens_ - generation_tokens_
                : CountTokens({steps_.begin(), steps_.begin() + static_cast<int64_t>(common)});
    counts_.shareable_tokens += shareable;
    counts_.shared_tokens += std::min(reply.cached_tokens, shareable);
    if (reply.cached_tokens < shareable / 10 * 9 && counts_.misses.size() < kMostNotes) {
      counts_.misses.push_back(fmt::format("{}, turn {}: {} of {} tokens, {}", AgentPath(api_),
                                           counts_.turns, reply.cached_tokens, shareable,
                                           goes_on ? "goes on" : "edited"));
    }
  }
  answered_ = steps_;
  answered_tokens_ = reply.prompt_tokens;
}

int Agent::CountTokens(const std::vector<AgentStep>& steps) {
  const json body = AgentBody(api_, preamble_, steps);
  int count = 0;
  if (api_ == AgentApi::kChat) {
    const json prompt = json::parse(Post(port_, "/apply-template", body));
    const json counted = {{"content", prompt["prompt"]}, {"parse_special", true}};
    count = json::parse(Post(port_, "/tokenize", counted))["count"];
  } else {
    const std::string path = std::string(AgentPath(api_)) +
                             (api_ == AgentApi::kMessages ? "/count_tokens" : "/input_tokens");
    count = json::parse(Post(port_, path, body))["input_tokens"];
  }
  return count - generation_tokens_;
}

AgentCall Agent::MakeCall() {
  const json& tool =
      preamble_.tools[static_cast<size_t>(texts_.Draw(static_cast<int>(preamble_.tools.size())))];
  json arguments = {{"path", "/" + texts_.Prose(20)}, {"count", texts_.Draw(1000)}};
  if (texts_.Draw(5) == 0) arguments["text"] = texts_.Prose(200 + texts_.Draw(2000));
  return {.id = fmt::format("call_{}", next_call_++),
          .name = tool["name"],
          .arguments = arguments.dump()};
}

// Adds the server's answer and, since random weights do not call tools by themselves, calls as an
// agent's model makes them.
void Agent::AddAnswer(AgentReply reply) {
  AgentStep step = {.kind = Kind::kAssistant,
                    .text = std::move(reply.text),
                    .thought = std::move(reply.thought),
                    .calls = std::move(reply.calls)};
  if (step.calls.empty() && texts_.Draw(6) > 0) {
    for (int i = texts_.Draw(3); i >= 0; --i) step.calls.push_back(MakeCall());
    if (texts_.Draw(8) == 0 && api_ != AgentApi::kMessages) {
      std::string& arguments = step.calls.back().arguments;
      arguments.resize(arguments.size() - 3);
      ++counts_.cut_calls;
    }
  }
  if (step.calls.empty() && step.text.empty()) step.text = "Done.";
  steps_.push_back(std::move(step));
}

AgentResult Agent::MakeResult(const AgentCall& call) {
  AgentResult result = {.call_id = call.id, .is_error = texts_.Draw(15) == 0};
  const int size = texts_.Draw(100);
  const auto most = static_cast<int>(sizes_.largest_result);
  if (size < 50) {
    result.text = texts_.Prose(static_cast<size_t>(texts_.Draw(300)));
  } else if (size < 85) {
    result.text = texts_.File(static_cast<size_t>(300 + texts_.Draw(3700)));
  } else if (size < 97) {
    result.text = texts_.File(static_cast<size_t>(most / 8 + texts_.Draw(most / 4)));
  } else {
    result.text = texts_.File(static_cast<size_t>(most / 2 + texts_.Draw(most / 2)));
  }
  if (texts_.Draw(12) == 0) {
    result.has_picture = true;
    result.text.resize(std::min<size_t>(result.text.size(), 100));
    ++counts_.pictures;
  }
  if (texts_.Draw(12) == 0) {
    result.text += kLoneSurrogate;
    ++counts_.lone_surrogates;
  }
  if (texts_.Draw(20) == 0) result.text += texts_.Blob(800);
  return result;
}

void Agent::AddResults(bool has_huge_result) {
  const std::vector<AgentCall>& calls = steps_.back().calls;
  if (calls.empty()) {
    steps_.push_back({.kind = Kind::kUser, .text = texts_.Prose(30 + texts_.Draw(300))});
    return;
  }
  AgentStep step = {.kind = Kind::kResults};
  for (const AgentCall& call : calls) step.results.push_back(MakeResult(call));
  if (has_huge_result) {
    step.results.front() = {.call_id = calls.front().id, .text = texts_.File(kHugeBytes)};
    ++counts_.huge_results;
  }
  if (texts_.Draw(6) == 0) step.text = texts_.Prose(400);  // a reminder after the results
  steps_.push_back(std::move(step));
}

void Agent::CheckThatTimeIsThatOfNewTokens() {
  json body = Body();
  LimitAnswer(api_, 2, &body);
  body["ebb"] = {{"logits_hash", true}};
  (void)Ask(body);
  const auto timed = [&] {
    const auto begin = std::chrono::steady_clock::now();
    AgentReply reply = Ask(body);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    return std::pair(std::move(reply), seconds.count());
  };
  const auto [kept, kept_seconds] = timed();
  body["cache_prompt"] = false;
  const auto [read, read_seconds] = timed();
  if (!kept.error.empty() || !read.error.empty()) return Fail(kept.error + read.error);
  if (kept.logits_hash != read.logits_hash) Fail("what was kept has other bits");
  if (read.cached_tokens != 0 || kept.cached_tokens < kept.prompt_tokens - 2) {
    Fail(fmt::format("{} of {} tokens were kept", kept.cached_tokens, kept.prompt_tokens));
  }
  constexpr double kAnyRequest = 0.1;  // seconds
  if (kept_seconds > read_seconds / 3 + kAnyRequest) {
    Fail(fmt::format("{} tokens that were kept took {} s, read again {} s", kept.prompt_tokens,
                     kept_seconds, read_seconds));
  }
}

}  // namespace ebb::server

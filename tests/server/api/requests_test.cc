// Tests the corpus of tests/server/requests: how requests of each API are read.
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "src/server/api/api.h"
#include "src/server/api/base/json_fields.h"
#include "tests/server/server_fixture.h"

namespace ebb::server {
namespace {

class RequestCorpus : public ServerTest {
 protected:
  static Json Load(const std::string& name) {
    std::stringstream text;
    text << std::ifstream(EBB_SOURCE_DIR "/tests/server/requests/" + name).rdbuf();
    return Json::parse(text.str());
  }

  // Returns how the request of `entry` is read, with the members that the entry has.
  Json ReadEntry(Api api, const Json& entry) const {
    const auto failed = [](const ApiError& error) {
      EXPECT_EQ(error.status, 400) << error.message;
      EXPECT_NE(error.message.find(error.param), std::string::npos) << error.message;
      return Json{{"error", {{"param", error.param}, {"code", error.code}}}};
    };
    ApiResult<CompletionRequest> request =
        ReadRequest(api, entry["request"], {.model_id = "pebble"}, responses_.get());
    if (!request.ok()) return failed(request.error());
    Json found;
    if (!request->ignored.empty()) found["ignored"] = request->ignored;
    if (request->endpoint == Endpoint::kChat) {
      AddChat(*request, entry, &found);
    } else {
      AddPrompts(*std::move(request), entry, &found);
    }
    return found;
  }

  std::shared_ptr<ResponseStore> responses_ = std::make_shared<ResponseStore>(size_t{1} << 20);

 private:
  // Replaces ids that the request does not hold by "#1", "#2", ...
  static std::string Shown(const std::string& id, const std::string& request,
                           std::map<std::string, std::string>* made) {
    if (request.find("\"" + id + "\"") != std::string::npos || id == "c7") return id;
    return made->try_emplace(id, fmt::format("#{}", made->size() + 1)).first->second;
  }

  static void AddChat(const CompletionRequest& request, const Json& entry, Json* found) {
    const std::string text = entry["request"].dump();
    std::map<std::string, std::string> made;
    Json messages = Json::array();
    for (const ChatMessage& message : request.chat.messages) {
      Json& json = messages.emplace_back();
      json = {{"role", message.role}, {"content", message.content}};
      if (!message.reasoning_content.empty()) json["thought"] = message.reasoning_content;
      for (const ToolCall& call : message.tool_calls) {
        json["calls"].push_back({{"name", call.name},
                                 {"arguments", call.arguments},
                                 {"id", Shown(call.id, text, &made)}});
      }
      if (!message.tool_call_id.empty()) json["id"] = Shown(message.tool_call_id, text, &made);
      if (!message.name.empty()) json["name"] = message.name;
    }
    (*found)["messages"] = std::move(messages);
    for (const Tool& tool : request.chat.tools) (*found)["tools"].push_back(tool.name);
    if (request.chat.tool_choice != "auto") (*found)["tool_choice"] = request.chat.tool_choice;
    if (!request.chat.parallel_tool_calls) (*found)["parallel"] = false;
    if (request.chat.thinking == Thinking::kOff) (*found)["thinks"] = false;
    for (const auto& [name, value] : request.chat.template_arguments) {
      (*found)["arguments"][name] = Json::parse(value);
    }
    const int budget = request.generate.thinking_budget;
    if (budget > 0) (*found)["thinking_budget"] = budget;
    if (request.begun.has_value()) (*found)["begun"] = request.begun->content;
  }

  static void AddPrompts(CompletionRequest request, const Json& entry, Json* found) {
    const auto jobs = Prepare(*model_, &request);
    ASSERT_TRUE(jobs.ok()) << jobs.error().message;
    if (entry.contains("num_prompts")) (*found)["num_prompts"] = jobs->size();
    if (!entry.contains("prompts")) return;
    for (const Job& job : *jobs) {
      std::string text;
      for (const Token token : job.prompt) {
        if (token == model_->BeginToken()) continue;
        text += model_->TokenText(token, Model::ControlTokens::kHide);
      }
      (*found)["prompts"].push_back(text);
    }
  }
};

// RequestCorpusFile compares each entry of a file with how its request is read. Members that an
// entry omits must be those of an empty request.
class RequestCorpusFile : public RequestCorpus, public testing::WithParamInterface<std::string> {};

TEST_P(RequestCorpusFile, IsReadAsItSays) {
  const std::map<std::string, Api> apis = {{"chat.json", Api::kChat},
                                           {"messages.json", Api::kMessages},
                                           {"responses.json", Api::kResponses},
                                           {"/v1/completions", Api::kText},
                                           {"/completion", Api::kLlama}};
  const Json file = Load(GetParam());
  for (const Json& stored : file.value("stored", Json::array())) {
    responses_->Put(stored["id"], nullptr, stored["input"], stored["response"]);
  }
  ASSERT_GE(file["requests"].size(), 20u);
  for (const Json& entry : file["requests"]) {
    Json wanted = entry;
    for (const char* name : {"name", "request", "api"}) wanted.erase(name);
    if (wanted.value("tool_choice", "") == "auto") wanted.erase("tool_choice");
    if (wanted.contains("tools") && wanted["tools"].empty()) wanted.erase("tools");
    const Json found = ReadEntry(apis.at(entry.value("api", GetParam())), entry);
    // The order of members does not matter.
    EXPECT_EQ(nlohmann::json::parse(found.dump()), nlohmann::json::parse(wanted.dump()))
        << entry["name"] << "\n"
        << entry["request"];
  }
}

INSTANTIATE_TEST_SUITE_P(Files, RequestCorpusFile,
                         testing::Values("chat.json", "messages.json", "responses.json",
                                         "texts.json"),
                         [](const auto& file) {
                           return file.param.substr(0, file.param.find('.'));
                         });

}  // namespace
}  // namespace ebb::server

// Tests Responses and Messages over HTTP: what they share with chats, responses by their id, and
// errors.
#include <string>
#include <vector>

#include "tests/server/server_fixture.h"

namespace ebb::server {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

class OtherApisTest : public ServerTest {
 protected:
  static json Respond(uint64_t number, const json& more = json::object()) {
    json body = {{"input", Question(number)}, {"ebb", {{"logits_hash", true}}}};
    body.update(more);
    return body;
  }
  static json Message(uint64_t number, const json& more = json::object()) {
    json body = Chat(number, {{"max_tokens", 1500}});
    body.update(more);
    return body;
  }
};

TEST_F(OtherApisTest, OneQuestionHasOneAnswerInAllForms) {
  Start();
  Client client(port());
  const json chat = client.Post("/v1/chat/completions", Chat(1)).json();
  const json response = client.Post("/v1/responses", Respond(1)).json();
  const json message = client.Post("/v1/messages", Message(1)).json();
  EXPECT_EQ(response["ebb"]["logits_hash"], chat["ebb"]["logits_hash"]) << response.dump();
  EXPECT_EQ(message["ebb"]["logits_hash"], chat["ebb"]["logits_hash"]) << message.dump();
  const json& said = chat["choices"][0]["message"];
  EXPECT_EQ(response["output"][0]["content"][0]["text"], said["reasoning_content"]);
  EXPECT_EQ(response["output"][1]["content"][0]["text"], said["content"]);
  EXPECT_EQ(message["content"][0]["thinking"], said["reasoning_content"]);
  EXPECT_EQ(message["content"][1]["text"], said["content"]);
  EXPECT_EQ(response["usage"]["output_tokens"], chat["usage"]["completion_tokens"]);
  EXPECT_EQ(message["usage"]["input_tokens"], chat["usage"]["prompt_tokens"]);
}

TEST_F(OtherApisTest, StreamsHaveNamedEventsAndNoDone) {
  Start();
  Client client(port());
  const ClientAnswer response = client.Post("/v1/responses", Respond(1, {{"stream", true}}));
  EXPECT_EQ(response.headers.at("content-type"), "text/event-stream; charset=utf-8");
  EXPECT_THAT(response.body, AllOf(StartsWith("event: response.created\ndata: {"),
                                   HasSubstr("event: response.completed\ndata: {")));
  EXPECT_THAT(response.body, testing::Not(HasSubstr("[DONE]")));
  const ClientAnswer message = client.Post("/v1/messages", Message(1, {{"stream", true}}));
  EXPECT_THAT(message.body, AllOf(StartsWith("event: message_start\ndata: {"),
                                  HasSubstr("event: message_stop\ndata: {")));
  EXPECT_THAT(message.body, testing::Not(HasSubstr("[DONE]")));
}

TEST_F(OtherApisTest, AResponseThatWasStoredGoesOn) {
  Start();
  Client client(port());
  const json first = client.Post("/v1/responses", Respond(1)).json();
  const std::string id = first["id"];
  EXPECT_EQ(id.size(), std::string("resp_").size() + 32);
  EXPECT_EQ(client.Get("/v1/responses/" + id).json(), first);
  const json by_id = client
                         .Post("/v1/responses",
                               Respond(2, {{"previous_response_id", id}, {"max_output_tokens", 8}}))
                         .json();
  json items = {{{"role", "user"}, {"content", Question(1)}}};
  for (const json& item : first["output"]) items.push_back(item);
  items.push_back({{"role", "user"}, {"content", Question(2)}});
  const json in_full =
      client.Post("/v1/responses", Respond(2, {{"input", items}, {"max_output_tokens", 8}})).json();
  EXPECT_EQ(by_id["ebb"]["logits_hash"], in_full["ebb"]["logits_hash"]);
  EXPECT_EQ(by_id["previous_response_id"], id);
  Client deleting(port());
  deleting.Send(Client::Request("DELETE", "/v1/responses/" + id));
  EXPECT_EQ(deleting.Receive().json()["deleted"], true);
  EXPECT_EQ(client.Get("/v1/responses/" + id).status, 404);
  // A response that continued the deleted one can still be continued.
  EXPECT_EQ(client
                .Post("/v1/responses",
                      Respond(2, {{"previous_response_id", by_id["id"]}, {"max_output_tokens", 4}}))
                .status,
            200);
}

TEST_F(OtherApisTest, TheStoreHoldsSoManyBytes) {
  ServerOptions options = Options();
  options.response_store_bytes = 100;
  Start(options);
  Client client(port());
  const json first = client.Post("/v1/responses", Respond(1, {{"max_output_tokens", 4}})).json();
  EXPECT_EQ(client.Get("/v1/responses/" + first["id"].get<std::string>()).status, 404);
}

TEST_F(OtherApisTest, AResponseIsCancelledByItsId) {
  Start();
  Client streaming(port());
  streaming.Send(Client::Request(
      "POST", "/v1/responses",
      Respond(1, {{"stream", true}, {"ignore_eos", true}, {"max_output_tokens", 100000}}).dump(),
      "Content-Type: application/json\r\n"));
  Await([](const Figures& figures) { return figures.decoding == 1; });
  std::string begin = streaming.ReceiveSome(400);
  const size_t at = begin.find("\"id\":\"resp_");
  ASSERT_NE(at, std::string::npos) << begin;
  const std::string id = begin.substr(at + 6, 37);
  Client other(port());
  const ClientAnswer cancelled = other.Post("/v1/responses/" + id + "/cancel", std::string());
  EXPECT_EQ(cancelled.status, 200);
  EXPECT_EQ(cancelled.json()["status"], "cancelled");
  Await([](const Figures& figures) { return figures.decoding == 0; });
  EXPECT_EQ(other.Post("/v1/responses/" + id + "/cancel", std::string()).status, 404);
  EXPECT_EQ(other.Get("/v1/responses/" + id).status, 404);
}

TEST_F(OtherApisTest, AChatIsNoResponse) {
  Start();
  Client streaming(port());
  streaming.Send(Client::Request(
      "POST", "/v1/chat/completions",
      Chat(1, {{"stream", true}, {"ignore_eos", true}, {"max_tokens", 100000}}).dump(),
      "Content-Type: application/json\r\n"));
  Await([](const Figures& figures) { return figures.decoding == 1; });
  const std::string begin = streaming.ReceiveSome(400);
  const size_t at = begin.find("chatcmpl-");
  ASSERT_NE(at, std::string::npos) << begin;
  Client other(port());
  const std::string path = "/v1/responses/" + begin.substr(at, 25) + "/cancel";
  EXPECT_EQ(other.Post(path, std::string()).status, 404) << path;
  EXPECT_EQ(server_->figures().decoding, 1u);
}

TEST_F(OtherApisTest, TokensOfMessagesAreCountedWithoutAnAnswer) {
  Start();
  Client client(port());
  const json body = {{"messages", {{{"role", "user"}, {"content", Question(1)}}}}};
  const ClientAnswer count = client.Post("/v1/messages/count_tokens", body);
  ASSERT_EQ(count.status, 200) << count.body;
  const json chat = client.Post("/v1/chat/completions", Chat(1, {{"max_tokens", 1}})).json();
  EXPECT_EQ(count.json()["input_tokens"], chat["usage"]["prompt_tokens"]);
}

// Checks refusals that come before the body is read.
TEST_F(OtherApisTest, RefusalsAreInTheFormOfTheInterfaceAndNameTheRequest) {
  ServerOptions options = Options();
  options.http.body_bytes = 1000;
  Start(options);
  Client client(port());
  client.Send(Client::Request("POST", "/v1/messages", std::string(2000, 'x'),
                              "Content-Type: application/json\r\nX-Request-Id: mine\r\n"));
  const ClientAnswer answer = client.Receive();
  EXPECT_EQ(answer.status, 413);
  EXPECT_EQ(answer.json()["type"], "error");
  EXPECT_EQ(answer.headers.at("x-request-id"), "mine");
}

TEST_F(OtherApisTest, ErrorsAreInTheFormOfTheInterface) {
  Start();
  Client client(port());
  const auto error_of = [](const ClientAnswer& answer) { return answer.json()["error"]; };
  const ClientAnswer response =
      client.Post("/v1/responses", Respond(1, {{"max_output_tokens", 0}}));
  EXPECT_EQ(response.status, 400);
  EXPECT_EQ(error_of(response)["param"], "max_output_tokens");
  EXPECT_EQ(error_of(response)["code"], "out_of_range");
  const ClientAnswer format =
      client.Post("/v1/responses", Respond(1, {{"text", {{"format", {{"type", "json_schema"}}}}}}));
  EXPECT_EQ(error_of(format)["param"], "text.format.schema") << format.body;
  const ClientAnswer message = client.Post("/v1/messages", Message(1, {{"temperature", 3}}));
  EXPECT_EQ(message.status, 400);
  EXPECT_EQ(message.json()["type"], "error");
  EXPECT_EQ(error_of(message)["type"], "invalid_request_error");
  EXPECT_THAT(error_of(message)["message"].get<std::string>(), StartsWith("temperature: "));
  EXPECT_EQ(client.Post("/v1/messages", std::string("no JSON")).json()["type"], "error");
  const ClientAnswer wrong_method = client.Get("/v1/messages");
  EXPECT_EQ(wrong_method.status, 405);
  EXPECT_EQ(wrong_method.json()["type"], "error");
  const ClientAnswer no_model = client.Post("/v1/messages", Message(1, {{"model", "claude"}}));
  EXPECT_EQ(error_of(no_model)["type"], "not_found_error");
  EXPECT_EQ(client.Get("/v1/responses/resp_1/what").status, 404);
  EXPECT_EQ(client.Get("/v1/responses").status, 405);
  // This prompt exceeds the context.
  std::string words;
  for (int i = 0; i < 20000; ++i) words += "tide ";
  const ClientAnswer too_long =
      client.Post("/v1/messages",
                  json{{"max_tokens", 5}, {"messages", {{{"role", "user"}, {"content", words}}}}});
  EXPECT_EQ(too_long.status, 400) << too_long.body;
  EXPECT_EQ(error_of(too_long)["type"], "invalid_request_error");
}

TEST_F(OtherApisTest, FieldsWithoutEffectAreNamed) {
  Start();
  const ClientAnswer answer = Client(port()).Post(
      "/v1/responses",
      Respond(1, {{"max_output_tokens", 1}, {"truncation", "auto"}, {"prompt_cache_key", "k"}}));
  EXPECT_EQ(answer.status, 200) << answer.body;
  EXPECT_THAT(answer.headers.at("x-ebb-ignored"),
              AllOf(HasSubstr("truncation"), HasSubstr("prompt_cache_key")));
}

}  // namespace
}  // namespace ebb::server

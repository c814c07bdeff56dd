// Tests clients of Responses and Messages against the server (python_client.h): those of OpenAI and
// Anthropic, and two frameworks built on OpenAI's.
#include <fmt/format.h>

#include "tests/server/api/python_client.h"
#include "tests/server/server_fixture.h"
#include "tests/server/tools_model.h"
#include "tests/support/skip.h"

namespace ebb::server {
namespace {

class ClientsTest : public ServerTest {
 protected:
  void Run(const std::string& package, const char* script) {
    if (const auto why = WhyNoPython(package)) EBB_SKIP_WITHOUT("python") << *why;
    Start();
    Check(script);
  }
  // Runs a script against a model that calls tools if it must.
  void RunWithTools(const std::string& package, const char* script) {
    if (const auto why = WhyNoPython(package)) EBB_SKIP_WITHOUT("python") << *why;
    const auto model = LoadModelWithTools();
    ASSERT_TRUE(model.ok()) << model.status().ToString();
    auto server = Server::Start(*model, Options());
    ASSERT_TRUE(server.ok()) << server.status().ToString();
    server_ = *std::move(server);
    Check(script);
  }

 private:
  void Check(const char* script) {
    const auto end =
        RunPython(script, {fmt::format("http://{}", server_->addresses().front()), Question(1)});
    EXPECT_EQ(end.exit_code, 0) << end.output;
    EXPECT_THAT(end.output, testing::HasSubstr("good")) << end.output;
  }
};

TEST_F(ClientsTest, OpenAiReadsResponses) {
  Run("openai", R"py(
import sys
from openai import OpenAI, BadRequestError, NotFoundError
client = OpenAI(base_url=sys.argv[1] + "/v1", api_key="none", max_retries=0)
ask = dict(model="pebble", temperature=0, input=sys.argv[2])
whole = client.responses.create(metadata={"a": "b"}, **ask)
assert whole.status == "completed" and whole.metadata == {"a": "b"}, whole
reasoning, message = whole.output
assert reasoning.type == "reasoning" and reasoning.content[0].text, whole
assert message.content[0].type == "output_text" and whole.output_text, whole
assert whole.usage.output_tokens_details.reasoning_tokens > 0, whole.usage
assert whole.usage.total_tokens == whole.usage.input_tokens + whole.usage.output_tokens

thought, text, types = "", "", []
for number, event in enumerate(client.responses.create(stream=True, **ask)):
    types.append(event.type)
    assert event.sequence_number == number
    if event.type == "response.reasoning_text.delta": thought += event.delta
    if event.type == "response.output_text.delta": text += event.delta
assert types[:2] == ["response.created", "response.in_progress"], types
assert types[-1] == "response.completed", types
assert text == whole.output_text and thought == reasoning.content[0].text
with client.responses.stream(reasoning={"summary": "auto"}, **ask) as stream:
    summary = "".join(e.delta for e in stream if e.type == "response.reasoning_summary_text.delta")
    final = stream.get_final_response()
assert final.output_text == text and summary == thought, final

short = client.responses.create(max_output_tokens=3, **ask)
assert short.status == "incomplete" and short.incomplete_details.reason == "max_output_tokens"

again = client.responses.retrieve(whole.id)
assert again.output_text == text
assert client.responses.input_items.list(whole.id).data[0].content == sys.argv[2]
more = client.responses.create(model="pebble", temperature=0, previous_response_id=whole.id,
                               input="And now?", max_output_tokens=4)
items = [{"role": "user", "content": sys.argv[2]}, *[o.model_dump() for o in whole.output],
         {"role": "user", "content": "And now?"}]
same = client.responses.create(model="pebble", temperature=0, input=items, max_output_tokens=4)
assert more.usage.input_tokens == same.usage.input_tokens > whole.usage.input_tokens
assert [o.content[0].text for o in more.output] == [o.content[0].text for o in same.output]
client.responses.delete(whole.id)
for call in (lambda: client.responses.retrieve(whole.id), lambda: client.responses.cancel(whole.id)):
    try:
        call()
        raise AssertionError("it is still there")
    except NotFoundError:
        pass
unstored = client.responses.create(store=False, **ask)
try:
    client.responses.create(previous_response_id=unstored.id, **ask)
    raise AssertionError("it was stored")
except BadRequestError as error:
    assert error.code == "previous_response_not_found", error
assert client.responses.create(tools=[{"type": "web_search"}], **ask).output_text == whole.output_text
for bad, param in ((dict(max_output_tokens=0), "max_output_tokens"), (dict(temperature=9), "temperature")):
    try:
        client.responses.create(**{**ask, **bad})
        raise AssertionError(bad)
    except BadRequestError as error:
        assert error.param == param, error
print("good")
)py");
}

TEST_F(ClientsTest, OpenAiReadsCallsAndSchemasOfResponses) {
  RunWithTools("openai", R"py(
import json, sys
from openai import OpenAI
from pydantic import BaseModel
from typing import Literal
client = OpenAI(base_url=sys.argv[1] + "/v1", api_key="none", max_retries=0)
tool = {"type": "function", "name": "sea", "description": "d", "strict": True, "parameters": {
    "type": "object", "properties": {"state": {"enum": ["calm", "rough"]}}, "required": ["state"],
    "additionalProperties": False}}
ask = dict(model="pebble", input="How is the sea?", tools=[tool], tool_choice="required",
           parallel_tool_calls=False)
whole = client.responses.create(**ask)
call = whole.output[-1]
assert call.type == "function_call" and call.name == "sea" and call.call_id, whole
assert json.loads(call.arguments)["state"] in ("calm", "rough"), call
arguments, done = "", None
for event in client.responses.create(stream=True, **ask):
    if event.type == "response.function_call_arguments.delta": arguments += event.delta
    if event.type == "response.function_call_arguments.done": done = event.arguments
assert arguments == done == call.arguments, (arguments, done)
answer = client.responses.create(model="pebble", tools=[tool], max_output_tokens=4, input=[
    {"role": "user", "content": "How is the sea?"}, *[o.model_dump() for o in whole.output],
    {"type": "function_call_output", "call_id": call.call_id, "output": "wet"}])
assert answer.usage.input_tokens > whole.usage.input_tokens

class Sea(BaseModel):
    state: Literal["calm", "rough"]
parsed = client.responses.parse(model="pebble", input="How is the sea?", text_format=Sea)
assert parsed.output_parsed.state in ("calm", "rough"), parsed
print("good")
)py");
}

TEST_F(ClientsTest, AgentsSdkSpeaksResponsesAndChat) {
  Run("agents", R"py(
import asyncio, sys
from agents import Agent, ModelSettings, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner
from agents import set_tracing_disabled
from openai import AsyncOpenAI
set_tracing_disabled(True)

async def main():
    client = AsyncOpenAI(base_url=sys.argv[1] + "/v1", api_key="none", max_retries=0)
    answers = []
    for kind in (OpenAIResponsesModel, OpenAIChatCompletionsModel):
        agent = Agent(name="a", model=kind("pebble", openai_client=client),
                      model_settings=ModelSettings(temperature=0))
        answers.append((await Runner.run(agent, sys.argv[2])).final_output)
        stream = Runner.run_streamed(agent, sys.argv[2])
        async for event in stream.stream_events():
            pass
        answers.append(stream.final_output)
    assert answers[0] and len(set(answers)) == 1, answers
asyncio.run(main())
print("good")
)py");
}

TEST_F(ClientsTest, AgentsSdkRunsTools) {
  RunWithTools("agents", R"py(
import asyncio, sys
from typing import Literal
from agents import Agent, ModelSettings, OpenAIResponsesModel, Runner, function_tool
from agents import set_tracing_disabled
from openai import AsyncOpenAI
set_tracing_disabled(True)
asked = []

@function_tool
def sea(state: Literal["calm", "rough"]) -> str:
    asked.append(state)
    return "the sea is " + state

async def main():
    client = AsyncOpenAI(base_url=sys.argv[1] + "/v1", api_key="none", max_retries=0)
    agent = Agent(name="a", model=OpenAIResponsesModel("pebble", openai_client=client), tools=[sea],
                  tool_use_behavior="stop_on_first_tool",
                  model_settings=ModelSettings(temperature=0, tool_choice="required",
                                               parallel_tool_calls=False))
    result = await Runner.run(agent, "How is the sea?")
    assert asked and result.final_output == "the sea is " + asked[0], (asked, result)
asyncio.run(main())
print("good")
)py");
}

TEST_F(ClientsTest, LangChainSpeaksResponsesAndChat) {
  Run("langchain_openai", R"py(
import sys
from langchain_openai import ChatOpenAI
answers = []
for responses in (True, False):
    chat = ChatOpenAI(base_url=sys.argv[1] + "/v1", api_key="none", model="pebble", temperature=0,
                      use_responses_api=responses, max_retries=0)
    whole = chat.invoke(sys.argv[2])
    answers.append(whole.text)
    assert whole.usage_metadata["output_tokens"] > 0, whole
    answers.append("".join(chunk.text for chunk in chat.stream(sys.argv[2])))
assert answers[0] and len(set(answers)) == 1, answers
print("good")
)py");
}

TEST_F(ClientsTest, AnthropicReadsMessages) {
  Run("anthropic", R"py(
import sys
from anthropic import Anthropic, BadRequestError, NotFoundError
client = Anthropic(base_url=sys.argv[1], api_key="none", max_retries=0)
ask = dict(model="pebble", max_tokens=1500, extra_body={"temperature": 0},
           messages=[{"role": "user", "content": sys.argv[2]}])
whole = client.messages.create(**ask)
assert whole.stop_reason == "end_turn", whole
thinking, text = whole.content
assert thinking.type == "thinking" and thinking.thinking and thinking.signature, whole
assert text.type == "text" and text.text, whole
count = client.messages.count_tokens(model="pebble", messages=ask["messages"]).input_tokens
assert whole.usage.input_tokens == count > 0, (whole.usage, count)
with client.messages.stream(**ask) as stream:
    said = "".join(stream.text_stream)
    final = stream.get_final_message()
assert said == text.text == final.content[1].text, final
assert final.content[0].thinking == thinking.thinking, final
assert final.usage.output_tokens == whole.usage.output_tokens
assert final.usage.input_tokens == count
short = client.messages.create(**{**ask, "max_tokens": 3})
assert short.stop_reason == "max_tokens", short
brief = client.messages.create(thinking={"type": "enabled", "budget_tokens": 4}, **ask)
assert len(brief.content[0].thinking) < len(thinking.thinking), brief
within, word = thinking.thinking[5:15], text.text[4:10]
assert within not in text.text and word not in text.text[:4], whole
stopped = client.messages.create(stop_sequences=["never said", within, word], **ask)
assert stopped.stop_reason == "stop_sequence" and stopped.stop_sequence == word, stopped
assert stopped.content[0].thinking == thinking.thinking, stopped
more = client.messages.create(**{**ask, "max_tokens": 4, "messages": [
    *ask["messages"], {"role": "assistant", "content": [b.model_dump() for b in whole.content]},
    {"role": "user", "content": "And now?"}]})
assert more.usage.input_tokens > count
hosted = client.messages.create(tools=[{"type": "web_search_20250305", "name": "w"}], **ask)
assert hosted.content[-1].text == text.text, hosted
for bad, message in ((dict(extra_body={"top_p": 2}), "top_p"), (dict(messages=[]), "messages")):
    try:
        client.messages.create(**{**ask, **bad})
        raise AssertionError(bad)
    except BadRequestError as error:
        assert error.body["error"]["type"] == "invalid_request_error", error.body
        assert error.body["error"]["message"].startswith(message), error.body
try:
    client.messages.create(**{**ask, "model": "claude"})
    raise AssertionError("there is no such model")
except NotFoundError as error:
    assert error.body["type"] == "error" and error.body["error"]["type"] == "not_found_error"
print("good")
)py");
}

TEST_F(ClientsTest, AnthropicReadsCallsOfMessages) {
  RunWithTools("anthropic", R"py(
import sys
from anthropic import Anthropic
client = Anthropic(base_url=sys.argv[1], api_key="none", max_retries=0)
tool = {"name": "sea", "description": "d", "input_schema": {
    "type": "object", "properties": {"state": {"enum": ["calm", "rough"]}}, "required": ["state"],
    "additionalProperties": False}}
ask = dict(model="pebble", max_tokens=400, extra_body={"temperature": 0}, tools=[tool],
           tool_choice={"type": "any", "disable_parallel_tool_use": True},
           messages=[{"role": "user", "content": "How is the sea?"}])
whole = client.messages.create(**ask)
call = whole.content[-1]
assert whole.stop_reason == "tool_use" and call.name == "sea", whole
assert call.input["state"] in ("calm", "rough"), call
with client.messages.stream(**ask) as stream:
    final = stream.get_final_message()
assert final.content[-1].input == call.input and final.stop_reason == "tool_use", final
answer = client.messages.create(**{**ask, "max_tokens": 4, "tool_choice": {"type": "none"},
    "messages": [*ask["messages"],
        {"role": "assistant", "content": [b.model_dump() for b in whole.content]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": call.id, "content": "wet"}]}]})
assert answer.usage.output_tokens > 0
print("good")
)py");
}

}  // namespace
}  // namespace ebb::server

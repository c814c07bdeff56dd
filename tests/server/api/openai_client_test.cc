// Tests Python's package `openai` against the server (python_client.h).
#include <fmt/format.h>

#include "tests/server/api/python_client.h"
#include "tests/server/server_fixture.h"
#include "tests/support/skip.h"

namespace ebb::server {
namespace {

constexpr const char* kScript = R"py(
import sys
from openai import OpenAI, BadRequestError
client = OpenAI(base_url=sys.argv[1], api_key="none", max_retries=0)
ask = dict(model="pebble", temperature=0, messages=[{"role": "user", "content": sys.argv[2]}])
assert [m.id for m in client.models.list()] == ["pebble"]
whole = client.chat.completions.create(**ask)
assert whole.choices[0].finish_reason == "stop", whole
thought, content = "", ""
for chunk in client.chat.completions.create(stream=True, stream_options={"include_usage": True}, **ask):
    if not chunk.choices:
        assert chunk.usage == whole.usage, chunk
        continue
    delta = chunk.choices[0].delta
    thought += getattr(delta, "reasoning_content", None) or ""
    content += delta.content or ""
assert content == whole.choices[0].message.content, content
assert thought == whole.choices[0].message.reasoning_content, thought
with client.chat.completions.stream(n=2, **ask) as stream:
    for event in stream:
        pass
    final = stream.get_final_completion()
assert [c.message.content for c in final.choices] == [content, content], final
probs = client.chat.completions.create(logprobs=True, top_logprobs=2, max_tokens=3, **ask)
assert len(probs.choices[0].logprobs.content) == 3
text = client.completions.create(model="pebble", prompt="Question: First", max_tokens=5)
assert text.usage.completion_tokens == 5
try:
    client.chat.completions.create(**{**ask, "temperature": 9})
    raise AssertionError("a temperature of 9 was taken")
except BadRequestError as error:
    assert error.param == "temperature" and error.code == "out_of_range", error
print("good", content)
)py";

class OpenAiClientTest : public ServerTest {};

TEST_F(OpenAiClientTest, ReadsThoughtsAnswersUsageAndErrors) {
  if (const auto why = WhyNoPython("openai")) EBB_SKIP_WITHOUT("python") << *why;
  Start();
  const auto end =
      RunPython(kScript, {fmt::format("http://{}/v1", server_->addresses().front()), Question(1)});
  EXPECT_EQ(end.exit_code, 0) << end.output;
  EXPECT_THAT(end.output, testing::StartsWith("good"));
}

}  // namespace
}  // namespace ebb::server

// Templates that were made to do harm end in an error, in time, and leave the process whole. What
// long conversations need is far from the limits.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <string>
#include <vector>

#include "src/base/sanitizers.h"
#include "src/model/chat/chat.h"
#include "tests/support/slowdown.h"

namespace ebb {
namespace {

std::string Times(const std::string& text, int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

Status RenderStatus(const std::string& source, const ChatRequest& request) {
  const auto parsed = ChatTemplate::Parse(nullptr, source);
  return parsed.ok() ? (*parsed)->Render(request).status() : parsed.status();
}

Status RenderStatus(const std::string& source) {
  return RenderStatus(source, {.messages = {{"user", "hi"}}});
}

double Seconds(const std::string& source, Status* status) {
  const auto start = std::chrono::steady_clock::now();
  *status = RenderStatus(source);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

int64_t PeakBytes() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} << 10;
}

struct Hostile {
  std::string what;
  std::string source;
};

class TemplatesOutOfBounds : public testing::Test {
 protected:
  void SetUp() override {
#ifndef EBB_COMMON_IS_PATCHED
    GTEST_SKIP() << "this llama.cpp has no limits for templates";
#endif
  }
  // Which may be slow on a machine that others use.
  static void ExpectBounded(const Hostile& hostile, Status* status) {
    constexpr double kMaxSeconds = 30 * kSlowdown;
    fprintf(stderr, "%s\n", hostile.what.c_str());
    const double seconds = Seconds(hostile.source, status);
    fprintf(stderr, "%-40s %6.2f s, %5lld MiB: %s\n", hostile.what.c_str(), seconds,
            static_cast<long long>(PeakBytes() >> 20), status->ToString().substr(0, 120).c_str());
    EXPECT_LT(seconds, kMaxSeconds) << hostile.what;
    if (!kShadowMemory) {
      EXPECT_LT(PeakBytes(), int64_t{1536} << 20) << hostile.what;
    }
  }
  static void ExpectStopped(const std::vector<Hostile>& all) {
    for (const Hostile& hostile : all) {
      Status status;
      ExpectBounded(hostile, &status);
      EXPECT_EQ(status.code(), StatusCode::kUnsupported) << hostile.what;
      EXPECT_EQ(status.Text(), "the chat template goes beyond its limits of work, output or depth")
          << hostile.what;
    }
  }
};

TEST_F(TemplatesOutOfBounds, Loops) {
  ExpectStopped({
      {"one loop", "{% for i in range(1000000000) %}x{% endfor %}"},
      {"a range alone", "{{ range(9000000000000000000) | length }}"},
      {"nested loops", Times("{% for i in range(1000) %}", 4) + "x" + Times("{% endfor %}", 4)},
      {"loops over messages",
       Times("{% for m in messages %}{% for i in range(2000) %}", 3) + Times("{% endfor %}", 6)},
      {"a loop without output", "{% for i in range(100000000) if i < 0 %}{% endfor %}"},
      {"a list searched for each item",
       "{% set l = range(100000) %}{% for i in l %}{% if 'x' in l %}{% endif %}{% endfor %}"},
      {"a list that grows within another one",
       "{% set ns = namespace() %}{% set ns.root = [] %}{% set ns.here = ns.root %}"
       "{% for i in range(100000) %}{% set next = [] %}{% set _ = ns.here.append(next) %}"
       "{% set ns.here = next %}{% endfor %}{{ ns.root }}"},
      {"sorting", "{% set l = range(200000) %}{% for i in l %}{{ l | sort | first }}{% endfor %}"},
  });
}

TEST_F(TemplatesOutOfBounds, Texts) {
  const std::string doubled =
      "{% set ns = namespace(s='x') %}{% for i in range(40) %}{% set ns.s = ns.s ~ ns.s %}"
      "{% endfor %}{{ ns.s }}";
  ExpectStopped({
      {"repetition", "{{ 'x' * 1000000000 }}"},
      {"repetition of nothing", "{{ '' * 9000000000000000000 }}"},
      {"doubling", doubled},
      {"replacement", "{% set a = 'a' * 100000 %}{{ a | replace('a', a) }}"},
      {"replacement of nothing", "{% set a = 'a' * 100000 %}{{ a | replace('', a) }}"},
      {"joining", "{% set a = 'a' * 1000000 %}{{ range(100000) | join(a) }}"},
      {"indenting", "{{ 'a\\nb' | indent(2000000000) }}"},
      {"indented JSON", "{{ [[1, 2], [3]] | tojson(indent=2000000000) }}"},
      {"search",
       "{% set a = ('a' * 100000) ~ '' %}{% set a = a.replace('a', 'aaaaaaaaaa') %}"
       "{{ (a ~ 'b') in (a ~ a) }}"},
      {"stripping", "{% for i in range(1000) %}{{ (' ' * 1000000).strip() }}{% endfor %}"},
      {"an output that is too long", "{{ 'ab ' * 500000 }}"},
      {"a source that is too long", Times("a", (1 << 20) + 1)},
  });
}

TEST_F(TemplatesOutOfBounds, Depths) {
  constexpr int kLevels = 20000;
  ExpectStopped({
      {"a macro that calls itself", "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"},
      {"brackets", "{{ " + Times("(", kLevels) + "1" + Times(")", kLevels) + " }}"},
      {"lists", "{{ " + Times("[", kLevels) + Times("]", kLevels) + " }}"},
      {"negations", "{{ " + Times("not ", kLevels) + "1 }}"},
      {"signs", "{{ " + Times("- ", kLevels) + "1 }}"},
      {"sums", "{{ 1" + Times(" + 1", kLevels) + " }}"},
      {"filters", "{{ 'a'" + Times(" | upper", kLevels) + " }}"},
      {"members", "{{ a" + Times(".a", kLevels) + " }}"},
      {"calls", "{{ a" + Times("()", kLevels) + " }}"},
      {"conditions", Times("{% if 1 %}", kLevels) + "x" + Times("{% endif %}", kLevels)},
      {"alternatives", "{% if 0 %}" + Times("{% elif 0 %}", kLevels) + "{% endif %}"},
      {"ternaries", "{{ " + Times("1 if 0 else ", kLevels) + "1 }}"},
      {"lists that grow",
       "{% set ns = namespace(a=[]) %}{% for i in range(100000) %}{% set ns.a = [ns.a] %}"
       "{% endfor %}"},
      {"tuples that grow",
       "{% set ns = namespace(a=1) %}{% for i in range(100000) %}{% set ns.a = (ns.a, 1) %}"
       "{% endfor %}{{ {ns.a: 1} }}"},
      {"a list twice in another one, again and again",
       "{% set ns = namespace(a=[1]) %}{% for i in range(60) %}{% set ns.a = [ns.a, ns.a] %}"
       "{% endfor %}{{ ns.a | tojson }}"},
      {"such tuples as a key",
       "{% set ns = namespace(a=1) %}{% for i in range(60) %}{% set ns.a = (ns.a, ns.a) %}"
       "{% endfor %}{{ {ns.a: 1} | length }}"},
  });
}

TEST_F(TemplatesOutOfBounds, WhatEndedTheProcessIsAnErrorOfTheTemplate) {
  for (const Hostile& hostile : std::vector<Hostile>{
           {"a value that holds itself",
            "{% set ns = namespace() %}{% set ns.me = ns %}{{ ns | tojson }}"},
           {"two values that hold each other",
            "{% set a = namespace() %}{% set b = namespace() %}{% set a.b = b %}"
            "{% set b.a = a %}{{ a | string }}"},
           {"a list in itself", "{% set a = [] %}{% set _ = a.append(a) %}{{ a == a }}"},
           {"a function in an object", "{% macro f() %}{% endmacro %}{{ namespace(f=f) }}"},
           {"a division by zero", "{{ 1 is divisibleby(0) }}"},
           {"a division that overflows",
            "{{ (-9223372036854775807 - 1) is divisibleby(-1) }}{{ "
            "raise_exception('end') }}"},
       }) {
    Status status;
    ExpectBounded(hostile, &status);
    EXPECT_EQ(status.code(), StatusCode::kUnsupported) << hostile.what;
    EXPECT_TRUE(status.Text().starts_with("the chat template refuses: ")) << status.Text();
  }
}

// What the analysis makes of outputs close to the limit.
TEST_F(TemplatesOutOfBounds, TheAnalysisOfLongOutputsEnds) {
  const std::string messages = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}";
  for (const Hostile& hostile : std::vector<Hostile>{
           {"letters", "{{ 'ab' * 120000 }}" + messages},
           {"words", "{{ 'a b\n' * 60000 }}" + messages + "{{ 'a b\n' * 1000 }}"},
           {"tags", "{{ '<a>[b]' * 40000 }}" + messages + "{{ '<a>[b]' * 1000 }}"},
           {"tags behind", messages + "{{ '</a>' * 60000 }}"},
           {"tags that differ",
            "{% for m in messages %}{{ (m.role ~ '<a>') * 20000 }}{% endfor %}"}}) {
    Status status;
    ExpectBounded(hostile, &status);
  }
}

TEST(TemplatesWithinBounds, TakeLongConversations) {
  const std::string source =
      "{%- set ns = namespace(last=messages | length - 1, list=[]) %}"
      "{%- for message in messages[::-1] %}{%- set index = (messages | length - 1) - loop.index0 %}"
      "{%- if message.role == 'user' and ns.last < index %}{%- set ns.last = index %}{%- endif %}"
      "{%- set ns.list = ns.list[-20:] + [{'role': message.role, 'at': [index]}] %}"
      "{%- endfor %}"
      "{%- for message in messages %}{%- set content = message.content %}"
      "{%- if message.role == 'assistant' and '</think>' in content %}"
      "{%- set content = content.split('</think>')[-1].lstrip('\\n') %}{%- endif %}"
      "{{- '<|im_start|>' + message.role + '\\n' + content | trim + '<|im_end|>\\n' }}"
      "{%- endfor %}{{- ns.list | length }}";
  ChatRequest request;
  for (int i = 0; i < 2000; ++i) {
    request.messages.push_back({"user", Times("word ", 400)});
    request.messages.push_back({"assistant", "<think>" + Times("hm ", 400) + "</think>\n\nyes"});
  }
  Status status = RenderStatus(source, request);
  EXPECT_TRUE(status.ok()) << status.ToString();
  request.messages = {{"user", Times("word ", 2000000)}, {"assistant", "yes"}, {"user", "so?"}};
  status = RenderStatus(source, request);
  EXPECT_TRUE(status.ok()) << status.ToString();
}

}  // namespace
}  // namespace ebb

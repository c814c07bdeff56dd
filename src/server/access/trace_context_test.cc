#include "src/server/access/trace_context.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ebb::server {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

constexpr char kParent[] = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

TEST(TraceContextTest, AParentHasAVersionTwoIdsAndFlags) {
  for (const std::string& valid :
       {std::string(kParent),
        std::string("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-ff"),
        std::string("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-what-comes")}) {
    EXPECT_TRUE(IsTraceParent(valid)) << valid;
  }
  for (const std::string& invalid :
       {std::string(), std::string("00"), std::string(kParent) + "-more",
        std::string(kParent) + "x",
        std::string("ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
        std::string("00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01"),
        std::string("00-00000000000000000000000000000000-00f067aa0ba902b7-01"),
        std::string("00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01"),
        std::string("00_4bf92f3577b34da6a3ce929d0e0e4736_00f067aa0ba902b7_01"),
        std::string("00-4bf92f3577b34da6a3ce929d0e0e473-600f067aa0ba902b7-01"),
        std::string("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0g"),
        std::string("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01.x"),
        std::string(kParent) + "," + kParent}) {
    EXPECT_FALSE(IsTraceParent(invalid)) << invalid;
  }
}

TEST(TraceContextTest, AStateIsAListOfPairs) {
  for (const std::string& valid :
       {std::string("a=1"), std::string("rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"),
        std::string(" a=1 ,\tb@c_-*/d= x , ,"), std::string("1a=!")}) {
    EXPECT_TRUE(IsTraceState(valid)) << valid;
  }
  std::string many;
  for (int i = 0; i < 33; ++i) many += "a=b,";
  for (const std::string& invalid :
       {std::string(), std::string(" ,"), std::string("a"), std::string("a="), std::string("=b"),
        std::string("A=1"), std::string("a=b=c"), std::string("a=\x01"), std::string("a@b@c=1"),
        std::string("a=") + std::string(257, 'x'), std::string("a=\xc3\xbc"), many,
        "a=" + std::string(255, 'x') + ",b=" + std::string(255, 'x')}) {
    EXPECT_FALSE(IsTraceState(invalid)) << invalid;
  }
}

TEST(TraceContextTest, ValidHeadersAreHandedBackAsTheyAre) {
  HttpRequest request;
  EXPECT_THAT(TraceHeaders(request), IsEmpty());
  request.headers["tracestate"] = "a=1";
  EXPECT_THAT(TraceHeaders(request), IsEmpty()) << "it means nothing alone";
  request.headers["traceparent"] = kParent;
  EXPECT_THAT(TraceHeaders(request),
              ElementsAre(Pair("traceparent", kParent), Pair("tracestate", "a=1")));
  request.headers["tracestate"] = "A";
  EXPECT_THAT(TraceHeaders(request), ElementsAre(Pair("traceparent", kParent)));
  request.headers["traceparent"] = "00-1-2-3";
  EXPECT_THAT(TraceHeaders(request), IsEmpty());
}

}  // namespace
}  // namespace ebb::server

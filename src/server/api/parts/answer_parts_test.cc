#include "src/server/api/parts/answer_parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ebb::server {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using enum PartEvent::Kind;

TEST(AnswerParts, WhatBelongsToAnotherPartClosesTheOneBefore) {
  AnswerParts parts;
  std::vector<PartEvent> events;
  parts.Add({.thought = "hm"}, &events);
  parts.Add({.content = "I look"}, &events);
  parts.Add({.calls = {{0, "a", "f", "{}"}, {1, "b", "g", ""}}}, &events);
  parts.Close(&events);
  EXPECT_THAT(events,
              ElementsAre(PartEvent{kOpened, 0}, PartEvent{kGrew, 0, "hm"}, PartEvent{kClosed, 0},
                          PartEvent{kOpened, 1}, PartEvent{kGrew, 1, "I look"},
                          PartEvent{kClosed, 1}, PartEvent{kOpened, 2}, PartEvent{kGrew, 2, "{}"},
                          PartEvent{kClosed, 2}, PartEvent{kOpened, 3}, PartEvent{kClosed, 3}));
  EXPECT_EQ(parts.parts()[3].name, "g");
  EXPECT_EQ(parts.parts()[3].call_id, "b");
}

TEST(AnswerParts, WhatGathersGrowsOnce) {
  AnswerParts parts;
  std::vector<PartEvent> events;
  for (const char* text : {"a", "b", "c"}) parts.Add({.content = text}, &events);
  EXPECT_THAT(events, ElementsAre(PartEvent{kOpened, 0}, PartEvent{kGrew, 0, "abc"}));
  events.clear();
  parts.Add({.content = "d"}, &events);
  EXPECT_THAT(events, ElementsAre(PartEvent{kGrew, 0, "d"}));
  EXPECT_EQ(parts.parts()[0].text, "abcd");
}

TEST(AnswerParts, ArgumentsOfOneCallComeTogether) {
  AnswerParts parts;
  std::vector<PartEvent> events;
  parts.Add({.calls = {{0, "a", "f", "{\"x\""}}}, &events);
  parts.Add({.calls = {{0, "", "", ": 1}"}}}, &events);
  parts.Close(&events);
  EXPECT_THAT(events, ElementsAre(PartEvent{kOpened, 0}, PartEvent{kGrew, 0, "{\"x\": 1}"},
                                  PartEvent{kClosed, 0}));
  EXPECT_EQ(parts.parts()[0].name, "f");
}

TEST(AnswerParts, NothingClosesTwice) {
  AnswerParts parts;
  std::vector<PartEvent> events;
  parts.Close(&events);
  EXPECT_THAT(events, IsEmpty());
  parts.Add({.content = "a"}, &events);
  parts.Close(&events);
  events.clear();
  parts.Close(&events);
  EXPECT_THAT(events, IsEmpty());
}

}  // namespace
}  // namespace ebb::server

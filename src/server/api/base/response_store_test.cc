#include "src/server/api/base/response_store.h"

#include <gtest/gtest.h>

#include <string>

namespace ebb::server {
namespace {

Json Input(const std::string& text) { return Json::array({{{"role", "user"}, {"content", text}}}); }
Json Response(const std::string& text) {
  return {{"output", Json::array({{{"type", "message"}, {"text", text}}})}};
}

TEST(ResponseStore, AConversationIsWhatTheResponsesBeforeHold) {
  ResponseStore store(1 << 20);
  store.Put("a", nullptr, Input("1"), Response("2"));
  store.Put("b", store.Find("a"), Input("3"), Response("4"));
  const Json items = store.Find("b")->Conversation();
  ASSERT_EQ(items.size(), 4u);
  EXPECT_EQ(items[0]["content"], "1");
  EXPECT_EQ(items[1]["text"], "2");
  EXPECT_EQ(items[2]["content"], "3");
  EXPECT_EQ(items[3]["text"], "4");
  EXPECT_EQ(store.Find("b")->response(), Response("4"));
  EXPECT_EQ(store.Find("c"), nullptr);
}

TEST(ResponseStore, TwoMayGoOnWithOne) {
  ResponseStore store(1 << 20);
  store.Put("a", nullptr, Input("1"), Response("2"));
  store.Put("b", store.Find("a"), Input("3"), Response("4"));
  store.Put("c", store.Find("a"), Input("5"), Response("6"));
  EXPECT_EQ(store.Find("b")->Conversation()[2]["content"], "3");
  EXPECT_EQ(store.Find("c")->Conversation()[2]["content"], "5");
}

TEST(ResponseStore, WhatWasNotUsedForLongestGoesFirst) {
  const size_t each = Dump(Input("1")).size() + Dump(Response("2")).size();
  ResponseStore store(2 * each);
  store.Put("a", nullptr, Input("1"), Response("2"));
  store.Put("b", nullptr, Input("1"), Response("2"));
  ASSERT_NE(store.Find("a"), nullptr);
  store.Put("c", nullptr, Input("1"), Response("2"));
  EXPECT_EQ(store.Find("b"), nullptr);
  EXPECT_NE(store.Find("a"), nullptr);
  EXPECT_NE(store.Find("c"), nullptr);
  EXPECT_EQ(store.num_bytes(), 2 * each);
}

TEST(ResponseStore, OneThatIsTooLargeIsNotKept) {
  ResponseStore store(10);
  store.Put("a", nullptr, Input("1"), Response("2"));
  EXPECT_EQ(store.Find("a"), nullptr);
  EXPECT_EQ(store.num_bytes(), 0u);
}

TEST(ResponseStore, WhoeverWentOnKeepsWhatWasDeleted) {
  ResponseStore store(1 << 20);
  store.Put("a", nullptr, Input("1"), Response("2"));
  store.Put("b", store.Find("a"), Input("3"), Response("4"));
  EXPECT_TRUE(store.Delete("a"));
  EXPECT_FALSE(store.Delete("a"));
  EXPECT_EQ(store.Find("b")->Conversation().size(), 4u);
  EXPECT_TRUE(store.Delete("b"));
  EXPECT_EQ(store.num_bytes(), 0u);
}

TEST(ResponseStore, ALongConversationGoesWithoutADeepRecursion) {
  ResponseStore store(size_t{1} << 30);
  std::string last = "0";
  store.Put(last, nullptr, Input("1"), Response("2"));
  for (int i = 1; i < 200000; ++i) {
    const std::string id = std::to_string(i);
    store.Put(id, store.Find(last), Input("1"), Response("2"));
    ASSERT_TRUE(store.Delete(last));
    last = id;
  }
  EXPECT_TRUE(store.Delete(last));
  EXPECT_EQ(store.num_bytes(), 0u);
}

}  // namespace
}  // namespace ebb::server

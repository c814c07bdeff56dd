#include "src/server/api/base/api_error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ebb::server {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(EventData, EscapesWhatSomeClientsTakeForTheEndOfALine) {
  const std::string text = "a\u2028b\u2029c\u0085d\u0080e\u009ff\u00a0g\u2027h\u20a8\u00e9";
  const std::string data = EventData(Json{{"t", text}});
  EXPECT_EQ(data,
            "{\"t\":\"a\\u2028b\\u2029c\\u0085d\\u0080e\\u009ff\u00a0g\u2027h\u20a8\u00e9\"}");
  EXPECT_EQ(Json::parse(data)["t"], text);
  EXPECT_EQ(EventData(Json(nullptr)), "null");
}

TEST(ApiErrorTest, PathsOfTheServerAreNotTold) {
  struct Message {
    const char *whole, *told;
  };
  for (const Message& m : {
           Message{"cannot write /var/tmp/ebb-1/T1: No space left on device",
                   "cannot write <path>: No space left on device"},
           Message{"/var/lib/my models/a.gguf: the file is cut off", "<path>: the file is cut off"},
           Message{"the page file in /var/tmp is not what was written: expected 1, found 2",
                   "the page file in <path>: expected 1, found 2"},
           Message{"cannot lock \"/srv/a b/ID.lock\" twice", "cannot lock \"<path>\" twice"},
           Message{"store file:/var/lib/ebb, or redis+unix:/run/redis.sock",
                   "store file:<path>, or redis+unix:<path>"},
           Message{"(in /a), not in /b", "(in <path>), not in <path>"},
       }) {
    EXPECT_EQ(WithoutPaths(m.whole), m.told);
  }
  for (const char* plain : {"", "3 / 4 of T0", "6 pages/s", "and/or", "http://127.0.0.1:80", "/",
                            "T0 holds 12 of 13 bytes: no more"}) {
    EXPECT_EQ(WithoutPaths(plain), plain);
  }
}

TEST(ApiErrorTest, TheAccessLogIsToldWhatTheClientIsNot) {
  for (const StatusCode code :
       {StatusCode::kIo, StatusCode::kCorrupt, StatusCode::kNotFound, StatusCode::kInternal,
        StatusCode::kOutOfMemory, StatusCode::kStorageFull, StatusCode::kT0Full,
        StatusCode::kT1Full, StatusCode::kContextFull}) {
    const ApiError error =
        ErrorFrom(Status(code, "cannot read /srv/secret/T1: Input/output error"));
    EXPECT_EQ(error.message, "cannot read <path>: Input/output error");
    const HttpAnswer answer = ErrorAnswer(error);
    EXPECT_THAT(answer.body, Not(HasSubstr("secret")));
    EXPECT_THAT(answer.detail, HasSubstr("/srv/secret/T1"));
  }
  EXPECT_EQ(ErrorAnswer(Invalid("seed: expected an integer", "seed")).detail, "invalid_value");
}

TEST(ApiErrorTest, WhatTheRequestSaidIsRepeatedAsItIs) {
  const std::string message = "unknown policy \"/etc/passwd\"";
  EXPECT_EQ(ErrorFrom(InvalidArgument(message)).message, message);
}

TEST(ApiErrorTest, EachCodeOfTheLibraryHasItsStatusOfHttp) {
  struct Case {
    StatusCode code;
    int status;
    std::string name;
  };
  using enum StatusCode;
  for (const Case& one :
       {Case{kInvalidArgument, 400, "invalid_value"}, Case{kUnsupported, 400, "unsupported"},
        Case{kContextFull, 400, "request_too_large"}, Case{kT0Full, 400, "request_too_large"},
        Case{kT1Full, 400, "request_too_large"}, Case{kOutOfMemory, 400, "request_too_large"},
        Case{kStorageFull, 400, "request_too_large"}, Case{kQueueFull, 503, "queue_full"},
        Case{kDeadlineExceeded, 503, "deadline_exceeded"}, Case{kCancelled, 503, "cancelled"},
        Case{kIo, 500, "internal_error"}, Case{kInternal, 500, "internal_error"}}) {
    const ApiError error = ErrorFrom(Status(one.code, "why"));
    EXPECT_EQ(error.status, one.status) << one.name;
    EXPECT_EQ(error.code, one.name);
    EXPECT_EQ(error.is_final, one.code == kDeadlineExceeded);
  }
}

TEST(ApiErrorTest, TheFieldOfAnErrorIsItsParam) {
  for (const Status& status : {InvalidArgument("messages[0].role", "expected: user"),
                               Unsupported("messages[0].role", "expected: user")}) {
    const ApiError error = ErrorFrom(status);
    EXPECT_EQ(error.param, "messages[0].role");
    EXPECT_EQ(error.message, "messages[0].role: expected: user");
  }
  EXPECT_EQ(ErrorFrom(InvalidArgument("tools: a word of the sentence")).param, "");
}

}  // namespace
}  // namespace ebb::server

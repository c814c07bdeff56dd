#include "ebb/status.h"

#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ebb {
namespace {

TEST(Status, DefaultIsOkAndSaysSo) {
  const Status status;
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(status.ToString(), "ok");
  EXPECT_TRUE(OkStatus().ok());
}

struct Case {
  Status (*make)(std::string);
  StatusCode code;
  const char* text;
};

TEST(Status, EveryErrorKeepsItsCodeAndBeginsWithItsName) {
  const Case cases[] = {
      {InvalidArgument, StatusCode::kInvalidArgument, "invalid argument: why"},
      {NotFound, StatusCode::kNotFound, "not found: why"},
      {Unsupported, StatusCode::kUnsupported, "unsupported: why"},
      {Corrupt, StatusCode::kCorrupt, "corrupt: why"},
      {ContextFull, StatusCode::kContextFull, "context full: why"},
      {T0Full, StatusCode::kT0Full, "T0 full: why"},
      {T1Full, StatusCode::kT1Full, "T1 full: why"},
      {OutOfMemory, StatusCode::kOutOfMemory, "out of memory: why"},
      {StorageFull, StatusCode::kStorageFull, "storage full: why"},
      {QueueFull, StatusCode::kQueueFull, "queue full: why"},
      {DeadlineExceeded, StatusCode::kDeadlineExceeded, "deadline exceeded: why"},
      {IoError, StatusCode::kIo, "input/output error: why"},
      {Cancelled, StatusCode::kCancelled, "cancelled: why"},
      {Internal, StatusCode::kInternal, "internal error: why"},
  };
  for (const Case& c : cases) {
    const Status status = c.make("why");
    EXPECT_FALSE(status.ok());
    EXPECT_EQ(status.code(), c.code);
    EXPECT_EQ(status.message(), "why");
    EXPECT_EQ(status.field(), "");
    EXPECT_EQ(status.Text(), "why");
    EXPECT_EQ(status.ToString(), c.text);
  }
}

TEST(Status, KeepsTheFieldApartFromTheSentence) {
  for (const Status& status :
       {InvalidArgument("top_p", "expected less"), Unsupported("top_p", "expected less"),
        Status(StatusCode::kIo, "top_p", "expected less")}) {
    EXPECT_EQ(status.field(), "top_p");
    EXPECT_EQ(status.message(), "expected less");
    EXPECT_EQ(status.Text(), "top_p: expected less");
  }
  EXPECT_EQ(InvalidArgument("top_p", "expected less").ToString(),
            "invalid argument: top_p: expected less");
}

TEST(Status, APrefixKeepsCodeAndField) {
  const Status status = Unsupported("tools", "none").WithPrefix("a.gguf");
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_EQ(status.field(), "tools");
  EXPECT_EQ(status.message(), "a.gguf: none");
}

TEST(Status, LimitsAreThoseThatRoomWouldEnd) {
  using enum StatusCode;
  for (const StatusCode code :
       {kContextFull, kT0Full, kT1Full, kOutOfMemory, kStorageFull, kQueueFull}) {
    EXPECT_TRUE(IsLimit(code)) << StatusCodeName(code);
  }
  for (const StatusCode code : {kOk, kInvalidArgument, kNotFound, kUnsupported, kCorrupt,
                                kDeadlineExceeded, kIo, kCancelled, kInternal}) {
    EXPECT_FALSE(IsLimit(code)) << StatusCodeName(code);
  }
}

TEST(Status, CodesOutsideTheEnumHaveANameToo) {
  EXPECT_EQ(StatusCodeName(static_cast<StatusCode>(99)), "unknown");
}

Result<int> Half(int x) {
  if (x % 2 != 0) return InvalidArgument("odd");
  return x / 2;
}

Result<int> Quarter(int x) {
  EBB_ASSIGN_OR_RETURN(const int half, Half(x));
  EBB_ASSIGN_OR_RETURN(const int quarter, Half(half));
  return quarter;
}

Status CheckQuarter(int x) {
  EBB_RETURN_IF_ERROR(Quarter(x).status());
  return OkStatus();
}

TEST(Result, HoldsAValueOrTheStatusThatSaysWhyNot) {
  EXPECT_TRUE(Half(4).ok());
  EXPECT_EQ(*Half(4), 2);
  EXPECT_TRUE(Half(4).status().ok());
  EXPECT_FALSE(Half(3).ok());
  EXPECT_EQ(Half(3).status().message(), "odd");
}

TEST(Result, MacrosPassTheFirstErrorOn) {
  EXPECT_EQ(*Quarter(12), 3);
  EXPECT_EQ(Quarter(6).status().message(), "odd");
  EXPECT_TRUE(CheckQuarter(8).ok());
  EXPECT_EQ(CheckQuarter(7).code(), StatusCode::kInvalidArgument);
}

struct Refusal {
  int reason = 0;
};

Result<int, Refusal> Third(int x) {
  if (x % 3 != 0) return Refusal{x % 3};
  return x / 3;
}

Result<int, Refusal> Ninth(int x) {
  EBB_ASSIGN_OR_RETURN(const int third, Third(x));
  return Third(third);
}

TEST(Result, PassesErrorsOfAnotherTypeOn) {
  EXPECT_EQ(*Ninth(18), 2);
  ASSERT_FALSE(Ninth(7).ok());
  EXPECT_EQ(Ninth(7).error().reason, 1);
  EXPECT_EQ(Ninth(15).error().reason, 2);
}

TEST(Result, MovesValuesThatCannotBeCopied) {
  Result<std::unique_ptr<int>> result(std::make_unique<int>(7));
  const std::unique_ptr<int> value = *std::move(result);
  EXPECT_EQ(*value, 7);
}

TEST(ResultDeathTest, ReadingTheValueOfAFailedResultAborts) { EXPECT_DEATH((void)*Half(3), ""); }

}  // namespace
}  // namespace ebb

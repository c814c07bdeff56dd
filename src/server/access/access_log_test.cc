#include "src/server/access/access_log.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/temp_folder.h"

namespace ebb::server {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

AccessRecord Sample() {
  using namespace std::chrono_literals;
  AccessRecord record = {.time = std::chrono::system_clock::time_point(1764328927123ms),
                         .request_id = "req-1",
                         .key = "alice",
                         .remote = "::1",
                         .method = "POST",
                         .path = "/v1/chat/completions",
                         .status = 200,
                         .total_seconds = 1.5,
                         .request_bytes = 10,
                         .response_bytes = 200,
                         .is_complete = true};
  record.usage.emplace();
  record.usage->Add({.finish = FinishReason::kStop,
                     .prompt_tokens = 30,
                     .cached_tokens = 20,
                     .generated_tokens = 7,
                     .thought_tokens = 4,
                     .num_parks = 1,
                     .queue_seconds = 0.25,
                     .first_token_seconds = 0.5},
                    /*is_first=*/true);
  return record;
}

TEST(AccessRecordTest, AJsonLineIsAnObject) {
  const json line = json::parse(FormatRecord(Sample(), AccessLogFormat::kJson));
  EXPECT_EQ(line, (json{{"time", "2025-11-28T11:22:07.123Z"},
                        {"request_id", "req-1"},
                        {"key", "alice"},
                        {"remote", "::1"},
                        {"method", "POST"},
                        {"path", "/v1/chat/completions"},
                        {"status", 200},
                        {"prompt_tokens", 30},
                        {"cached_tokens", 20},
                        {"generated_tokens", 7},
                        {"thought_tokens", 4},
                        {"parks", 1},
                        {"finish", "stop"},
                        {"queue_seconds", 0.25},
                        {"first_token_seconds", 0.5},
                        {"total_seconds", 1.5},
                        {"request_bytes", 10},
                        {"response_bytes", 200},
                        {"complete", true}}));
}

TEST(AccessRecordTest, ATextLineHasNamesAndValues) {
  EXPECT_EQ(FormatRecord(Sample(), AccessLogFormat::kText),
            "time=2025-11-28T11:22:07.123Z request_id=req-1 key=alice remote=::1 method=POST "
            "path=/v1/chat/completions status=200 prompt_tokens=30 cached_tokens=20 "
            "generated_tokens=7 thought_tokens=4 parks=1 finish=stop queue_seconds=0.25 "
            "first_token_seconds=0.5 total_seconds=1.5 request_bytes=10 response_bytes=200 "
            "complete=true");
}

TEST(AccessRecordTest, ChoicesAreSummedAndTheirPromptCountsOnce) {
  AccessUsage usage;
  usage.Add({.finish = FinishReason::kStop,
             .prompt_tokens = 5,
             .cached_tokens = 1,
             .generated_tokens = 2,
             .queue_seconds = 3,
             .first_token_seconds = 4},
            /*is_first=*/true);
  usage.Add({.finish = FinishReason::kLength,
             .prompt_tokens = 5,
             .cached_tokens = 4,
             .generated_tokens = 3,
             .queue_seconds = 1,
             .first_token_seconds = 2},
            /*is_first=*/false);
  usage.Add({.finish = FinishReason::kStop, .prompt_tokens = 5, .queue_seconds = 9},
            /*is_first=*/false);
  EXPECT_EQ(usage.prompt_tokens, 5);
  EXPECT_EQ(usage.cached_tokens, 1);
  EXPECT_EQ(usage.generated_tokens, 5);
  EXPECT_EQ(usage.finish, "stop,length");
  EXPECT_EQ(usage.queue_seconds, 1);
  EXPECT_EQ(usage.first_token_seconds, 2);
}

TEST(AccessRecordTest, AClientCannotForgeALineNorDriveATerminal) {
  const std::string hostile[] = {"/a\nstatus=200 path=/forged",
                                 "/\x1b[2J\x07\r\x7f\x9b",
                                 "/\xff\xfe",
                                 "/a b=\"c\"",
                                 "/\xe2\x80\xae\xc2\x9b",
                                 std::string("/\0x", 3),
                                 "/" + std::string(20'000, '\xff')};
  for (const std::string& path : hostile) {
    AccessRecord record = Sample();
    record.path = record.error = path;
    for (const AccessLogFormat format : {AccessLogFormat::kText, AccessLogFormat::kJson}) {
      const std::string line = FormatRecord(record, format);
      for (const char c : line) EXPECT_TRUE(c >= ' ' && c <= '~') << static_cast<int>(c);
      EXPECT_LE(line.size(), 4096u);
    }
    const std::string text = FormatRecord(record, AccessLogFormat::kText);
    EXPECT_THAT(text, HasSubstr(" path=\"")) << "it is quoted";
    EXPECT_TRUE(json::accept(FormatRecord(record, AccessLogFormat::kJson)));
  }
}

class AccessLogTest : public testing::Test {
 protected:
  [[nodiscard]] std::string path() const { return folder_.File("access.log"); }
  static std::shared_ptr<AccessLog> Open(const std::string& where) {
    auto log = AccessLog::Open(where, AccessLogFormat::kText);
    EXPECT_TRUE(log.ok()) << log.status().ToString();
    return *log;
  }
  static void Write(AccessLog* log, const std::string& id) {
    AccessRecord record = Sample();
    record.request_id = id;
    log->Write(record);
  }
  // Returns the request ids of the lines of a file, in order.
  static std::vector<std::string> IdsIn(const std::string& path) {
    std::ifstream file(path);
    std::vector<std::string> ids;
    for (std::string line; std::getline(file, line);) {
      const size_t begin = line.find("request_id=");
      ids.push_back(begin == std::string::npos
                        ? line
                        : line.substr(begin + 11, line.find(' ', begin) - begin - 11));
    }
    return ids;
  }
  static void AwaitLines(const std::string& path, size_t number) {
    while (IdsIn(path).size() < number) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  TempFolder folder_;
};

TEST_F(AccessLogTest, LinesAreAppended) {
  std::ofstream(path()) << "before\n";
  for (const char* id : {"a", "b"}) Write(Open(path()).get(), id);
  EXPECT_THAT(IdsIn(path()), ElementsAre("before", "a", "b"));
}

TEST_F(AccessLogTest, AFileThatWasMovedAwayIsMadeAgain) {
  const auto log = Open(path());
  Write(log.get(), "a");
  AwaitLines(path(), 1);
  std::filesystem::rename(path(), path() + ".1");
  Write(log.get(), "b");
  AwaitLines(path() + ".1", 2);
  ASSERT_TRUE(log->Reopen().ok());
  Write(log.get(), "c");
  AwaitLines(path(), 1);
  EXPECT_THAT(IdsIn(path() + ".1"), ElementsAre("a", "b"));
  EXPECT_THAT(IdsIn(path()), ElementsAre("c"));
}

TEST_F(AccessLogTest, AFileThatWasTruncatedIsGoneOnWithFromItsBeginning) {
  const auto log = Open(path());
  Write(log.get(), "a");
  AwaitLines(path(), 1);
  std::filesystem::resize_file(path(), 0);
  Write(log.get(), "b");
  AwaitLines(path(), 1);
  EXPECT_THAT(IdsIn(path()), ElementsAre("b"));
}

TEST_F(AccessLogTest, WhereItCannotBeOpenedAgainTheOldFileIsUsedOn) {
  const std::string folder = folder_.File("logs");
  std::filesystem::create_directory(folder);
  const auto log = Open(folder + "/access.log");
  std::filesystem::rename(folder, folder + "-moved");
  EXPECT_EQ(log->Reopen().code(), StatusCode::kIo);
  Write(log.get(), "a");
  AwaitLines(folder + "-moved/access.log", 1);
}

TEST_F(AccessLogTest, AFileThatCannotBeOpenedIsAnError) {
  for (const std::string& where : {folder_.File("no/such/folder"), folder_.File("")}) {
    const auto log = AccessLog::Open(where, AccessLogFormat::kText);
    ASSERT_FALSE(log.ok()) << where;
    EXPECT_EQ(log.status().code(), StatusCode::kIo);
    EXPECT_THAT(log.status().message(), HasSubstr("access log"));
  }
  const std::string fifo = folder_.File("fifo");
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_FALSE(AccessLog::Open(fifo, AccessLogFormat::kText).ok()) << "nothing reads it";
}

TEST_F(AccessLogTest, AFullDiskLosesLinesAndNothingElse) {
  const auto log = Open("/dev/full");
  for (int i = 0; i < 10; ++i) Write(log.get(), "a");
  while (log->num_dropped() < 10) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

TEST_F(AccessLogTest, BehindALineThatWasCutOffTheNextOneBeginsAnew) {
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto log = Open(path());
  rlimit small = before;
  small.rlim_cur = 20;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  Write(log.get(), "lost");
  while (log->num_dropped() < 1) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  Write(log.get(), "whole");
  AwaitLines(path(), 2);
  const auto ids = IdsIn(path());
  EXPECT_THAT(ids[0], StartsWith("time="));
  EXPECT_EQ(ids[1], "whole");
}

TEST_F(AccessLogTest, APipeThatIsNotReadDelaysNoWriterAndNoEnd) {
  const std::string fifo = folder_.File("fifo");
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  const int reader = open(fifo.c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  auto log = Open(fifo);
  // Writes more lines than the pipe and the queue hold, so that some must be dropped.
  for (int i = 0; i < 40'000; ++i) Write(log.get(), "a");
  EXPECT_GT(log->num_dropped(), 0u);
  log.reset();
  close(reader);
}

}  // namespace
}  // namespace ebb::server

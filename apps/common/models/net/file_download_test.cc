// Tests downloads from a test server that fails in the ways servers and networks do.
#include "apps/common/models/net/file_download.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "apps/common/terminal/interrupt.h"
#include "tests/support/hub/fake_hub.h"
#include "tests/support/hub/http_server.h"
#include "tests/support/temp_folder.h"

namespace ebb::cli {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

std::string FileBytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class FileDownloadTest : public testing::Test {
 protected:
  FileDownloadTest()
      : server_([this](const SeenRequest& request) {
          ServerAnswer answer = {.headers = {{"ETag", etag_}}, .body = content_};
          if (honours_ranges_) ApplyRange(request, etag_, &answer);
          if (tamper_) tamper_(request, &answer);
          ++num_requests_;
          return answer;
        }) {}
  void SetUp() override { (void)InstallInterruptHandler(); }
  void TearDown() override {
    std::signal(SIGINT, SIG_DFL);
    std::signal(SIGTERM, SIG_DFL);
  }
  Result<std::string> Fetch() {
    HttpClient client(
        {.connect_seconds = 2,
         .stall_seconds = 1,
         .attempts = 3,
         .first_wait = std::chrono::milliseconds(1),
         .most_wait = std::chrono::seconds(2),
         .say = [this](std::string_view text) { said_ += std::string(text) + "\n"; }});
    download_.url = server_.url() + "/tide.gguf";
    download_.path = Path();
    return DownloadFile(&client, download_);
  }
  void WithHash() {
    download_.sha256 = HexSha256(content_);
    download_.bytes = content_.size();
  }
  [[nodiscard]] std::string Path() const { return folder_.File("tide.gguf"); }
  [[nodiscard]] std::string Incomplete() const { return Path() + ".incomplete"; }
  void ExpectTheFileAndNothingElse() {
    EXPECT_EQ(FileBytes(Path()), content_);
    EXPECT_EQ(std::distance(fs::directory_iterator(folder_.File("")), {}), 1);
  }
  void ExpectNothing() {
    EXPECT_EQ(std::distance(fs::directory_iterator(folder_.File("")), {}), 0);
  }
  // Changes the server's first answer only.
  void TamperOnce(std::function<void(ServerAnswer*)> change) {
    tamper_ = [this, change = std::move(change)](const SeenRequest&, ServerAnswer* answer) {
      if (num_requests_ == 0) change(answer);
    };
  }

  TempFolder folder_;
  std::string content_ = FakeGguf(300'000);
  std::string etag_ = "\"one\"";
  bool honours_ranges_ = true;
  std::function<void(const SeenRequest&, ServerAnswer*)> tamper_;
  int num_requests_ = 0;
  FileDownload download_;
  std::string said_;
  TestHttpServer server_;  // ends before what its handler reads
};

TEST_F(FileDownloadTest, PutsTheFileInItsPlaceAndReturnsItsHash) {
  uint64_t last = 0;
  download_.on_progress = [&](uint64_t done, uint64_t total) {
    EXPECT_EQ(total, content_.size());
    EXPECT_GE(done, last);
    last = done;
  };
  const auto hash = Fetch();
  ASSERT_TRUE(hash.ok()) << hash.status().message();
  EXPECT_EQ(*hash, HexSha256(content_));
  EXPECT_EQ(last, content_.size());
  ExpectTheFileAndNothingElse();
}

TEST_F(FileDownloadTest, GoesOnWhereTheConnectionWasDropped) {
  WithHash();
  TamperOnce([](ServerAnswer* answer) { answer->close_after = 100'000; });
  const auto hash = Fetch();
  ASSERT_TRUE(hash.ok()) << hash.status().message();
  const auto requests = server_.TakeRequests();
  ASSERT_EQ(requests.size(), 2U);
  EXPECT_EQ(requests[1].Header("range"), "bytes=100000-");
  EXPECT_EQ(requests[1].Header("if-range"), "\"one\"");
  EXPECT_THAT(said_, HasSubstr("trying again"));
  ExpectTheFileAndNothingElse();
}

TEST_F(FileDownloadTest, AnotherProcessGoesOnWithTheBytesThatAreThere) {
  tamper_ = [](const SeenRequest&, ServerAnswer* answer) { answer->close_after = 1000; };
  const Status status = Fetch().status();
  EXPECT_EQ(status.code(), StatusCode::kIo);
  EXPECT_THAT(status.message(), HasSubstr("3000 bytes are kept, and the next try goes on"));
  EXPECT_FALSE(fs::exists(Path()));
  tamper_ = nullptr;
  (void)server_.TakeRequests();
  ASSERT_TRUE(Fetch().ok());
  EXPECT_EQ(server_.TakeRequests().at(0).Header("range"), "bytes=3000-");
  ExpectTheFileAndNothingElse();
}

TEST_F(FileDownloadTest, BytesOfAnotherVersionAreNotContinued) {
  tamper_ = [](const SeenRequest&, ServerAnswer* answer) { answer->close_after = 1000; };
  EXPECT_FALSE(Fetch().ok());
  tamper_ = nullptr;
  content_ = FakeGguf(300'000, '!');
  etag_ = "\"two\"";
  ASSERT_TRUE(Fetch().ok());  // If-Range: the server sends all of it
  ExpectTheFileAndNothingElse();
}

TEST_F(FileDownloadTest, WithoutAnEntityTagAndAHashNothingIsContinued) {
  etag_ = "W/\"weak\"";
  tamper_ = [](const SeenRequest&, ServerAnswer* answer) { answer->close_after = 1000; };
  EXPECT_FALSE(Fetch().ok());
  tamper_ = nullptr;
  (void)server_.TakeRequests();
  ASSERT_TRUE(Fetch().ok());
  EXPECT_EQ(server_.TakeRequests().at(0).Header("range"), "");
  ExpectTheFileAndNothingElse();
}

TEST_F(FileDownloadTest, AServerThatIgnoresTheRangeSendsItAllOnceMore) {
  WithHash();
  honours_ranges_ = false;
  TamperOnce([](ServerAnswer* answer) { answer->close_after = 100'000; });
  const auto hash = Fetch();
  ASSERT_TRUE(hash.ok()) << hash.status().message();
  ExpectTheFileAndNothingElse();
}

TEST_F(FileDownloadTest, AnAnswerOfAnotherRangeStartsOver) {
  WithHash();
  std::ofstream(Incomplete()) << content_.substr(0, 5000);
  TamperOnce([](ServerAnswer* answer) {
    for (auto& [name, value] : answer->headers) {
      if (name == "Content-Range") value = "bytes 4000-299999/300000";
    }
  });
  const auto hash = Fetch();
  ASSERT_TRUE(hash.ok()) << hash.status().message();
  EXPECT_EQ(server_.TakeRequests().at(1).Header("range"), "");
  ExpectTheFileAndNothingElse();
}

TEST_F(FileDownloadTest, ARangeBehindTheEndStartsOver) {
  // The download knows the hash but not the size, and PATH.incomplete is longer than the file.
  download_.sha256 = HexSha256(content_);
  std::ofstream(Incomplete()) << content_ << "more";
  const auto hash = Fetch();
  ASSERT_TRUE(hash.ok()) << hash.status().message();
  ExpectTheFileAndNothingElse();
}

TEST_F(FileDownloadTest, WhatIsWholeAlreadyNeedsNoRequest) {
  WithHash();
  std::ofstream(Incomplete()) << content_;
  ASSERT_TRUE(Fetch().ok());
  EXPECT_EQ(server_.TakeRequests().size(), 0U);
  ExpectTheFileAndNothingElse();
}

TEST_F(FileDownloadTest, AFileOfAnotherHashIsRemoved) {
  WithHash();
  download_.sha256 = std::string(64, '0');
  const Status status = Fetch().status();
  EXPECT_EQ(status.code(), StatusCode::kCorrupt);
  EXPECT_THAT(status.message(), HasSubstr("expected SHA-256 000"));
  EXPECT_THAT(status.message(), HasSubstr("what was fetched is removed"));
  ExpectNothing();
}

TEST_F(FileDownloadTest, WrongBytesOfAnEarlierTryAreFoundByTheHash) {
  WithHash();
  std::ofstream(Incomplete()) << "GGUF" << std::string(5000, 'x');
  EXPECT_EQ(Fetch().status().code(), StatusCode::kCorrupt);
  ExpectNothing();
  ASSERT_TRUE(Fetch().ok());
  ExpectTheFileAndNothingElse();
}

TEST_F(FileDownloadTest, AFileOfAnotherSizeIsRefusedBeforeItIsFetched) {
  WithHash();
  download_.bytes += 1;
  const Status status = Fetch().status();
  EXPECT_EQ(status.code(), StatusCode::kCorrupt);
  EXPECT_THAT(status.message(), HasSubstr("expected 300001 bytes, found 300000"));
  ExpectNothing();
}

TEST_F(FileDownloadTest, AServerThatSendsMoreIsCutOff) {
  WithHash();
  TamperOnce([](ServerAnswer* answer) {
    answer->sends_length = false;
    answer->body += std::string(100'000, 'x');
  });
  const Status status = Fetch().status();
  EXPECT_EQ(status.code(), StatusCode::kCorrupt);
  EXPECT_THAT(status.message(), HasSubstr("expected 300000 bytes, found more"));
  ExpectNothing();
}

TEST_F(FileDownloadTest, WithoutALengthAndAHashNothingIsTaken) {
  // Without a length, a broken connection would look like the end of the file.
  TamperOnce([](ServerAnswer* answer) { answer->sends_length = false; });
  EXPECT_EQ(Fetch().status().code(), StatusCode::kUnsupported);
  ExpectNothing();
}

TEST_F(FileDownloadTest, APageIsNoGgufFile) {
  content_ = "<!DOCTYPE html>" + std::string(200'000, ' ');
  const Status status = Fetch().status();
  EXPECT_EQ(status.code(), StatusCode::kCorrupt);
  EXPECT_THAT(status.message(), HasSubstr("is no GGUF file"));
  ExpectNothing();
  content_ = "GG";
  EXPECT_EQ(Fetch().status().code(), StatusCode::kCorrupt);
  ExpectNothing();
}

TEST_F(FileDownloadTest, WaitsAsLongAsTheServerAsks) {
  TamperOnce([](ServerAnswer* answer) {
    answer->status = 429;
    answer->headers.emplace_back("Retry-After", "1");
  });
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_TRUE(Fetch().ok());
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(990));
  EXPECT_THAT(said_, HasSubstr("answered 429; trying again in 1.0 s"));
  ExpectTheFileAndNothingElse();
}

TEST_F(FileDownloadTest, DoesNotWaitForHours) {
  TamperOnce([](ServerAnswer* answer) {
    answer->status = 429;
    answer->headers.emplace_back("Retry-After", "7200");
  });
  const Status status = Fetch().status();
  EXPECT_EQ(status.code(), StatusCode::kIo);
  EXPECT_THAT(status.message(), HasSubstr("asks to wait 7200 s"));
  ExpectNothing();
}

TEST_F(FileDownloadTest, TriesAFewTimesOnly) {
  tamper_ = [](const SeenRequest&, ServerAnswer* answer) { answer->status = 503; };
  EXPECT_THAT(Fetch().status().message(), HasSubstr("answered 503"));
  EXPECT_EQ(server_.TakeRequests().size(), 3U);
  tamper_ = [](const SeenRequest&, ServerAnswer* answer) { answer->status = 404; };
  EXPECT_THAT(Fetch().status().message(), HasSubstr("answered 404"));
  EXPECT_EQ(server_.TakeRequests().size(), 1U);
  ExpectNothing();
}

TEST_F(FileDownloadTest, GivesUpAServerThatStallsAndGoesOn) {
  WithHash();
  TamperOnce([](ServerAnswer* answer) { answer->stall_after = 50'000; });
  const auto hash = Fetch();
  ASSERT_TRUE(hash.ok()) << hash.status().message();
  EXPECT_EQ(server_.TakeRequests().at(1).Header("range"), "bytes=50000-");
  EXPECT_THAT(said_, HasSubstr("too slow"));
  ExpectTheFileAndNothingElse();
}

TEST_F(FileDownloadTest, AFullDiskKeepsWhatThereIs) {
  WithHash();
  rlimit before = {};
  getrlimit(RLIMIT_FSIZE, &before);
  rlimit limit = before;
  limit.rlim_cur = 100'000;
  setrlimit(RLIMIT_FSIZE, &limit);
  const Status status = Fetch().status();
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(status.code(), StatusCode::kIo);
  EXPECT_THAT(status.message(), HasSubstr(".incomplete: File too large; 100000 bytes are kept"));
  EXPECT_EQ(server_.TakeRequests().size(), 1U);
  EXPECT_FALSE(fs::exists(Path()));
  ASSERT_TRUE(Fetch().ok());
  EXPECT_EQ(server_.TakeRequests().at(0).Header("range"), "bytes=100000-");
  ExpectTheFileAndNothingElse();
}

TEST_F(FileDownloadTest, ADiskTooSmallIsFoundBeforeItIsFull) {
  download_.sha256 = HexSha256(content_);
  tamper_ = [](const SeenRequest&, ServerAnswer* answer) {
    answer->sends_length = false;
    answer->headers.emplace_back("Content-Length", "9000000000000000000");
  };
  const Status status = Fetch().status();
  EXPECT_EQ(status.code(), StatusCode::kIo);
  EXPECT_THAT(status.message(), HasSubstr("of free disk space, found "));
  ExpectNothing();
}

TEST_F(FileDownloadTest, CtrlCKeepsWhatThereIs) {
  WithHash();
  TamperOnce([](ServerAnswer* answer) {
    answer->stall_after = 50'000;
    answer->before_body = [] { raise(SIGINT); };
  });
  const Status status = Fetch().status();
  EXPECT_EQ(status.code(), StatusCode::kCancelled);
  EXPECT_FALSE(fs::exists(Path()));
}

TEST_F(FileDownloadTest, ARedirectToAFileIsRefused) {
  for (const char* place : {"file:///etc/passwd", "ftp://127.0.0.1/tide.gguf", "javascript:x"}) {
    tamper_ = [&](const SeenRequest&, ServerAnswer* answer) {
      *answer = {.status = 302, .headers = {{"Location", place}}};
    };
    const Status status = Fetch().status();
    EXPECT_EQ(status.code(), StatusCode::kIo);
    EXPECT_THAT(status.message(), HasSubstr("redirects to "));
    ExpectNothing();
  }
}

TEST_F(FileDownloadTest, ALoopOfRedirectsEnds) {
  tamper_ = [](const SeenRequest&, ServerAnswer* answer) {
    *answer = {.status = 307, .headers = {{"Location", "/tide.gguf"}}};
  };
  EXPECT_THAT(Fetch().status().message(), HasSubstr("redirects more than 10 times"));
  EXPECT_EQ(server_.TakeRequests().size(), 11U);
  ExpectNothing();
}

TEST_F(FileDownloadTest, TheTokenStaysWithItsHost) {
  TestHttpServer other([this](const SeenRequest&) { return ServerAnswer{.body = content_}; });
  tamper_ = [&](const SeenRequest& request, ServerAnswer* answer) {
    // First to another path of the same host, then to another host.
    const bool is_first = request.target == "/tide.gguf";
    *answer = {.status = 302,
               .headers = {{"Location", is_first ? "/there" : other.url() + "/elsewhere"}}};
  };
  download_.token = "hf_secret";
  ASSERT_TRUE(Fetch().ok());
  const auto requests = server_.TakeRequests();
  ASSERT_EQ(requests.size(), 2U);
  EXPECT_EQ(requests[0].Header("authorization"), "Bearer hf_secret");
  EXPECT_EQ(requests[1].Header("authorization"), "Bearer hf_secret");
  const auto elsewhere = other.TakeRequests();
  ASSERT_EQ(elsewhere.size(), 1U);
  EXPECT_EQ(elsewhere[0].Header("authorization"), "");
}

TEST_F(FileDownloadTest, AServerThatIsNotThereIsNotAskedTwice) {
  HttpClient client({.attempts = 3, .first_wait = std::chrono::milliseconds(1)});
  download_.path = Path();
  download_.url = "http://127.0.0.1:1/tide.gguf";
  EXPECT_THAT(DownloadFile(&client, download_).status().message(), HasSubstr("127.0.0.1:1: "));
  ExpectNothing();
}

TEST(HttpClientTest, OriginsAreSchemeHostAndPort) {
  EXPECT_EQ(OriginOf("HTTPS://Example.org/a"), "https://example.org:443");
  EXPECT_EQ(OriginOf("http://example.org:8080/a?b"), "http://example.org:8080");
  EXPECT_EQ(OriginOf("file:///etc/passwd"), "");
  for (const char* odd :
       {"no url", "https://", "https://user@a.org/", "https://a.org:/x", "https://a.org:x/",
        "https://a%2eorg/", "https://a.org\\@b.org/", "https://a.org/b c", "https://a.org\n/",
        "https://a.org#@b.org:1:2", "https://[::1]/", "//a.org/", "https:/a.org"}) {
    const bool is_plain = std::string_view(odd).find('#') != std::string_view::npos;
    EXPECT_EQ(OriginOf(odd), is_plain ? "https://a.org:443" : "") << odd;
  }
  EXPECT_EQ(EscapedPath("a b/c#d?e%\xc3\xa4.gguf"), "a%20b/c%23d%3Fe%25%C3%A4.gguf");
}

}  // namespace
}  // namespace ebb::cli

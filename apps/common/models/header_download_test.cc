// Tests downloads of metadata alone, from a server that answers as the test says.
#include "apps/common/models/header_download.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/stat.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "apps/common/models/gguf_header.h"
#include "apps/common/terminal/interrupt.h"
#include "tests/support/hub/http_server.h"
#include "tests/support/temp_folder.h"

namespace ebb::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr size_t kMiB = size_t{1} << 20;

template <typename T>
std::string Raw(T number) {
  return {reinterpret_cast<const char*>(&number), sizeof(number)};
}
std::string Prefixed(const std::string& text) { return Raw(uint64_t{text.size()}) + text; }

// Returns metadata with a text of `text_bytes` bytes, and a table of one tensor.
std::string Metadata(size_t text_bytes) {
  return "GGUF" + Raw(uint32_t{3}) + Raw(uint64_t{1}) + Raw(uint64_t{1}) + Prefixed("a.text") +
         Raw(uint32_t{8}) + Prefixed(std::string(text_bytes, 'x')) + Prefixed("t.weight") +
         Raw(uint32_t{1}) + Raw(uint64_t{64}) + Raw(uint32_t{0}) + Raw(uint64_t{0});
}

class HeaderDownloadTest : public testing::Test {
 protected:
  void SetUp() override { (void)InstallInterruptHandler(); }
  Result<uint64_t> Download(FileDownload download = {}) {
    HttpClient client({.connect_seconds = 2,
                       .stall_seconds = 2,
                       .attempts = 3,
                       .first_wait = std::chrono::milliseconds(1)});
    download.url = server_.url() + "/tide.gguf";
    download.path = path_;
    return DownloadHeader(&client, download);
  }
  Status ErrorOf(const FileDownload& download = {}) {
    const auto bytes = Download(download);
    EXPECT_TRUE(std::filesystem::is_empty(std::filesystem::path(path_).parent_path()));
    return bytes.status();
  }
  std::vector<std::string> Ranges() {
    std::vector<std::string> ranges;
    for (const SeenRequest& request : server_.TakeRequests()) {
      ranges.push_back(request.Header("range"));
    }
    return ranges;
  }
  // Expects the metadata at the beginning of a file of the whole length that takes the space of the
  // metadata alone.
  void ExpectSparse(const std::string& metadata) {
    struct stat info = {};
    ASSERT_EQ(stat(path_.c_str(), &info), 0);
    EXPECT_EQ(static_cast<size_t>(info.st_size), content_.size());
    EXPECT_LT(static_cast<size_t>(info.st_blocks) * 512, metadata.size() + kMiB);
    std::ifstream file(path_, std::ios::binary);
    std::string beginning(metadata.size() + 100, '?');
    file.read(beginning.data(), static_cast<std::streamsize>(beginning.size()));
    EXPECT_TRUE(beginning == metadata + std::string(100, '\0'));
  }

  TempFolder folder_;
  std::string path_ = folder_.File("tide.gguf-header");
  std::string content_;
  bool honours_ranges_ = true;
  std::function<void(ServerAnswer*)> tamper_;
  TestHttpServer server_{[this](const SeenRequest& request) {
    ServerAnswer answer = {.body = content_};
    if (honours_ranges_) ApplyRange(request, "", &answer);
    if (tamper_) tamper_(&answer);
    return answer;
  }};
};

TEST_F(HeaderDownloadTest, ShortMetadataTakesOneRequest) {
  const std::string metadata = Metadata(1000);
  content_ = metadata + std::string(20 * kMiB, 'w');
  const auto bytes = Download({.bytes = content_.size()});
  ASSERT_TRUE(bytes.ok()) << bytes.status().message();
  EXPECT_EQ(*bytes, metadata.size());
  EXPECT_THAT(Ranges(), ElementsAre("bytes=0-8388607"));
  ExpectSparse(metadata);
}

TEST_F(HeaderDownloadTest, LongMetadataIsFetchedInPieces) {
  const std::string metadata = Metadata(20 * kMiB);
  content_ = metadata + std::string(30 * kMiB, 'w');
  const auto bytes = Download();
  ASSERT_TRUE(bytes.ok()) << bytes.status().message();
  EXPECT_EQ(*bytes, metadata.size());
  EXPECT_THAT(Ranges(),
              ElementsAre("bytes=0-8388607", "bytes=8388608-16777215", "bytes=16777216-33554431"));
  ExpectSparse(metadata);
}

TEST_F(HeaderDownloadTest, AServerWithoutRangesIsLeftAfterTheMetadata) {
  honours_ranges_ = false;
  for (const size_t size : {size_t{1000}, 9 * kMiB}) {
    const std::string metadata = Metadata(size);
    content_ = metadata + std::string(90 * kMiB, 'w');  // more than an answer may have
    const auto bytes = Download();
    ASSERT_TRUE(bytes.ok()) << bytes.status().message();
    EXPECT_EQ(*bytes, metadata.size());
    ExpectSparse(metadata);
  }
}

TEST_F(HeaderDownloadTest, AFileThatIsNoGgufIsRefused) {
  content_ = "<html>" + std::string(1000, ' ');
  EXPECT_EQ(ErrorOf().code(), StatusCode::kCorrupt);
  EXPECT_THAT(ErrorOf().message(), HasSubstr("/tide.gguf is no GGUF file"));
  content_ = Metadata(1000);
  content_.resize(content_.size() - 1);
  EXPECT_THAT(ErrorOf().message(), HasSubstr("/tide.gguf is no GGUF file"));
  content_ = "GGUF" + Raw(uint32_t{3}) + Raw(uint64_t{1}) + Raw(uint64_t{1}) + Prefixed("a") +
             Raw(uint32_t{99}) + std::string(9 * kMiB, 'x');
  EXPECT_THAT(ErrorOf().message(), HasSubstr("/tide.gguf is no GGUF file"));
}

TEST_F(HeaderDownloadTest, MetadataWithoutEndIsRefused) {
  content_ = Metadata(70 * kMiB);
  const Status status = ErrorOf();
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_THAT(status.message(), HasSubstr("the metadata has more than 64 MiB"));
}

TEST_F(HeaderDownloadTest, TheLengthOfTheFileMustBeKnownAndRight) {
  content_ = Metadata(1000) + std::string(1000, 'w');
  EXPECT_THAT(ErrorOf({.bytes = 3000}).message(), HasSubstr("expected 3000 bytes, found "));
  honours_ranges_ = false;
  EXPECT_THAT(ErrorOf({.bytes = 3000}).message(), HasSubstr("expected 3000 bytes, found "));
  tamper_ = [](ServerAnswer* answer) { answer->sends_length = false; };
  const Status status = ErrorOf();
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_THAT(status.message(), HasSubstr("does not say how long the file is"));
}

TEST_F(HeaderDownloadTest, AnUnsuccessfulAnswerIsExplained) {
  tamper_ = [](ServerAnswer* answer) { *answer = {.status = 404}; };
  EXPECT_THAT(ErrorOf().message(), HasSubstr("/tide.gguf answered 404"));
  EXPECT_EQ(
      ErrorOf({.explain = [](const HttpAnswer&) { return NotFound("no such file"); }}).message(),
      "no such file");
}

TEST_F(HeaderDownloadTest, ALostConnectionIsTriedAgain) {
  const std::string metadata = Metadata(1000);
  content_ = metadata + std::string(1000, 'w');
  int num_lost = 2;
  tamper_ = [&](ServerAnswer* answer) {
    if (num_lost-- > 0) answer->close_after = 100;
  };
  ASSERT_TRUE(Download().ok());
  EXPECT_THAT(Ranges(), testing::SizeIs(3));
  ExpectSparse(metadata);
}

TEST_F(HeaderDownloadTest, AWrongRangeIsRefused) {
  content_ = Metadata(9 * kMiB);
  tamper_ = [](ServerAnswer* answer) {
    answer->status = 206;
    answer->headers = {{"Content-Range", "bytes 5-9/10"}};
  };
  EXPECT_THAT(ErrorOf().message(), HasSubstr("expected the bytes from 0 on, found bytes 5-9/10"));
}

TEST(MetadataLength, IsKnownOnceAllOfItIsThere) {
  const std::string metadata = Metadata(10);
  EXPECT_EQ(MetadataLength(metadata + "weights"), metadata.size());
  for (size_t size = 0; size < metadata.size(); ++size) {
    EXPECT_EQ(MetadataLength(metadata.substr(0, size)), std::nullopt) << size;
  }
}

}  // namespace
}  // namespace ebb::cli

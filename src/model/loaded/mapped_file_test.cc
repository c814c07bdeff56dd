#include "src/model/loaded/mapped_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/temp_folder.h"

namespace ebb {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

constexpr size_t kBytes = size_t{1} << 20;

class MappedFileTest : public testing::Test {
 protected:
  MappedFileTest() { std::ofstream(path_, std::ios::binary) << std::string(kBytes, 'a'); }
  // How many bytes of the mapping are `byte`.
  static size_t Count(const MappedFile& file, char byte) {
    return static_cast<size_t>(std::ranges::count(file.bytes(), static_cast<std::byte>(byte)));
  }

  const TempFolder folder_;
  const std::string path_ = folder_.File("model.gguf");
};

TEST_F(MappedFileTest, AFileThatStaysIsUnchanged) {
  const auto file = MappedFile::Open(path_);
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  EXPECT_EQ(Count(*file, 'a'), kBytes);
  EXPECT_TRUE(file->CheckUnchanged().ok());
}

TEST_F(MappedFileTest, ATouchBehindTheEndOfATruncatedFileReadsZeros) {
  const auto file = MappedFile::Open(path_);
  ASSERT_TRUE(file.ok());
  fs::resize_file(path_, 4096);
  std::vector<std::thread> threads;
  // A sum that is used, so that the compiler keeps the reads.
  std::atomic<size_t> seen = 0;
  for (int i = 0; i < 4; ++i) threads.emplace_back([&] { seen += Count(*file, 'a'); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(seen, 4 * size_t{4096});
  EXPECT_EQ(Count(*file, '\0'), kBytes);
  const Status status = file->CheckUnchanged();
  EXPECT_EQ(status.code(), StatusCode::kIo);
  EXPECT_THAT(status.message(),
              HasSubstr("model.gguf changed while it was in use: it was truncated"));
  EXPECT_THAT(status.message(), Not(HasSubstr(folder_.File(""))));
  // Also when it has its old size again.
  fs::resize_file(path_, kBytes);
  EXPECT_FALSE(file->CheckUnchanged().ok());
}

TEST_F(MappedFileTest, ATruncatedFileIsNoticedBeforeItIsTouched) {
  const auto file = MappedFile::Open(path_);
  ASSERT_TRUE(file.ok());
  fs::resize_file(path_, 4096);
  EXPECT_THAT(file->CheckUnchanged().message(), HasSubstr("it has another size"));
}

TEST_F(MappedFileTest, AWriteIntoTheFileIsNoticed) {
  const auto file = MappedFile::Open(path_);
  ASSERT_TRUE(file.ok());
  usleep(20000);  // past the step of the file system's clock
  std::fstream(path_, std::ios::in | std::ios::out | std::ios::binary) << "b";
  EXPECT_THAT(file->CheckUnchanged().message(), HasSubstr("it was written to"));
}

TEST_F(MappedFileTest, AReplacedOrRemovedFileIsUnchanged) {
  const auto file = MappedFile::Open(path_);
  ASSERT_TRUE(file.ok());
  std::ofstream(folder_.File("other")) << "b";
  fs::rename(folder_.File("other"), path_);
  EXPECT_TRUE(file->CheckUnchanged().ok());
  fs::remove(path_);
  EXPECT_TRUE(file->CheckUnchanged().ok());
  EXPECT_EQ(Count(*file, 'a'), kBytes);
}

TEST_F(MappedFileTest, TwoMappingsAreToldApart) {
  const std::string other_path = folder_.File("other.gguf");
  std::ofstream(other_path, std::ios::binary) << std::string(kBytes, 'b');
  const auto file = MappedFile::Open(path_);
  auto other = MappedFile::Open(other_path);
  ASSERT_TRUE(file.ok() && other.ok());
  const MappedFile moved = *std::move(other);
  fs::resize_file(other_path, 0);
  EXPECT_EQ(Count(moved, '\0'), kBytes);
  EXPECT_FALSE(moved.CheckUnchanged().ok());
  EXPECT_EQ(Count(*file, 'a'), kBytes);
  EXPECT_TRUE(file->CheckUnchanged().ok());
}

TEST_F(MappedFileTest, BytesInMemoryNeverChangeAndAreNotDropped) {
  std::vector<std::byte> bytes(3 * 4096, std::byte{7});
  const MappedFile file = MappedFile::Of(bytes);
  file.Prefetch();
  file.Populate(file.bytes());
  file.Drop(file.bytes());
  EXPECT_EQ(Count(file, 7), bytes.size());
  EXPECT_TRUE(file.CheckUnchanged().ok());
}

TEST_F(MappedFileTest, WhatIsNoRegularFileIsRefusedAtOnce) {
  const std::string pipe = folder_.File("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const Status status = MappedFile::Open(pipe).status();
  EXPECT_THAT(status.message(), HasSubstr("expected a regular file, found a named pipe"));
  EXPECT_EQ(status.code(), StatusCode::kIo);
  EXPECT_EQ(status.field(), kPathField);
  EXPECT_THAT(MappedFile::Open(folder_.File("")).status().message(), HasSubstr("found a folder"));
  EXPECT_THAT(MappedFile::Open("/dev/zero").status().message(), HasSubstr("found a device"));
}

// A touch behind the end of a file that is none of MappedFile's.
void TouchAnother(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR);
  const auto* address =
      static_cast<const volatile char*>(mmap(nullptr, kBytes, PROT_READ, MAP_SHARED, fd, 0));
  if (ftruncate(fd, 0) != 0) _exit(1);
  (void)*address;
}

TEST_F(MappedFileTest, ABusErrorElsewhereEndsTheProcessAsBefore) {
  const std::string other = folder_.File("other");
  std::ofstream(other, std::ios::binary) << std::string(kBytes, 'b');
  const auto file = MappedFile::Open(path_);
  ASSERT_TRUE(file.ok());
  EXPECT_EXIT(TouchAnother(other), testing::KilledBySignal(SIGBUS), "");
}

}  // namespace
}  // namespace ebb

#include "src/io/file_replacement.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/support/temp_folder.h"

namespace ebb {
namespace {

using testing::HasSubstr;

std::span<const std::byte> Bytes(const std::string& text) { return std::as_bytes(std::span(text)); }

std::string Content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void WriteFile(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

Status Replace(const std::string& path, const std::string& text, FaultHook faults = {}) {
  EBB_ASSIGN_OR_RETURN(const auto file, FileReplacement::Create(path, std::move(faults)));
  (void)file->Write(Bytes(text));
  return file->Commit();
}

class FileReplacementTest : public testing::Test {
 protected:
  FileReplacementTest() : path_(folder_.File("file")) {}
  [[nodiscard]] bool PartExists() const { return std::filesystem::exists(path_ + ".part"); }

  TempFolder folder_;
  const std::string path_;
};

TEST_F(FileReplacementTest, ANewFileIsItsOwnersAlone) {
  ASSERT_TRUE(Replace(path_, "new").ok());
  EXPECT_EQ(Content(path_), "new");
  struct stat info = {};
  stat(path_.c_str(), &info);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  EXPECT_FALSE(PartExists());
}

TEST_F(FileReplacementTest, AFileIsReplacedAsAWholeAndKeepsItsPermissions) {
  WriteFile(path_, "a much longer old one");
  chmod(path_.c_str(), 0640);
  ASSERT_TRUE(Replace(path_, "new").ok());
  EXPECT_EQ(Content(path_), "new");
  struct stat info = {};
  stat(path_.c_str(), &info);
  EXPECT_EQ(info.st_mode & 0777, 0640u);
}

TEST_F(FileReplacementTest, MoreThanItsBufferIsWrittenInOrder) {
  std::string text;
  for (int i = 0; text.size() < (3 << 20); ++i) text += std::to_string(i);
  ASSERT_TRUE(Replace(path_, text).ok());
  EXPECT_TRUE(Content(path_) == text);
}

TEST_F(FileReplacementTest, ShortWritesAreContinued) {
  const auto faults = [](const DiskRequest& request) {
    return DiskFault{.max_bytes = request.call == DiskCall::kWrite ? size_t{3} : SIZE_MAX};
  };
  ASSERT_TRUE(Replace(path_, "0123456789", faults).ok());
  EXPECT_EQ(Content(path_), "0123456789");
}

TEST_F(FileReplacementTest, ALinkIsFollowed) {
  WriteFile(path_, "old");
  const std::string link = folder_.File("link");
  ASSERT_EQ(symlink(path_.c_str(), link.c_str()), 0);
  ASSERT_TRUE(Replace(link, "new").ok());
  EXPECT_EQ(Content(path_), "new");
  EXPECT_TRUE(std::filesystem::is_symlink(link));
}

TEST_F(FileReplacementTest, ALinkToAFileThatIsNotThereYetIsFollowed) {
  const std::string link = folder_.File("link");
  const std::string chain = folder_.File("chain");
  ASSERT_EQ(symlink("file", link.c_str()), 0);
  ASSERT_EQ(symlink(link.c_str(), chain.c_str()), 0);
  ASSERT_TRUE(Replace(chain, "new").ok());
  EXPECT_EQ(Content(path_), "new");
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_TRUE(std::filesystem::is_symlink(chain));
}

TEST_F(FileReplacementTest, ALinkToItselfIsRefusedAndStays) {
  ASSERT_EQ(symlink("file", path_.c_str()), 0);
  EXPECT_FALSE(Replace(path_, "new").ok());
  EXPECT_TRUE(std::filesystem::is_symlink(path_));
}

TEST_F(FileReplacementTest, ANewFileIsItsOwnersAloneWhateverWasLeftOver) {
  WriteFile(path_ + ".part", "left over");
  chmod((path_ + ".part").c_str(), 0644);
  ASSERT_TRUE(Replace(path_, "new").ok());
  struct stat info = {};
  stat(path_.c_str(), &info);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST_F(FileReplacementTest, WithoutACommitNothingHasChanged) {
  WriteFile(path_, "old");
  {
    const auto file = FileReplacement::Create(path_);
    ASSERT_TRUE(file.ok()) << file.status().ToString();
    ASSERT_TRUE((*file)->Write(Bytes(std::string(2 << 20, 'n'))).ok());
    EXPECT_TRUE(PartExists());
  }
  EXPECT_EQ(Content(path_), "old");
  EXPECT_FALSE(PartExists());
}

TEST_F(FileReplacementTest, EveryFailureBeforeTheRenameLeavesTheOldFile) {
  WriteFile(path_, "old");
  const struct {
    DiskCall call;
    int error;
    StatusCode code;
  } cases[] = {{DiskCall::kOpen, EACCES, StatusCode::kIo},
               {DiskCall::kOpen, ENOSPC, StatusCode::kStorageFull},
               {DiskCall::kWrite, ENOSPC, StatusCode::kStorageFull},
               {DiskCall::kWrite, EIO, StatusCode::kIo},
               {DiskCall::kSync, EIO, StatusCode::kIo},
               {DiskCall::kRename, EROFS, StatusCode::kIo}};
  for (const auto& one : cases) {
    const Status status = Replace(path_, std::string(3 << 20, 'n'), [&](const auto& request) {
      return DiskFault{.error = request.call == one.call ? one.error : 0};
    });
    EXPECT_EQ(status.code(), one.code) << status.ToString();
    EXPECT_THAT(status.message(), HasSubstr(path_));
    EXPECT_EQ(Content(path_), "old");
    EXPECT_FALSE(PartExists());
  }
}

TEST_F(FileReplacementTest, SpaceThatEndsInTheMiddleLeavesTheOldFile) {
  WriteFile(path_, "old");
  int writes = 0;
  const Status status = Replace(path_, std::string(5 << 20, 'n'), [&](const auto& request) {
    return DiskFault{.error = request.call == DiskCall::kWrite && ++writes == 3 ? ENOSPC : 0};
  });
  EXPECT_EQ(status.code(), StatusCode::kStorageFull);
  EXPECT_EQ(Content(path_), "old");
}

TEST_F(FileReplacementTest, AFolderThatCannotBeSyncedIsToldAndTheNewFileIsThere) {
  WriteFile(path_, "old");
  int syncs = 0;
  const Status status = Replace(path_, "new", [&](const auto& request) {
    return DiskFault{.error = request.call == DiskCall::kSync && ++syncs == 2 ? EIO : 0};
  });
  EXPECT_EQ(status.code(), StatusCode::kIo);
  EXPECT_EQ(Content(path_), "new");
}

TEST_F(FileReplacementTest, AFileThatNeedNotOutliveAPowerCutIsNotSynced) {
  auto file = FileReplacement::Create(path_, [](const auto& request) {
    return DiskFault{.error = request.call == DiskCall::kSync ? EIO : 0};
  });
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE((*file)->Write(std::as_bytes(std::span("new", 3))).ok());
  EXPECT_TRUE((*file)->Commit(FileReplacement::Sync::kNo).ok());
  EXPECT_EQ(Content(path_), "new");
}

TEST_F(FileReplacementTest, WhatAProcessLeftOverIsWrittenOver) {
  WriteFile(path_ + ".part", std::string(100, 'x'));
  ASSERT_TRUE(Replace(path_, "new").ok());
  EXPECT_EQ(Content(path_), "new");
  EXPECT_FALSE(PartExists());
}

TEST_F(FileReplacementTest, TwoDoNotWriteAtOnce) {
  const auto first = FileReplacement::Create(path_);
  ASSERT_TRUE(first.ok());
  const auto second = FileReplacement::Create(path_);
  EXPECT_EQ(second.status().code(), StatusCode::kIo);
  EXPECT_THAT(second.status().message(), HasSubstr("another process is writing it"));
  EXPECT_TRUE((*first)->Commit().ok());
}

TEST_F(FileReplacementTest, WhatIsNoRegularFileIsNotReplaced) {
  EXPECT_EQ(Replace(folder_.File("."), "new").code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Replace("/dev/null", "new").code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Replace(folder_.File("no/such"), "new").code(), StatusCode::kNotFound);
}

TEST_F(FileReplacementTest, APipeInThePlaceOfThePartIsNamed) {
  ASSERT_EQ(mkfifo((path_ + ".part").c_str(), 0600), 0);
  EXPECT_THAT(Replace(path_, "new").message(), HasSubstr("file.part is no regular file"));
  EXPECT_TRUE(PartExists());
}

TEST_F(FileReplacementTest, ALinkInThePlaceOfThePartIsNotFollowed) {
  const std::string victim = folder_.File("victim");
  WriteFile(victim, "precious");
  ASSERT_EQ(symlink(victim.c_str(), (path_ + ".part").c_str()), 0);
  EXPECT_FALSE(Replace(path_, "new").ok());
  EXPECT_EQ(Content(victim), "precious");
}

}  // namespace
}  // namespace ebb

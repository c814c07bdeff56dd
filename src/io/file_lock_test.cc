#include "src/io/file_lock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "src/io/file_replacement.h"
#include "tests/support/temp_folder.h"

namespace ebb {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

// Returns whether another process could take the lock.
bool IsFree(const std::string& path) {
  const pid_t child = fork();
  if (child == 0) _exit(FileLock::Take(path).ok() ? 0 : 1);
  int state = 0;
  waitpid(child, &state, 0);
  return WIFEXITED(state) && WEXITSTATUS(state) == 0;
}

TEST(FileLockTest, KeepsOthersOutUntilItEndsAndLeavesNothing) {
  const TempFolder folder;
  const std::string path = folder.File("session");
  auto lock = FileLock::Take(path);
  ASSERT_TRUE(lock.ok()) << lock.status().ToString();
  EXPECT_FALSE(IsFree(path));
  const Status second = FileLock::Take(path).status();
  EXPECT_EQ(second.code(), StatusCode::kIo);
  EXPECT_EQ(second.message(), "another process is using " + path + "; wait until it ends");
  lock->reset();
  EXPECT_TRUE(fs::is_empty(fs::path(path).parent_path()));
  EXPECT_TRUE(IsFree(path));
}

TEST(FileLockTest, OutlivesAReplacementOfTheFile) {
  const TempFolder folder;
  const std::string path = folder.File("session");
  const auto lock = FileLock::Take(path);
  ASSERT_TRUE(lock.ok());
  for (int i = 0; i < 2; ++i) {
    const auto file = FileReplacement::Create(path);
    ASSERT_TRUE(file.ok()) << file.status().ToString();
    ASSERT_TRUE((*file)->Commit().ok());
    EXPECT_FALSE(IsFree(path));
  }
}

TEST(FileLockTest, ALinkAndItsFileShareALock) {
  const TempFolder folder;
  fs::create_directory(folder.File("disk"));
  fs::create_symlink("disk/session", folder.File("link"));
  const auto lock = FileLock::Take(folder.File("link"));
  ASSERT_TRUE(lock.ok()) << lock.status().ToString();
  EXPECT_FALSE(IsFree(folder.File("disk/session")));
  EXPECT_FALSE(IsFree(folder.File("disk/../disk/session")));
  EXPECT_TRUE(IsFree(folder.File("session")));
}

TEST(FileLockTest, ALockFileThatWasLeftOverDoesNoHarm) {
  const TempFolder folder;
  const std::string path = folder.File("session");
  const pid_t child = fork();
  if (child == 0) {
    const auto lock = FileLock::Take(path);
    _exit(0);  // without the destructor
  }
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(fs::exists(path + ".lock"));
  EXPECT_TRUE(FileLock::Take(path).ok());
  EXPECT_FALSE(fs::exists(path + ".lock"));
}

TEST(FileLockTest, AFolderThatIsMissingIsNamed) {
  const TempFolder folder;
  const Status status = FileLock::Take(folder.File("no/session")).status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("no/session.lock"));
}

}  // namespace
}  // namespace ebb

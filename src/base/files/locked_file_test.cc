#include "src/base/files/locked_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "tests/support/temp_folder.h"

namespace ebb {
namespace {

TEST(LockedFile, OneHoldsItUntilItIsClosed) {
  const TempFolder folder;
  const std::string name = folder.File("lock");
  EXPECT_EQ(LockFile(name, /*flags=*/0).error, ENOENT);
  {
    const LockedFile first = LockFile(name);
    ASSERT_TRUE(first.file.is_open());
    EXPECT_TRUE(IsFileOf(first.file.get(), name));
    const LockedFile second = LockFile(name);
    EXPECT_TRUE(second.is_held);
    EXPECT_FALSE(second.file.is_open());
    std::filesystem::remove(name);
    EXPECT_FALSE(IsFileOf(first.file.get(), name));
    EXPECT_TRUE(LockFile(name).file.is_open()) << "another file has the name now";
  }
  EXPECT_TRUE(LockFile(name).file.is_open());
}

TEST(LockedFile, IsARegularFileAndNoLink) {
  const TempFolder folder;
  const std::string name = folder.File("lock"), link = folder.File("link");
  ASSERT_EQ(mkfifo(name.c_str(), 0600), 0);
  EXPECT_EQ(LockFile(name).error, EINVAL);
  std::filesystem::create_symlink(name, link);
  EXPECT_EQ(LockFile(link).error, ELOOP);
}

}  // namespace
}  // namespace ebb

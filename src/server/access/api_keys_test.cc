#include "src/server/access/api_keys.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/server/access/hashes_for_test.h"
#include "tests/support/temp_folder.h"

namespace ebb::server {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;
using testing::Not;

void Write(const std::string& path, const std::string& text, mode_t mode = 0600) {
  std::ofstream(path) << text;
  ASSERT_EQ(chmod(path.c_str(), mode), 0);
}

std::string Contents(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST(ApiKeys, AKeyIsFoundByItsTextAlone) {
  const auto ring =
      KeyRing::Parse(fmt::format("one {}\ntwo {}\n", kHashOfAbc, kHashOfNothing), "f");
  ASSERT_TRUE(ring.ok()) << ring.status().ToString();
  ASSERT_NE(ring->Find("abc"), nullptr);
  EXPECT_EQ(ring->Find("abc")->name, "one");
  EXPECT_EQ(ring->Find("")->name, "two");
  for (const char* other : {"abcd", "ab", "ABC", kHashOfAbc}) EXPECT_EQ(ring->Find(other), nullptr);
}

TEST(ApiKeys, OptionsAreLimits) {
  const auto ring =
      KeyRing::Parse(fmt::format("# who\n\n a.b_c-1\t{}  admin concurrent=2 requests-per-minute=60 "
                                 "tokens-per-minute=9000 priorities=-1..2 # and why\r\nplain {}",
                                 kHashOfAbc, kHashOfNothing),
                     "f");
  ASSERT_TRUE(ring.ok()) << ring.status().ToString();
  EXPECT_EQ(ring->size(), 2u);
  const ApiKey& key = *ring->Named("a.b_c-1");
  EXPECT_TRUE(key.is_admin);
  EXPECT_EQ(key.limits, (KeyLimits{.concurrent = 2,
                                   .requests_per_minute = 60,
                                   .tokens_per_minute = 9000,
                                   .lowest_priority = -1,
                                   .highest_priority = 2}));
  EXPECT_FALSE(ring->Named("plain")->is_admin);
  EXPECT_EQ(ring->Named("plain")->limits, KeyLimits());
  EXPECT_EQ(ring->Named("who"), nullptr);
}

TEST(ApiKeys, WhatIsWrongIsToldWithItsLine) {
  struct Case {
    std::string line;
    std::string message;
  };
  const std::string one = fmt::format("one {}", kHashOfAbc);
  const Case cases[] = {
      {"one", "expected the SHA-256"},
      {"one abcd", "expected the SHA-256"},
      {"one " + std::string(64, 'g'), "expected the SHA-256"},
      {"one " + std::string(kHashOfAbc) + "0", "expected the SHA-256"},
      {fmt::format("o/ne {}", kHashOfAbc), "expected a name"},
      {fmt::format("{} {}", std::string(65, 'n'), kHashOfAbc), "expected a name"},
      {one + " concurrent=0", "concurrent: expected a number from 1"},
      {one + " concurrent=", "concurrent: expected a number from 1"},
      {one + " requests-per-minute=1x", "requests-per-minute: expected a number"},
      {one + " tokens-per-minute=-1", "tokens-per-minute: expected a number"},
      {one + " priorities=1", "priorities: expected two numbers from -2 to 2"},
      {one + " priorities=2..1", "priorities: expected two numbers"},
      {one + " priorities=-3..1", "priorities: expected two numbers"},
      {one + " concurrent=1 concurrent=2", "concurrent: is given twice"},
      {one + " admin priorities=0..1 admin", "admin: is given twice"},
      {one + " speed=9", "found \"speed=9\""},
      {"two " + std::string(kHashOfAbc) + "\n" + one, "\"one\" has the same key as \"two\""},
      {fmt::format("one {}\n{}", kHashOfNothing, one), "a second key is named \"one\""},
  };
  for (const Case& bad : cases) {
    const auto ring = KeyRing::Parse("# first\n" + bad.line, "the-file");
    ASSERT_FALSE(ring.ok()) << bad.line;
    EXPECT_EQ(ring.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(ring.status().message(), HasSubstr("the-file, line "));
    EXPECT_THAT(ring.status().message(), HasSubstr(bad.message)) << bad.line;
  }
}

TEST(ApiKeys, AKeyInPlaceOfItsHashIsNotRepeatedInTheMessage) {
  const auto ring = KeyRing::Parse("one ebb-secret", "f");
  ASSERT_FALSE(ring.ok());
  EXPECT_THAT(ring.status().message(), Not(HasSubstr("secret")));
}

TEST(ApiKeys, AFileThatIsOpenToOthersIsRefused) {
  const TempFolder folder;
  const std::string path = folder.File("keys");
  for (const mode_t mode : {0600, 0400, 0640}) {
    Write(path, fmt::format("one {}\n", kHashOfAbc), mode);
    EXPECT_TRUE(KeyRing::Read(path).ok()) << mode;
  }
  for (const mode_t mode : {0644, 0604, 0660, 0602, 0777}) {
    Write(path, fmt::format("one {}\n", kHashOfAbc), mode);
    const auto ring = KeyRing::Read(path);
    ASSERT_FALSE(ring.ok()) << mode;
    EXPECT_THAT(ring.status().message(), HasSubstr("others can read or change the file of keys"));
    EXPECT_THAT(ring.status().message(), HasSubstr("chmod 600 " + path));
  }
}

TEST(ApiKeys, AFileWithoutKeysOrThatIsNoneIsRefused) {
  const TempFolder folder;
  const auto message = [](const std::string& path) {
    return KeyRing::Read(path).status().message();
  };
  EXPECT_EQ(KeyRing::Read(folder.File("none")).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(message(folder.File("none")),
            fmt::format("cannot open {}: No such file or directory", folder.File("none")));
  EXPECT_EQ(message(folder.File("")),
            folder.File("") + ": expected a regular file of keys, found another kind");
  Write(folder.File("empty"), "# nobody yet\n");
  EXPECT_THAT(message(folder.File("empty")), HasSubstr(": the file has no key"));
  Write(folder.File("long"), std::string(2 << 20, '#'));
  EXPECT_THAT(message(folder.File("long")),
              HasSubstr(": expected at most 1 MiB of keys, found more"));
}

TEST(ApiKeys, ANewKeyIsAddedAndWhatIsThereStays) {
  const TempFolder folder;
  const std::string path = folder.File("keys");
  const auto first = AddNewKey(path, "one");
  ASSERT_TRUE(first.ok()) << first.status().ToString();
  EXPECT_THAT(*first, MatchesRegex("ebb-[A-Za-z0-9_-]+"));
  EXPECT_EQ(first->size(), 47u);  // 256 bits in base64, after a prefix
  struct stat info = {};
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  // A person edits the last line and omits its '\n': the next key must still begin a line.
  std::string text = Contents(path);
  text.pop_back();
  Write(path, text + " concurrent=3");
  const auto second = AddNewKey(path, "two");
  ASSERT_TRUE(second.ok()) << second.status().ToString();
  EXPECT_NE(*first, *second);
  const auto ring = KeyRing::Read(path);
  ASSERT_TRUE(ring.ok()) << ring.status().ToString();
  EXPECT_EQ(ring->Find(*first)->name, "one");
  EXPECT_EQ(ring->Find(*first)->limits.concurrent, 3u);
  EXPECT_EQ(ring->Find(*second)->name, "two");
  EXPECT_FALSE(ring->has_admin());
  const auto admin = AddNewKey(path, "boss", /*is_admin=*/true);
  const auto with_admin = KeyRing::Read(path);
  ASSERT_TRUE(admin.ok() && with_admin.ok());
  EXPECT_TRUE(with_admin->Find(*admin)->is_admin);
  EXPECT_TRUE(with_admin->has_admin());
  EXPECT_THAT(Contents(path), Not(HasSubstr(*second)));
}

TEST(ApiKeys, ANewKeyThatCannotBeLeavesTheFileAsItWas) {
  const TempFolder folder;
  const std::string path = folder.File("keys");
  ASSERT_TRUE(AddNewKey(path, "one").ok());
  const std::string before = Contents(path);
  EXPECT_THAT(AddNewKey(path, "one").status().message(),
              HasSubstr("already has a key named \"one\""));
  EXPECT_THAT(AddNewKey(path, "o ne").status().message(), HasSubstr("expected a name"));
  EXPECT_THAT(AddNewKey(path, "").status().message(), HasSubstr("expected a name"));
  EXPECT_EQ(Contents(path), before);
  ASSERT_EQ(chmod(path.c_str(), 0644), 0);
  EXPECT_THAT(AddNewKey(path, "two").status().message(), HasSubstr("others can read"));
  EXPECT_EQ(Contents(path), before);
  Write(folder.File("bad"), "what is this");
  EXPECT_THAT(AddNewKey(folder.File("bad"), "two").status().message(), HasSubstr("line 1"));
  EXPECT_EQ(AddNewKey(folder.File("no/such/folder"), "two").status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace ebb::server

#include "apps/common/models/known_models.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "apps/common/models/built_in_models.h"
#include "tests/support/temp_folder.h"

namespace ebb::cli {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

bool IsSha256(std::string_view text) {
  constexpr size_t kDigits = 64;
  return text.size() == kDigits && std::ranges::all_of(text, [](unsigned char c) {
           return std::isdigit(c) != 0 || (c >= 'a' && c <= 'f');
         });
}

TEST(KnownModelsTest, NamesAndFilesAreUniqueAndNoNameLooksLikeAFile) {
  std::set<std::string_view> names(kBuiltInModels.begin(), kBuiltInModels.end());
  std::set<std::string_view> files;
  for (const KnownModel& model : KnownModels()) {
    EXPECT_TRUE(names.insert(model.name).second) << model.name;
    EXPECT_TRUE(files.insert(model.file_name).second) << model.name;
    EXPECT_EQ(model.name.find('/'), std::string_view::npos) << model.name;
    EXPECT_FALSE(model.name.ends_with(".gguf")) << model.name;
    EXPECT_EQ(FindKnownModel(model.name), &model);
    EXPECT_THAT(KnownModelNames(), HasSubstr(std::string(model.name)));
  }
  EXPECT_EQ(FindKnownModel("smollm2"), nullptr);
  EXPECT_EQ(KnownModels().front().name, "smollm2-135m");
}

TEST(KnownModelsTest, ThePartsOfAModelAreItsBytesInTheOrderOfTheirNumbers) {
  for (const KnownModel& model : KnownModels()) {
    EXPECT_TRUE(IsSha256(model.sha256)) << model.name;
    ASSERT_FALSE(model.parts.empty());
    uint64_t bytes = 0;
    std::set<std::string_view> hashes;
    for (size_t i = 0; i < model.parts.size(); ++i) {
      const ModelPart& part = model.parts[i];
      bytes += part.bytes;
      EXPECT_TRUE(IsSha256(part.package_sha256)) << part.package;
      EXPECT_TRUE(hashes.insert(part.package_sha256).second) << part.package;
      EXPECT_THAT(std::string(part.package), HasSubstr("=="));
      if (model.parts.size() == 1) continue;
      EXPECT_THAT(std::string(part.package), HasSubstr(fmt::format("-part{}==", i + 1)));
      EXPECT_TRUE(part.member.ends_with(fmt::format("_part{0}/data/part{0:02}.bin", i + 1)))
          << part.member;
    }
    EXPECT_EQ(bytes, model.bytes) << model.name;
  }
}

// FindModelFileTest runs in a cache folder and a current folder of its own.
class FindModelFileTest : public testing::Test {
 protected:
  void SetUp() override {
    before_ = fs::current_path();
    if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr) cache_ = cache;
    setenv("XDG_CACHE_HOME", folder_.File("cache").c_str(), 1);
    fs::create_directories(folder_.File("cache/ebb"));
    fs::create_directories(folder_.File("here"));
    fs::current_path(folder_.File("here"));
  }
  void TearDown() override {
    fs::current_path(before_);
    if (cache_.empty()) {
      unsetenv("XDG_CACHE_HOME");
    } else {
      setenv("XDG_CACHE_HOME", cache_.c_str(), 1);
    }
  }

  TempFolder folder_;
  fs::path before_;
  std::string cache_;
};

TEST_F(FindModelFileTest, ANameIsTheFetchedFileWhateverLiesInTheCurrentFolder) {
  const std::string name = "qwen2.5-coder-0.5b";
  std::ofstream(folder_.File("here/" + name)) << "another";
  const Result<std::string> absent = FindModelFile(name);
  EXPECT_EQ(absent.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(absent.status().message(), HasSubstr("run \"ebb pull qwen2.5-coder-0.5b\""));
  const std::string path = folder_.File("cache/ebb/qwen2.5-coder-0.5b-instruct-q4_k_m.gguf");
  std::ofstream(path) << "model";
  const Result<std::string> found = FindModelFile(name);
  ASSERT_TRUE(found.ok()) << found.status().message();
  EXPECT_EQ(*found, path);
  const Result<std::string> in_current_folder = FindModelFile("./" + name);
  ASSERT_TRUE(in_current_folder.ok());
  EXPECT_EQ(*in_current_folder, "./" + name);
}

TEST_F(FindModelFileTest, WithoutANameItIsTheDefaultModel) {
  EXPECT_THAT(FindModelFile("").status().message(), HasSubstr("run \"ebb pull\""));
  const std::string path = folder_.File("cache/ebb/SmolLM2-135M-Instruct.Q4_1.gguf");
  std::ofstream(path) << "model";
  const Result<std::string> found = FindModelFile("");
  ASSERT_TRUE(found.ok()) << found.status().message();
  EXPECT_EQ(*found, path);
}

TEST_F(FindModelFileTest, AnythingElseIsAFileOrAnErrorThatListsTheNames) {
  std::ofstream(folder_.File("here/tide")) << "model";
  for (const char* file : {"tide", "/nowhere/tide", "ebb.gguf"}) {
    const Result<std::string> found = FindModelFile(file);
    ASSERT_TRUE(found.ok()) << found.status().message();
    EXPECT_EQ(*found, file);
  }
  const Status status = FindModelFile("qwen").status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("-m qwen: expected a GGUF file"));
  EXPECT_THAT(status.message(), HasSubstr(KnownModelNames()));
}

}  // namespace
}  // namespace ebb::cli

// Models in several files: the first one's name loads all of them.
#include <gmock/gmock.h>

#include <filesystem>

#include "tests/engine/engine_fixture.h"
#include "tests/support/engine/library_models.h"
#include "tests/support/gguf_edit.h"

namespace ebb {
namespace {

using testing::HasSubstr;

// Whether the model is a mixture of experts.
class SplitFiles : public testing::TestWithParam<bool> {
 protected:
  // Writes a whole model and its parts.
  void SetUp() override {
    if (GetParam()) {
      ExpectOk(WriteLibraryModel({"qwen3moe", true, "q4_0"}, whole_));
    } else {
      ExpectOk(WriteRandomGguf(SmallModelOptions(), whole_));
    }
    const auto edit = GgufEdit::Open(whole_);
    ASSERT_TRUE(edit.ok()) << edit.status().ToString();
    const auto first = edit->SaveInParts(folder_.File("parts"), 3);
    ASSERT_TRUE(first.ok()) << first.status().ToString();
    first_ = *first;
  }
  [[nodiscard]] std::string Part(int number) const {
    return folder_.File("parts-0000" + std::to_string(number) + "-of-00003.gguf");
  }
  static std::vector<float> LogitsOf(const std::shared_ptr<const Model>& model) {
    auto engine = MakeEngineOf(model, {.threads = 1});
    auto session = Open(*engine);
    const std::vector<Token> tokens = {1, 5, 3, 7, 2, 6};
    ExpectOk(session->Prefill(tokens));
    return Logits(*session);
  }

  const TempFolder folder_;
  const std::string whole_ = folder_.File("whole.gguf");
  std::string first_;
};

TEST_P(SplitFiles, TheFirstPartLoadsAllOfThem) {
  const auto whole = Model::Load({.path = whole_});
  const auto parts = Model::Load({.path = first_});
  ASSERT_TRUE(whole.ok()) << whole.status().ToString();
  ASSERT_TRUE(parts.ok()) << parts.status().ToString();
  EXPECT_EQ((*parts)->weight_bytes(), (*whole)->weight_bytes());
  EXPECT_EQ(LogitsOf(*parts), LogitsOf(*whole));
}

TEST_P(SplitFiles, AMissingPartIsNamed) {
  std::filesystem::remove(Part(2));
  const auto model = Model::Load({.path = first_});
  EXPECT_EQ(model.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(model.status().message(), HasSubstr("parts-00002-of-00003.gguf"));
}

TEST_P(SplitFiles, PartsInTheWrongPlaceAreRefused) {
  std::filesystem::copy_file(Part(2), Part(3), std::filesystem::copy_options::overwrite_existing);
  const auto model = Model::Load({.path = first_});
  EXPECT_EQ(model.status().code(), StatusCode::kCorrupt);
  EXPECT_THAT(model.status().message(), HasSubstr("is part 2 of 3, expected part 3 of 3"));
}

TEST_P(SplitFiles, AnotherPartThanTheFirstIsRefused) {
  const auto model = Model::Load({.path = Part(2)});
  EXPECT_EQ(model.status().code(), StatusCode::kUnsupported);
  EXPECT_THAT(model.status().message(), HasSubstr("found part 2 of 3"));
}

TEST_P(SplitFiles, ATruncatedPartIsCorrupt) {
  std::filesystem::resize_file(Part(3), std::filesystem::file_size(Part(3)) - 64);
  const auto model = Model::Load({.path = first_});
  EXPECT_EQ(model.status().code(), StatusCode::kCorrupt);
  EXPECT_THAT(model.status().message(), HasSubstr("parts-00003-of-00003.gguf"));
}

INSTANTIATE_TEST_SUITE_P(Models, SplitFiles, testing::Bool());

}  // namespace
}  // namespace ebb

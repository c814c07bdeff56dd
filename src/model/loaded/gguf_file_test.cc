#include "src/model/loaded/gguf_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "tests/support/expect_ok.h"
#include "tests/support/gguf_edit.h"
#include "tests/support/random_gguf.h"
#include "tests/support/temp_folder.h"

namespace ebb {
namespace {

// Its range begins where the last part ends.
TEST(GgufFileTest, AnEmptyTensorAtTheEndOfAFileIsInItsPart) {
  const TempFolder folder;
  const std::string path = folder.File("model.gguf");
  ExpectOk(WriteRandomGguf({.embed_dim = 64, .num_q_heads = 1, .num_kv_heads = 1}, path));
  for (const int num_parts : {1, 2, 3}) {
    auto edit = GgufEdit::Open(path);
    ASSERT_TRUE(edit.ok()) << edit.status().ToString();
    edit->Add("empty.weight", GGML_TYPE_F32, 0, 1);
    const auto saved = edit->SaveInParts(folder.File("parts"), num_parts);
    ASSERT_TRUE(saved.ok()) << saved.status().ToString();
    const auto file = GgufFile::Open(*saved);
    ASSERT_TRUE(file.ok()) << file.status().ToString();
    const GgufTensor* empty = file->FindTensor("empty.weight");
    ASSERT_NE(empty, nullptr);
    EXPECT_TRUE(empty->data.empty());
    const std::span<const std::byte> last = file->mappings().back().bytes();
    EXPECT_EQ(empty->data.data(), last.data() + last.size());
    EXPECT_EQ(file->PartOf(empty->data), static_cast<size_t>(num_parts) - 1);
    file->Populate(empty->data);
    file->Drop(empty->data);
    for (const GgufTensor& tensor : file->tensors()) {
      const std::span<const std::byte> part = file->mappings()[file->PartOf(tensor.data)].bytes();
      EXPECT_GE(tensor.data.data(), part.data()) << tensor.name;
      EXPECT_LE(tensor.data.data() + tensor.data.size(), part.data() + part.size()) << tensor.name;
    }
  }
}

// Whatever a reader made of the bytes: they may be anything.
TEST(GgufFileTest, AnErrorOfAFileThatChangedMeanwhileSaysThatItChanged) {
  const TempFolder folder;
  const std::string path = folder.File("model.gguf");
  ExpectOk(WriteRandomGguf({.embed_dim = 64, .num_q_heads = 1, .num_kv_heads = 1}, path));
  const auto edit = GgufEdit::Open(path);
  ASSERT_TRUE(edit.ok()) << edit.status().ToString();
  const auto first = edit->SaveInParts(folder.File("parts"), 2);
  ASSERT_TRUE(first.ok()) << first.status().ToString();
  const auto file = GgufFile::Open(*first);
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  const Status found = Corrupt("a tensor is missing");
  ExpectOk(file->CheckUnchanged());
  EXPECT_EQ(file->ErrorOfLoading(found).ToString(), found.ToString());
  std::filesystem::resize_file(folder.File("parts-00002-of-00002.gguf"), 4096);
  const Status changed = file->ErrorOfLoading(found);
  EXPECT_EQ(changed.code(), StatusCode::kIo);
  EXPECT_EQ(changed.field(), "");
  EXPECT_EQ(changed.message(),
            "the model file parts-00002-of-00002.gguf changed while it was in use: it has another "
            "size; load the model again");
}

}  // namespace
}  // namespace ebb

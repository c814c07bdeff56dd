#include "src/model/gguf_file.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace ebb

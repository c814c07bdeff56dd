#include "apps/common/models/gguf_header.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>
#include <string_view>

#include "tests/support/temp_folder.h"

namespace ebb::cli {
namespace {

template <typename T>
std::string Bytes(T number) {
  std::string bytes(sizeof(T), '\0');
  std::memcpy(bytes.data(), &number, sizeof(T));
  return bytes;
}
std::string Text(std::string_view text) { return Bytes(uint64_t{text.size()}) + std::string(text); }
std::string Head(uint64_t num_values) {
  return "GGUF" + Bytes(uint32_t{3}) + Bytes(uint64_t{0}) + Bytes(num_values);
}
constexpr uint32_t kU32 = 4, kText = 8, kArray = 9;

class GgufHeaderTest : public testing::Test {
 protected:
  GgufHeader Read(const std::string& bytes) {
    const std::string path = folder_.File("model.gguf");
    std::ofstream(path, std::ios::binary) << bytes;
    return ReadGgufHeader(path);
  }
  TempFolder folder_;
};

TEST_F(GgufHeaderTest, ReadsTheArchitectureAndTheFileType) {
  const std::string bytes = Head(5) + Text("a.list") + Bytes(kArray) + Bytes(kText) +
                            Bytes(uint64_t{2}) + Text("x") + Text("yy") + Text("a.numbers") +
                            Bytes(kArray) + Bytes(kU32) + Bytes(uint64_t{3}) +
                            std::string(12, '\1') + Text("general.architecture") + Bytes(kText) +
                            Text("qwen3") + Text("a.number") + Bytes(kU32) + Bytes(uint32_t{7}) +
                            Text("general.file_type") + Bytes(kU32) + Bytes(uint32_t{15});
  const GgufHeader header = Read(bytes);
  EXPECT_EQ(header.architecture, "qwen3");
  EXPECT_EQ(header.quantization, "Q4_K_M");
  // A file cut at any byte gives the fields that lie before the cut, and no error.
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_EQ(Read(bytes.substr(0, size)).quantization, "") << size;
  }
}

TEST_F(GgufHeaderTest, LengthsBeyondTheFileEndTheReading) {
  constexpr uint64_t kHuge = ~uint64_t{0};
  EXPECT_EQ(Read(Head(kHuge) + Bytes(kHuge)).architecture, "");
  EXPECT_EQ(Read(Head(1) + Text("k") + Bytes(kArray) + Bytes(kU32) + Bytes(kHuge)).architecture,
            "");
  EXPECT_EQ(Read(Head(1) + Text("k") + Bytes(kArray) + Bytes(kText) + Bytes(kHuge)).architecture,
            "");
  EXPECT_EQ(Read(Head(1) + Text("general.architecture") + Bytes(kText) + Bytes(kHuge)).architecture,
            "");
  EXPECT_EQ(Read(Head(1) + Text("k") + Bytes(uint32_t{99})).architecture, "");
  EXPECT_EQ(ReadGgufHeader(folder_.File("none")).architecture, "");
}

}  // namespace
}  // namespace ebb::cli

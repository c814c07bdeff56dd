#include "apps/common/models/gguf_header.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <optional>
#include <string_view>
#include <utility>

namespace ebb::cli {
namespace {

// llama_ftype of llama.h.
constexpr std::pair<uint32_t, std::string_view> kFileTypes[] = {
    {0, "F32"},      {1, "F16"},      {2, "Q4_0"},    {3, "Q4_1"},    {7, "Q8_0"},
    {8, "Q5_0"},     {9, "Q5_1"},     {10, "Q2_K"},   {11, "Q3_K_S"}, {12, "Q3_K_M"},
    {13, "Q3_K_L"},  {14, "Q4_K_S"},  {15, "Q4_K_M"}, {16, "Q5_K_S"}, {17, "Q5_K_M"},
    {18, "Q6_K"},    {19, "IQ2_XXS"}, {20, "IQ2_XS"}, {21, "Q2_K_S"}, {22, "IQ3_XS"},
    {23, "IQ3_XXS"}, {24, "IQ1_S"},   {25, "IQ4_NL"}, {26, "IQ3_S"},  {27, "IQ3_M"},
    {28, "IQ2_S"},   {29, "IQ2_M"},   {30, "IQ4_XS"}, {31, "IQ1_M"},  {32, "BF16"},
    {36, "TQ1_0"},   {37, "TQ2_0"},   {38, "MXFP4"}};

// HeaderReader takes values off the front of the bytes of a GGUF header.
class HeaderReader {
 public:
  explicit HeaderReader(std::string_view bytes) : rest_(bytes) {}

  template <typename T>
  std::optional<T> Number() {
    if (rest_.size() < sizeof(T)) return std::nullopt;
    T number;
    std::memcpy(&number, rest_.data(), sizeof(T));
    rest_.remove_prefix(sizeof(T));
    return number;
  }
  std::optional<std::string_view> Text() {
    const auto size = Number<uint64_t>();
    if (!size || *size > rest_.size()) return std::nullopt;
    const std::string_view text = rest_.substr(0, *size);
    rest_.remove_prefix(*size);
    return text;
  }
  // Skips a value. Returns false if its type is unknown or the bytes end within it.
  bool SkipValue(uint32_t type) {
    if (type == kText) return Text().has_value();
    if (type == kArray) return SkipArray();
    const size_t size = SizeOf(type);
    if (size == 0 || size > rest_.size()) return false;
    rest_.remove_prefix(size);
    return true;
  }

  // Skips an entry of the table of tensors. Returns false if the bytes end within it.
  bool SkipTensor() {
    const bool has_name = Text().has_value();
    const auto num_dims = Number<uint32_t>();
    if (!has_name || !num_dims) return false;
    const uint64_t size = *num_dims * sizeof(uint64_t) + sizeof(uint32_t) + sizeof(uint64_t);
    if (size > rest_.size()) return false;
    rest_.remove_prefix(size);
    return true;
  }
  [[nodiscard]] size_t num_left() const { return rest_.size(); }

  static constexpr uint32_t kNumber32 = 4;
  static constexpr uint32_t kText = 8;
  static constexpr uint32_t kArray = 9;

 private:
  static size_t SizeOf(uint32_t type) {
    constexpr std::array<size_t, 13> kSizes = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return type < kSizes.size() ? kSizes[type] : 0;
  }
  bool SkipArray() {
    const auto type = Number<uint32_t>();
    const auto count = Number<uint64_t>();
    if (!type || !count) return false;
    if (*type == kText) {
      for (uint64_t i = 0; i < *count; ++i) {
        if (!Text()) return false;
      }
      return true;
    }
    const size_t size = SizeOf(*type);
    if (size == 0 || *count > rest_.size() / size) return false;
    rest_.remove_prefix(*count * size);
    return true;
  }

  std::string_view rest_;
};

constexpr std::string_view kMagic = "GGUF";

// Counts holds the numbers of tensors and of values that follow the version of a GGUF file.
struct Counts {
  uint64_t tensors = 0;
  uint64_t values = 0;
};
std::optional<Counts> ReadCounts(HeaderReader* reader) {
  const auto version = reader->Number<uint32_t>();
  const auto tensors = reader->Number<uint64_t>();
  const auto values = reader->Number<uint64_t>();
  if (!version || *version < 2 || !tensors || !values) return std::nullopt;
  return Counts{.tensors = *tensors, .values = *values};
}

}  // namespace

std::optional<uint64_t> MetadataLength(std::string_view bytes) {
  if (!bytes.starts_with(kMagic)) return std::nullopt;
  HeaderReader reader(bytes.substr(kMagic.size()));
  const auto counts = ReadCounts(&reader);
  if (!counts) return std::nullopt;
  for (uint64_t i = 0; i < counts->values; ++i) {
    const bool has_key = reader.Text().has_value();
    const auto type = reader.Number<uint32_t>();
    if (!has_key || !type || !reader.SkipValue(*type)) return std::nullopt;
  }
  for (uint64_t i = 0; i < counts->tensors; ++i) {
    if (!reader.SkipTensor()) return std::nullopt;
  }
  return bytes.size() - reader.num_left();
}

GgufHeader ReadGgufHeader(const std::string& path) {
  constexpr size_t kMostBytes = size_t{1} << 20;
  std::string bytes(kMostBytes, '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  bytes.resize(static_cast<size_t>(file.gcount()));
  GgufHeader header;
  if (!bytes.starts_with(kMagic)) return header;
  HeaderReader reader(std::string_view(bytes).substr(kMagic.size()));
  const auto counts = ReadCounts(&reader);
  if (!counts) return header;
  for (uint64_t i = 0; i < counts->values; ++i) {
    const auto key = reader.Text();
    const auto type = reader.Number<uint32_t>();
    if (!key || !type) break;
    if (*key == "general.architecture" && *type == HeaderReader::kText) {
      header.architecture = reader.Text().value_or("");
    } else if (*key == "general.file_type" && *type == HeaderReader::kNumber32) {
      const uint32_t number = reader.Number<uint32_t>().value_or(~0U);
      const auto* found =
          std::ranges::find(kFileTypes, number, &std::pair<uint32_t, std::string_view>::first);
      if (found != std::end(kFileTypes)) header.quantization = found->second;
    } else if (!reader.SkipValue(*type)) {
      break;
    }
    if (!header.architecture.empty() && !header.quantization.empty()) break;
  }
  return header;
}

}  // namespace ebb::cli

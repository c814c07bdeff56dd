// The description of a model whose graph libllama builds, of any bytes, gives a model or an error
// before any weight is read. Inputs are GGUF files without the data of their tensors, which are
// zeros here.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string_view>
#include <vector>

#include "ebb/model.h"
#include "hwy/aligned_allocator.h"
#include "src/model/library/library_model.h"
#include "src/model/loaded/gguf_file.h"
#include "src/model/loaded/weights.h"

namespace {

constexpr size_t kMaxInputBytes = size_t{1} << 18;
constexpr size_t kTensorBytes = size_t{32} << 20;  // enough for the models of the corpus

// The parts of a file's header that say how much of something there is. Stops where the header
// makes no sense.
class Header {
 public:
  struct Field {
    size_t offset = 0, size = 0;
    bool is_float = false;
  };
  struct Entry {
    size_t begin = 0, end = 0;
    size_t count_offset = 0;  // of the number of such entries
  };

  explicit Header(std::span<const uint8_t> bytes) : bytes_(bytes) {
    if (bytes.size() < 24) return;
    at_ = 8;
    const uint64_t num_tensors = Number(8).value_or(0), num_keys = Number(8).value_or(0);
    for (uint64_t i = 0; i < num_keys && is_sound_; ++i) ReadKey();
    for (uint64_t i = 0; i < num_tensors && is_sound_; ++i) ReadTensor();
  }
  [[nodiscard]] const std::vector<Field>& fields() const { return fields_; }
  [[nodiscard]] const std::vector<Entry>& entries() const { return entries_; }

 private:
  enum Type : uint32_t { kFloat32 = 6, kString = 8, kArray = 9, kFloat64 = 12 };
  static size_t SizeOf(uint32_t type) {
    constexpr size_t kSizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return type < std::size(kSizes) ? kSizes[type] : 0;
  }
  bool Skip(uint64_t num_bytes) {
    is_sound_ = is_sound_ && num_bytes <= bytes_.size() - at_;
    if (is_sound_) at_ += num_bytes;
    return is_sound_;
  }
  std::optional<uint64_t> Number(size_t size) {
    const size_t offset = at_;
    if (!Skip(size)) return std::nullopt;
    uint64_t number = 0;
    std::memcpy(&number, bytes_.data() + offset, size);
    return number;
  }
  std::optional<uint64_t> FieldOf(size_t size, bool is_float = false) {
    const size_t offset = at_;
    const auto number = Number(size);
    if (number.has_value()) fields_.push_back({offset, size, is_float});
    return number;
  }
  void SkipString() {
    const auto length = Number(8);
    if (length.has_value()) (void)Skip(*length);
  }
  void ReadValue(uint32_t type) {
    if (type == kString) return SkipString();
    if (type != kArray) {
      is_sound_ = is_sound_ && SizeOf(type) > 0;
      if (is_sound_) (void)FieldOf(SizeOf(type), type == kFloat32 || type == kFloat64);
      return;
    }
    const auto of = static_cast<uint32_t>(Number(4).value_or(kArray));
    const uint64_t count = FieldOf(8).value_or(0);
    if (of == kString) {
      for (uint64_t i = 0; i < count && is_sound_; ++i) SkipString();
      return;
    }
    // Vocabularies have long arrays: the first elements stand for all.
    for (uint64_t i = 0; i < count && is_sound_; ++i) {
      if (i < 16) {
        ReadValue(of);
      } else {
        is_sound_ = SizeOf(of) > 0 && Skip((count - i) * SizeOf(of));
        break;
      }
    }
  }
  void ReadKey() {
    const size_t begin = at_;
    SkipString();
    const auto type = Number(4);
    if (!type.has_value()) return;
    ReadValue(static_cast<uint32_t>(*type));
    if (is_sound_) entries_.push_back({.begin = begin, .end = at_, .count_offset = 16});
  }
  void ReadTensor() {
    const size_t begin = at_;
    SkipString();
    const uint64_t dims = Number(4).value_or(0);
    for (uint64_t i = 0; i < dims && is_sound_; ++i) (void)FieldOf(8);
    (void)FieldOf(4);  // type
    (void)Skip(8);
    if (is_sound_) entries_.push_back({.begin = begin, .end = at_, .count_offset = 8});
  }

  const std::span<const uint8_t> bytes_;
  size_t at_ = 0;
  bool is_sound_ = true;
  std::vector<Field> fields_;
  std::vector<Entry> entries_;
};

uint64_t OtherNumber(uint64_t number, std::mt19937& random) {
  constexpr uint64_t kNumbers[] = {0,  1,   2,     3,          5,          7,          8,
                                   63, 255, 65536, 0x7fffffff, 0x80000000, 0xffffffff, UINT64_MAX};
  switch (random() % 5) {
    case 0:
      return number + 1;
    case 1:
      return number - 1;
    case 2:
      return random() % 2 == 0 ? number * 2 : number / 2;
    case 3:
      return random();
    default:
      return kNumbers[random() % std::size(kNumbers)];
  }
}

float OtherFloat(std::mt19937& random) {
  constexpr float kFloats[] = {0, -1, 1e-30f, 1e30f, -INFINITY, INFINITY, NAN};
  return kFloats[random() % std::size(kFloats)];
}

// Changes one field of a header, or takes out a key or a tensor. Returns the new size.
size_t MutateHeader(uint8_t* data, size_t size, std::mt19937& random) {
  const Header header({data, size});
  if (!header.entries().empty() && random() % 8 == 0) {
    const Header::Entry entry = header.entries()[random() % header.entries().size()];
    uint64_t count = 0;
    std::memcpy(&count, data + entry.count_offset, sizeof(count));
    --count;
    std::memcpy(data + entry.count_offset, &count, sizeof(count));
    std::memmove(data + entry.begin, data + entry.end, size - entry.end);
    return size - (entry.end - entry.begin);
  }
  if (header.fields().empty()) return size;
  const Header::Field field = header.fields()[random() % header.fields().size()];
  if (field.is_float && field.size == sizeof(float)) {
    const float value = OtherFloat(random);
    std::memcpy(data + field.offset, &value, sizeof(value));
  } else {
    uint64_t number = 0;
    std::memcpy(&number, data + field.offset, field.size);
    number = OtherNumber(number, random);
    std::memcpy(data + field.offset, &number, field.size);
  }
  return size;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > kMaxInputBytes) return 0;
  static const auto contents = hwy::AllocateAligned<std::byte>(kMaxInputBytes + kTensorBytes);
  static size_t written = kMaxInputBytes;
  std::memcpy(contents.get(), data, size);
  // The bytes behind `size` are zeros from the beginning, since kernels never see more.
  std::memset(contents.get() + size, 0, std::max(written, size) - size);
  written = size;
  const auto file = ebb::GgufFile::Of({contents.get(), size + kTensorBytes}, "input");
  if (!file.ok()) return 0;
  const auto model = ebb::LibraryModel::Open(*file, {});
  if (!model.ok()) {
    if (model.status().message().empty()) std::abort();
    return 0;
  }
  ebb::WeightBuffers buffers;
  const ebb::Status loaded =
      (*model)->LoadWeights(*file, ebb::WeightMode::kAsStored, /*for_device=*/true, &buffers);
  if (!loaded.ok() && loaded.message().empty()) std::abort();
  return 0;
}

// One change of the header, or several; libFuzzer adds inputs that reach new code.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned seed) {
  std::mt19937 random(seed);
  size = std::min(size, max_size);
  for (unsigned changes = 1 + random() % 3; changes > 0; --changes) {
    size = MutateHeader(data, size, random);
  }
  return size;
}

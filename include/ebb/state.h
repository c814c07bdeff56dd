// Bytes in which parts of a session keep what they know while the session rests in a file: numbers
// little-endian, floats as their IEEE 754 bits, lists and texts after their length (u64).
//
// SPDX-License-Identifier: MIT
#ifndef EBB_STATE_H_
#define EBB_STATE_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "ebb/status.h"

namespace [[gnu::visibility("default")]] ebb {

static_assert(std::endian::native == std::endian::little, "files hold the bytes of memory");

template <typename T>
concept StateNumber = std::is_arithmetic_v<T> && !std::is_same_v<T, bool>;

class StateWriter {
 public:
  enum class Keep { kBytes, kCount };  // kCount: only how many there are
  explicit StateWriter(Keep keep = Keep::kBytes) : keep_(keep) {}

  template <StateNumber T>
  void Number(T value) {
    Append(&value, sizeof(value));
  }
  template <StateNumber T>
  void Numbers(std::span<const T> values) {
    Number<uint64_t>(values.size());
    Append(values.data(), values.size_bytes());
  }
  void Text(std::string_view text) {
    Number<uint64_t>(text.size());
    Append(text.data(), text.size());
  }
  [[nodiscard]] size_t num_bytes() const { return num_bytes_; }
  // Empty where they are only counted.
  [[nodiscard]] std::span<const std::byte> bytes() const {
    return std::as_bytes(std::span(bytes_));
  }
  [[nodiscard]] const std::string& text() const { return bytes_; }  // the same

 private:
  template <typename T>
  void Append(const T* values, size_t num_bytes) {
    num_bytes_ += num_bytes;
    if (keep_ == Keep::kBytes) bytes_.append(reinterpret_cast<const char*>(values), num_bytes);
  }

  const Keep keep_;
  size_t num_bytes_ = 0;
  std::string bytes_;
};

// Once something does not fit the bytes that are left, or Fail() was called, all that is read is
// zero or empty, and status() says why: it may be asked once, at the end. A list's length is held
// against the bytes that are left before memory is taken for it.
class StateReader {
 public:
  // REQUIRES: the bytes outlive the reader. what: for messages, "the list of tokens".
  StateReader(std::span<const std::byte> bytes, std::string what)
      : left_(bytes), what_(std::move(what)) {}

  template <StateNumber T>
  [[nodiscard]] T Number() {
    T value = {};
    Take(&value, sizeof(value));
    return value;
  }
  template <StateNumber T>
  [[nodiscard]] std::vector<T> Numbers() {
    std::vector<T> values(Length(sizeof(T)));
    Take(values.data(), values.size() * sizeof(T));
    return values;
  }
  [[nodiscard]] std::string Text() {
    std::string text(Length(1), '\0');
    Take(text.data(), text.size());
    return text;
  }
  // The length of a list that follows, each of whose elements takes at least so many bytes.
  [[nodiscard]] size_t Length(size_t bytes_of_each) {
    const auto length = Number<uint64_t>();
    if (length <= left_.size() / bytes_of_each) return length;
    Fail("it ends within a list of " + std::to_string(length));
    return 0;
  }

  // Reports bytes that make no sense. The first such call counts.
  void Fail(std::string_view why);
  [[nodiscard]] bool ok() const { return status_.ok(); }
  // Corrupt when something failed.
  [[nodiscard]] const Status& status() const { return status_; }
  // The same, and Corrupt when bytes are left.
  [[nodiscard]] Status End();

 private:
  template <typename T>
  void Take(T* to, size_t num_bytes) {
    if (num_bytes > left_.size()) Fail("it ends too early");
    if (num_bytes == 0 || !ok()) return;
    std::memcpy(to, left_.data(), num_bytes);
    left_ = left_.subspan(num_bytes);
  }

  std::span<const std::byte> left_;
  std::string what_;
  Status status_;
};

}  // namespace ebb

#endif  // EBB_STATE_H_

// StateWriter and StateReader convert the state of a session's parts to bytes for a session file,
// and back. Numbers are little-endian, floats are their IEEE 754 bits, and a list or a text follows
// its length (u64).
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

// StateWriter appends the state of an object to a byte string, or only counts its bytes.
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
  // Returns the bytes written so far; empty with Keep::kCount, which only counts them.
  [[nodiscard]] std::span<const std::byte> bytes() const {
    return std::as_bytes(std::span(bytes_));
  }
  [[nodiscard]] const std::string& text() const { return bytes_; }  // bytes() as a string

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

// StateReader reads what a StateWriter wrote. After the first error (too few bytes, or Fail())
// every read returns zero or an empty list, and status() has the error; so a caller may check
// status() once, after its last read. StateReader compares the length of a list with the bytes that
// are left before it allocates memory, so that a damaged length cannot exhaust memory.
class StateReader {
 public:
  // `what` names the bytes in error messages: "the list of tokens". REQUIRES: the bytes outlive the
  // reader.
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
  // Reads the length of a list whose elements take at least `bytes_of_each` bytes. Fails, and
  // returns 0, if fewer bytes are left than such a list takes.
  [[nodiscard]] size_t Length(size_t bytes_of_each) {
    const auto length = Number<uint64_t>();
    if (length <= left_.size() / bytes_of_each) return length;
    Fail("it ends within a list of " + std::to_string(length));
    return 0;
  }

  // Marks the bytes as corrupt, for a caller that read values which make no sense. Only the first
  // error is kept.
  void Fail(std::string_view why);
  [[nodiscard]] bool ok() const { return status_.ok(); }
  // Returns Corrupt if a read or Fail() reported an error, otherwise OK.
  [[nodiscard]] const Status& status() const { return status_; }
  // Returns status(), or Corrupt if bytes are left unread.
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

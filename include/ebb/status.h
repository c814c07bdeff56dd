// Status and Result: how the library reports everything that input, disk, memory or the operating
// system can cause. A Status says what was expected, what was found and where, in one sentence.
//
// Thread safety: values; distinct objects may be used from distinct threads.
//
// SPDX-License-Identifier: MIT
#ifndef EBB_STATUS_H_
#define EBB_STATUS_H_

#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace [[gnu::visibility("default")]] ebb {

enum class StatusCode {
  kOk = 0,
  kInvalidArgument,    // the caller's options or input are wrong; nothing was changed
  kNotFound,           // a file or a name does not exist
  kUnsupported,        // well-formed, but not something this build can run
  kCorrupt,            // a file or a page does not hold what it should
  kResourceExhausted,  // a cap (bytes, rows, context) is reached
  kIo,                 // the operating system refused a read or a write
  kCancelled,          // the caller asked to stop
  kInternal,           // a fault of ebb's own
};

// "invalid argument", "not found", ... : the words that ToString() begins with.
[[nodiscard]] std::string_view StatusCodeName(StatusCode code);

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  [[nodiscard]] bool ok() const { return code_ == StatusCode::kOk; }
  [[nodiscard]] StatusCode code() const { return code_; }
  [[nodiscard]] const std::string& message() const { return message_; }
  [[nodiscard]] std::string ToString() const;

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

[[nodiscard]] inline Status OkStatus() { return {}; }
[[nodiscard]] Status InvalidArgument(std::string message);
[[nodiscard]] Status NotFound(std::string message);
[[nodiscard]] Status Unsupported(std::string message);
[[nodiscard]] Status Corrupt(std::string message);
[[nodiscard]] Status ResourceExhausted(std::string message);
[[nodiscard]] Status IoError(std::string message);
[[nodiscard]] Status Cancelled(std::string message);
[[nodiscard]] Status Internal(std::string message);

// A T, or the Status that says why there is none.
// REQUIRES for value access: ok(). Reading the value of a failed Result aborts (noexcept).
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}         // NOLINT: implicit
  Result(Status status) : state_(std::in_place_index<1>, std::move(status)) {}  // NOLINT: implicit

  [[nodiscard]] bool ok() const { return state_.index() == 0; }
  [[nodiscard]] Status status() const& { return ok() ? Status() : std::get<1>(state_); }
  [[nodiscard]] Status status() && { return ok() ? Status() : std::get<1>(std::move(state_)); }

  T& operator*() & noexcept { return std::get<0>(state_); }
  const T& operator*() const& noexcept { return std::get<0>(state_); }
  T&& operator*() && noexcept { return std::get<0>(std::move(state_)); }
  T* operator->() noexcept { return &std::get<0>(state_); }
  const T* operator->() const noexcept { return &std::get<0>(state_); }

 private:
  std::variant<T, Status> state_;
};

}  // namespace ebb

// Leaves the enclosing function with the Status of `expr` when that is an error.
#define EBB_RETURN_IF_ERROR(expr)                                                  \
  do {                                                                             \
    if (::ebb::Status ebb_status_ = (expr); !ebb_status_.ok()) return ebb_status_; \
  } while (false)

#define EBB_CONCAT_INNER_(a, b) a##b
#define EBB_CONCAT_(a, b) EBB_CONCAT_INNER_(a, b)
// EBB_ASSIGN_OR_RETURN(auto x, MakeX());
#define EBB_ASSIGN_OR_RETURN(lhs, expr) \
  EBB_ASSIGN_OR_RETURN_IMPL_(EBB_CONCAT_(ebb_result_, __LINE__), lhs, expr)
#define EBB_ASSIGN_OR_RETURN_IMPL_(tmp, lhs, expr) \
  auto tmp = (expr);                               \
  if (!tmp.ok()) return tmp.status();              \
  lhs = *std::move(tmp)

#endif  // EBB_STATUS_H_

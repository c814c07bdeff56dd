// Status and Result are how the library reports every failure that input, disk, memory or the
// operating system can cause; the library does not throw. A Status has three parts: a code, which
// is all that a caller needs to decide how to go on; the name of the option or field that is wrong,
// if there is one; and a sentence that says what was expected, what was found and where.
//
// Thread safety: Status and Result are values; distinct objects may be used from distinct threads.
//
// SPDX-License-Identifier: MIT
#ifndef EBB_STATUS_H_
#define EBB_STATUS_H_

#include <concepts>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace [[gnu::visibility("default")]] ebb {

// StatusCode is the kind of an error, by which a caller can decide how to continue.
enum class StatusCode {
  kOk = 0,
  kInvalidArgument,   // the caller's options or input are wrong; nothing was changed
  kNotFound,          // a file or a name does not exist
  kUnsupported,       // well-formed, but not something this build can run
  kCorrupt,           // a file or a page does not hold what it should
  kContextFull,       // the context of a session has no room for these tokens
  kT0Full,            // the cap of T0, or of a cache without tiers, is reached
  kT1Full,            // the cap of T1 is reached
  kOutOfMemory,       // the system or a device has no more memory, addresses or threads
  kStorageFull,       // a disk or a session store has no more space
  kQueueFull,         // the server's queue of requests is full
  kDeadlineExceeded,  // the deadline of a request passed before its end
  kIo,                // the operating system refused a read or a write
  kCancelled,         // the caller asked to stop
  kInternal,          // a fault of ebb's own
};

// Returns the words that ToString() begins with: "invalid argument", "not found", ...
[[nodiscard]] std::string_view StatusCodeName(StatusCode code);

// Returns whether the call failed because a limit was reached: kContextFull, kT0Full, kT1Full,
// kOutOfMemory, kStorageFull or kQueueFull. The same call succeeds once there is room.
[[nodiscard]] bool IsLimit(StatusCode code);

// Status is the outcome of a call: OK, or an error with its code, field and sentence.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}
  Status(StatusCode code, std::string field, std::string message)
      : code_(code), field_(std::move(field)), message_(std::move(message)) {}

  [[nodiscard]] bool ok() const { return code_ == StatusCode::kOk; }
  [[nodiscard]] StatusCode code() const { return code_; }
  // Returns the option, request field or argument that is wrong, by its name in the interface that
  // was called: "memory_bytes", "messages[0].role". Empty: the error is about no single field.
  [[nodiscard]] const std::string& field() const { return field_; }
  // Returns the sentence, which does not repeat field().
  [[nodiscard]] const std::string& message() const { return message_; }
  // Returns field(), if there is one, and the sentence: "messages[0].role: expected ...".
  [[nodiscard]] std::string Text() const;
  // Returns the name of the code and Text(): "invalid argument: messages[0].role: expected ...".
  [[nodiscard]] std::string ToString() const;

  // Returns the same error with "prefix: " before its sentence, for example the name of the file
  // that was being read.
  [[nodiscard]] Status WithPrefix(std::string_view prefix) const;

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string field_;
  std::string message_;
};

[[nodiscard]] inline Status OkStatus() { return {}; }
[[nodiscard]] Status InvalidArgument(std::string message);
[[nodiscard]] Status InvalidArgument(std::string field, std::string message);
[[nodiscard]] Status NotFound(std::string message);
[[nodiscard]] Status Unsupported(std::string message);
[[nodiscard]] Status Unsupported(std::string field, std::string message);
[[nodiscard]] Status Corrupt(std::string message);
[[nodiscard]] Status ContextFull(std::string message);
[[nodiscard]] Status T0Full(std::string message);
[[nodiscard]] Status T1Full(std::string message);
[[nodiscard]] Status OutOfMemory(std::string message);
[[nodiscard]] Status StorageFull(std::string message);
[[nodiscard]] Status QueueFull(std::string message);
[[nodiscard]] Status DeadlineExceeded(std::string message);
[[nodiscard]] Status IoError(std::string message);
[[nodiscard]] Status Cancelled(std::string message);
[[nodiscard]] Status Internal(std::string message);

// Result holds a T, or the error that says why there is no T. The error is a Status, or another E
// where a part of the program reports more than a Status holds. REQUIRES: ok() before the value is
// read, !ok() before error(). The program aborts otherwise, since the accessors are noexcept.
template <typename T, typename E = Status>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}  // NOLINT: implicit
  Result(E error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT: implicit

  [[nodiscard]] bool ok() const { return state_.index() == 0; }
  [[nodiscard]] const E& error() const& noexcept { return std::get<1>(state_); }
  [[nodiscard]] E&& error() && noexcept { return std::get<1>(std::move(state_)); }
  // Returns error(), or the OK status.
  [[nodiscard]] Status status() const& requires std::same_as<E, Status> {
    return ok() ? Status() : error();
  }
  [[nodiscard]] Status status() && requires std::same_as<E, Status> {
    return ok() ? Status() : std::move(*this).error();
  }

  T& operator*() & noexcept { return std::get<0>(state_); }
  const T& operator*() const& noexcept { return std::get<0>(state_); }
  T&& operator*() && noexcept { return std::get<0>(std::move(state_)); }
  T* operator->() noexcept { return &std::get<0>(state_); }
  const T* operator->() const noexcept { return &std::get<0>(state_); }

 private:
  std::variant<T, E> state_;
};

}  // namespace ebb

// Returns the Status of `expr` from the enclosing function if it is an error.
#define EBB_RETURN_IF_ERROR(expr)                                                  \
  do {                                                                             \
    if (::ebb::Status ebb_status_ = (expr); !ebb_status_.ok()) return ebb_status_; \
  } while (false)

#define EBB_CONCAT_INNER_(a, b) a##b
#define EBB_CONCAT_(a, b) EBB_CONCAT_INNER_(a, b)
// EBB_ASSIGN_OR_RETURN(auto x, MakeX()) assigns the value of MakeX() to x; if MakeX() failed,
// returns its error from the enclosing function.
#define EBB_ASSIGN_OR_RETURN(lhs, expr) \
  EBB_ASSIGN_OR_RETURN_IMPL_(EBB_CONCAT_(ebb_result_, __LINE__), lhs, expr)
#define EBB_ASSIGN_OR_RETURN_IMPL_(tmp, lhs, expr) \
  auto tmp = (expr);                               \
  if (!tmp.ok()) return std::move(tmp).error();    \
  lhs = *std::move(tmp)

#endif  // EBB_STATUS_H_

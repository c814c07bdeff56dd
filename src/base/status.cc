#include "ebb/status.h"

namespace ebb {

std::string_view StatusCodeName(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return "ok";
    case StatusCode::kInvalidArgument:
      return "invalid argument";
    case StatusCode::kNotFound:
      return "not found";
    case StatusCode::kUnsupported:
      return "unsupported";
    case StatusCode::kCorrupt:
      return "corrupt";
    case StatusCode::kContextFull:
      return "context full";
    case StatusCode::kT0Full:
      return "T0 full";
    case StatusCode::kT1Full:
      return "T1 full";
    case StatusCode::kOutOfMemory:
      return "out of memory";
    case StatusCode::kStorageFull:
      return "storage full";
    case StatusCode::kQueueFull:
      return "queue full";
    case StatusCode::kDeadlineExceeded:
      return "deadline exceeded";
    case StatusCode::kIo:
      return "input/output error";
    case StatusCode::kCancelled:
      return "cancelled";
    case StatusCode::kInternal:
      return "internal error";
  }
  return "unknown";
}

bool IsLimit(StatusCode code) {
  switch (code) {
    case StatusCode::kContextFull:
    case StatusCode::kT0Full:
    case StatusCode::kT1Full:
    case StatusCode::kOutOfMemory:
    case StatusCode::kStorageFull:
    case StatusCode::kQueueFull:
      return true;
    default:
      return false;
  }
}

std::string Status::Text() const { return field_.empty() ? message_ : field_ + ": " + message_; }

std::string Status::ToString() const {
  std::string text(StatusCodeName(code_));
  if (const std::string rest = Text(); !rest.empty()) text.append(": ").append(rest);
  return text;
}

Status Status::WithPrefix(std::string_view prefix) const {
  return {code_, field_, std::string(prefix) + ": " + message_};
}

Status InvalidArgument(std::string message) {
  return {StatusCode::kInvalidArgument, std::move(message)};
}
Status InvalidArgument(std::string field, std::string message) {
  return {StatusCode::kInvalidArgument, std::move(field), std::move(message)};
}
Status NotFound(std::string message) { return {StatusCode::kNotFound, std::move(message)}; }
Status Unsupported(std::string message) { return {StatusCode::kUnsupported, std::move(message)}; }
Status Unsupported(std::string field, std::string message) {
  return {StatusCode::kUnsupported, std::move(field), std::move(message)};
}
Status Corrupt(std::string message) { return {StatusCode::kCorrupt, std::move(message)}; }
Status ContextFull(std::string message) { return {StatusCode::kContextFull, std::move(message)}; }
Status T0Full(std::string message) { return {StatusCode::kT0Full, std::move(message)}; }
Status T1Full(std::string message) { return {StatusCode::kT1Full, std::move(message)}; }
Status OutOfMemory(std::string message) { return {StatusCode::kOutOfMemory, std::move(message)}; }
Status StorageFull(std::string message) { return {StatusCode::kStorageFull, std::move(message)}; }
Status QueueFull(std::string message) { return {StatusCode::kQueueFull, std::move(message)}; }
Status DeadlineExceeded(std::string message) {
  return {StatusCode::kDeadlineExceeded, std::move(message)};
}
Status IoError(std::string message) { return {StatusCode::kIo, std::move(message)}; }
Status Cancelled(std::string message) { return {StatusCode::kCancelled, std::move(message)}; }
Status Internal(std::string message) { return {StatusCode::kInternal, std::move(message)}; }

}  // namespace ebb

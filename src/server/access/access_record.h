// The fields of one request in the access log, and the format of its line.
#ifndef EBB_SERVER_ACCESS_ACCESS_RECORD_H_
#define EBB_SERVER_ACCESS_ACCESS_RECORD_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "src/server/engine/job.h"

namespace ebb::server {

enum class AccessLogFormat { kText, kJson };

// Sums over the choices of a request that the engine answered.
struct AccessUsage {
  int64_t prompt_tokens = 0;  // once for each prompt, however many choices it has
  int64_t cached_tokens = 0;  // of these, those whose rows were there already
  int64_t generated_tokens = 0;
  int64_t thought_tokens = 0;  // of these
  int64_t num_parks = 0;
  std::string finish = {};         // "stop"; "length,stop" where choices ended differently
  double queue_seconds = 0;        // the shortest
  double first_token_seconds = 0;  // the shortest; 0: no token was generated

  // is_first: of the choices of its prompt.
  void Add(const JobEnd& end, bool is_first);
};

struct AccessRecord {
  std::chrono::system_clock::time_point time;  // when the request's header was read
  std::string request_id = {};
  std::string key = {};  // the key's name; empty: none
  std::string remote = {};
  std::string method = {};  // empty: what came is no request
  std::string path = {};
  int status = 0;  // 499: the client went before the answer began
  std::optional<AccessUsage> usage = {};
  double total_seconds = 0;     // until the answer was sent, or the client had gone
  uint64_t request_bytes = 0;   // of the body
  uint64_t response_bytes = 0;  // with the head
  bool is_complete = false;
  std::string error = {};  // the error's code and its detail, which the client does not see
  std::string traceparent = {};
};

// Without a line end, in printable ASCII, at most 4,096 bytes (PIPE_BUF) with it.
[[nodiscard]] std::string FormatRecord(const AccessRecord& record, AccessLogFormat format);

}  // namespace ebb::server

#endif  // EBB_SERVER_ACCESS_ACCESS_RECORD_H_

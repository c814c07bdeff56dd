// Holds the fields of one request in the access log and formats them as a line.
#ifndef EBB_SERVER_ACCESS_ACCESS_RECORD_H_
#define EBB_SERVER_ACCESS_ACCESS_RECORD_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "src/server/engine/job.h"

namespace ebb::server {

enum class AccessLogFormat { kText, kJson };

// Sums the figures of all choices of a request that the engine answered.
struct AccessUsage {
  int64_t prompt_tokens = 0;  // tokens of all prompts; each prompt counts once
  int64_t cached_tokens = 0;  // of `prompt_tokens`, those found by prefix caching
  int64_t generated_tokens = 0;
  int64_t thought_tokens = 0;  // of `generated_tokens`
  int64_t num_parks = 0;
  std::string finish = {};         // finish reasons, each once: "stop", "length,stop"
  double queue_seconds = 0;        // the shortest wait in the queue
  double first_token_seconds = 0;  // the shortest time to the first token; 0: no token

  // Adds the figures of one choice. `is_first`: it is the first choice of its prompt, so that its
  // prompt's tokens count.
  void Add(const JobEnd& end, bool is_first);
};

struct AccessRecord {
  std::chrono::system_clock::time_point time;  // when the request's header was read
  std::string request_id = {};
  std::string key = {};  // the API key's name; empty: no key
  std::string remote = {};
  std::string method = {};  // empty: the input was no valid request
  std::string path = {};
  int status = 0;  // 499: the client disconnected before the answer began
  std::optional<AccessUsage> usage = {};
  double total_seconds = 0;     // until the answer was sent or the client disconnected
  uint64_t request_bytes = 0;   // of the body
  uint64_t response_bytes = 0;  // of the answer, with its header
  bool is_complete = false;
  std::string error = {};  // the error's code and detail, which is not sent to the client
  std::string traceparent = {};
};

// Returns the line of `record` without '\n', in printable ASCII. The line and its '\n' have at most
// 4,096 bytes (PIPE_BUF).
[[nodiscard]] std::string FormatRecord(const AccessRecord& record, AccessLogFormat format);

}  // namespace ebb::server

#endif  // EBB_SERVER_ACCESS_ACCESS_RECORD_H_

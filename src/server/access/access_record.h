// AccessRecord has the fields of one request in the access log; FormatRecord() makes a line of
// them.
#ifndef EBB_SERVER_ACCESS_ACCESS_RECORD_H_
#define EBB_SERVER_ACCESS_ACCESS_RECORD_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "src/server/engine/job.h"

namespace ebb::server {

enum class AccessLogFormat { kText, kJson };

// AccessUsage sums up the engine's work for all choices of a request.
struct AccessUsage {
  int64_t prompt_tokens = 0;  // each prompt counts once
  int64_t cached_tokens = 0;  // prompt tokens found by prefix caching
  int64_t generated_tokens = 0;
  int64_t thought_tokens = 0;  // generated tokens that are thoughts
  int64_t num_parks = 0;
  std::string finish = {};         // finish reasons, each once, such as "length,stop"
  double queue_seconds = 0;        // wait of the choice that waited least
  double first_token_seconds = 0;  // time of the fastest choice; 0: no token

  // Adds the numbers of one choice. `is_first`: it is the first choice of its prompt, so that the
  // prompt's tokens are counted.
  void Add(const JobEnd& end, bool is_first);
};

struct AccessRecord {
  std::chrono::system_clock::time_point time;  // when the request's header was read
  std::string request_id = {};
  std::string key = {};  // name of the API key; empty: no key
  std::string remote = {};
  std::string method = {};  // empty: the input was no valid request
  std::string path = {};
  int status = 0;  // 499: disconnected before the answer began
  std::optional<AccessUsage> usage = {};
  double total_seconds = 0;     // until the answer was sent or the client left
  uint64_t request_bytes = 0;   // size of the request's body
  uint64_t response_bytes = 0;  // size of the answer with its header
  bool is_complete = false;
  std::string error = {};  // code and detail, which the client does not get
  std::string traceparent = {};
};

// Returns the line of `record` without '\n', in printable ASCII. The line and its '\n' have at most
// 4,096 bytes (PIPE_BUF).
[[nodiscard]] std::string FormatRecord(const AccessRecord& record, AccessLogFormat format);

}  // namespace ebb::server

#endif  // EBB_SERVER_ACCESS_ACCESS_RECORD_H_

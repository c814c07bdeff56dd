#include "src/server/access/access_record.h"

#include <algorithm>
#include <cmath>
#include <ctime>

#include <fmt/format.h>

#include "ebb/generate.h"
#include "src/server/api/base/api_error.h"

namespace ebb::server {
namespace {

std::string UtcTime(std::chrono::system_clock::time_point time) {
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch());
  const auto seconds = static_cast<std::time_t>(ms.count() / 1000);
  std::tm utc = {};
  gmtime_r(&seconds, &utc);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", utc.tm_year + 1900,
                     utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec,
                     ms.count() % 1000);
}

// Returns at most 256 bytes of a client's text: escaping may make six bytes of one, and a line has
// at most PIPE_BUF bytes.
std::string Shortened(const std::string& text) {
  constexpr size_t kMost = 256;
  return text.size() <= kMost ? text : text.substr(0, kMost) + "...";
}

// Rounds to tenths of a millisecond: smaller numbers would be written with an exponent.
double Rounded(double seconds) {
  constexpr double kPerSecond = 1e4;
  return std::round(seconds * kPerSecond) / kPerSecond;
}

// Returns the fields that `record` has, in the order of a line.
Json FieldsOf(const AccessRecord& record) {
  Json fields = {{"time", UtcTime(record.time)}};
  const auto text = [&](const char* name, const std::string& value) {
    if (!value.empty()) fields[name] = Shortened(value);
  };
  text("request_id", record.request_id);
  text("key", record.key);
  text("remote", record.remote);
  text("method", record.method);
  text("path", record.path);
  fields["status"] = record.status;
  if (const auto& usage = record.usage) {
    fields["prompt_tokens"] = usage->prompt_tokens;
    fields["cached_tokens"] = usage->cached_tokens;
    fields["generated_tokens"] = usage->generated_tokens;
    fields["thought_tokens"] = usage->thought_tokens;
    fields["parks"] = usage->num_parks;
    fields["finish"] = usage->finish;
    fields["queue_seconds"] = Rounded(usage->queue_seconds);
    if (usage->first_token_seconds > 0) {
      fields["first_token_seconds"] = Rounded(usage->first_token_seconds);
    }
  }
  fields["total_seconds"] = Rounded(record.total_seconds);
  fields["request_bytes"] = record.request_bytes;
  fields["response_bytes"] = record.response_bytes;
  fields["complete"] = record.is_complete;
  text("error", record.error);
  text("traceparent", record.traceparent);
  return fields;
}

// Returns `json` in printable ASCII. The library leaves DEL as it is, so this function escapes it.
std::string Ascii(const Json& json) {
  const std::string text =
      json.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
  std::string ascii;
  for (const char c : text) {
    c == '\x7f' ? ascii += "\\u007f" : ascii += c;
  }
  return ascii;
}

// Returns a value as the text format writes it: a string is quoted only if it holds a character
// that could be mistaken for the end of the value.
std::string TextValue(const Json& value) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~:/,+%@";
  if (!value.is_string()) return value.dump();
  const auto& text = value.get_ref<const std::string&>();
  return text.find_first_not_of(kPlain) == std::string::npos && !text.empty() ? text : Ascii(value);
}

}  // namespace

void AccessUsage::Add(const JobEnd& end, bool is_first) {
  if (is_first) prompt_tokens += end.prompt_tokens;
  if (is_first) cached_tokens += end.cached_tokens;
  generated_tokens += end.generated_tokens;
  thought_tokens += end.thought_tokens;
  num_parks += end.num_parks;
  const double first = end.generated_tokens > 0 ? end.first_token_seconds : 0;
  queue_seconds = finish.empty() ? end.queue_seconds : std::min(queue_seconds, end.queue_seconds);
  if (first > 0 && (first_token_seconds == 0 || first < first_token_seconds)) {
    first_token_seconds = first;
  }
  const std::string name(FinishReasonName(end.finish));
  if ((',' + finish + ',').find(',' + name + ',') == std::string::npos) {
    finish += finish.empty() ? name : ',' + name;
  }
}

std::string FormatRecord(const AccessRecord& record, AccessLogFormat format) {
  const Json fields = FieldsOf(record);
  if (format == AccessLogFormat::kJson) return Ascii(fields);
  std::string line;
  for (const auto& [name, value] : fields.items()) {
    line += fmt::format("{}{}={}", line.empty() ? "" : " ", name, TextValue(value));
  }
  return line;
}

}  // namespace ebb::server

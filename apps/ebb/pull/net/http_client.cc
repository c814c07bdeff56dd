#include "apps/ebb/pull/net/http_client.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <thread>
#include <utility>

#include <curl/curl.h>
#include <fmt/format.h>

#include "apps/ebb/interrupt.h"
#include "ebb/version.h"

namespace ebb::cli {
namespace {

constexpr int kMostRedirects = 10;
constexpr size_t kMostHeaders = 200;

std::string LowerCase(std::string_view text) {
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
  return lower;
}

std::string_view Trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) return "";
  return text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

// A parsed URL.
class Url {
 public:
  explicit Url(const std::string& text) : handle_(curl_url()) {
    is_valid_ =
        curl_url_set(handle_, CURLUPART_URL, text.c_str(), CURLU_NON_SUPPORT_SCHEME) == CURLUE_OK;
  }
  ~Url() { curl_url_cleanup(handle_); }
  Url(const Url&) = delete;
  Url& operator=(const Url&) = delete;

  [[nodiscard]] std::string Part(CURLUPart part, unsigned flags = 0) const {
    char* text = nullptr;
    if (!is_valid_ || curl_url_get(handle_, part, &text, flags) != CURLUE_OK) return "";
    std::string copy = text;
    curl_free(text);
    return copy;
  }

 private:
  CURLU* handle_;
  bool is_valid_ = false;
};

bool IsRedirect(long status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

// One transfer.
struct Transfer {
  HttpAnswer answer;
  const HttpClient::Sink* sink = nullptr;
  Status sink_status;
};

size_t OnHeader(const char* data, size_t size, size_t count, void* context) {
  auto* transfer = static_cast<Transfer*>(context);
  const std::string_view line = Trimmed({data, size * count});
  if (line.starts_with("HTTP/")) {  // a new head, behind one of 100 or of a proxy
    transfer->answer.headers.clear();
    const size_t space = line.find(' ');
    if (space != std::string_view::npos) {
      transfer->answer.status = std::atol(std::string(line.substr(space + 1)).c_str());
    }
    return size * count;
  }
  const size_t colon = line.find(':');
  if (colon != std::string_view::npos && transfer->answer.headers.size() < kMostHeaders) {
    transfer->answer.headers[LowerCase(line.substr(0, colon))] = Trimmed(line.substr(colon + 1));
  }
  return size * count;
}

size_t OnBody(const char* data, size_t size, size_t count, void* context) {
  auto* transfer = static_cast<Transfer*>(context);
  const std::string_view bytes(data, size * count);
  HttpAnswer& answer = transfer->answer;
  if (answer.ok() && *transfer->sink) {
    transfer->sink_status = (*transfer->sink)(answer, bytes);
    return transfer->sink_status.ok() ? bytes.size() : 0;
  }
  if (answer.body.size() + bytes.size() > kMostBody) {
    transfer->sink_status =
        IoError(fmt::format("the answer has more than {} MiB", kMostBody >> 20));
    return 0;
  }
  answer.body += bytes;
  return bytes.size();
}

int OnProgress(void*, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  return Interrupted() ? 1 : 0;
}

HttpFailure::Kind KindOf(CURLcode code) {
  switch (code) {
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_CONNECT:
      return HttpFailure::Kind::kUnreachable;
    case CURLE_PARTIAL_FILE:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM:
      return HttpFailure::Kind::kLost;
    default:
      return HttpFailure::Kind::kFinal;
  }
}

HttpFailure Final(Status status) { return {HttpFailure::Kind::kFinal, std::move(status)}; }

}  // namespace

struct HttpClient::Curl {
  Curl() : handle(curl_easy_init()) {}
  ~Curl() { curl_easy_cleanup(handle); }
  Curl(const Curl&) = delete;
  Curl& operator=(const Curl&) = delete;
  CURL* handle;
};

std::string HttpAnswer::Header(const std::string& name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? "" : found->second;
}

HttpClient::HttpClient(HttpSettings settings) : settings_(std::move(settings)) {
  static const CURLcode initialized = curl_global_init(CURL_GLOBAL_DEFAULT);
  (void)initialized;
  curl_ = std::make_unique<Curl>();
}

HttpClient::~HttpClient() = default;

bool HttpClient::IsTransient(long status) {
  return status == 429 || status == 500 || status == 502 || status == 503 || status == 504;
}

Status HttpClient::Wait(int attempt, int64_t retry_after, std::string_view reason) const {
  using std::chrono::milliseconds;
  if (retry_after > settings_.most_wait.count()) {
    return IoError(
        fmt::format("{}; the server asks to wait {} s, more than the {} s that ebb "
                    "waits: try again later",
                    reason, retry_after, settings_.most_wait.count()));
  }
  constexpr int kMostDoublings = 5;
  milliseconds wait = settings_.first_wait * (1 << std::clamp(attempt - 2, 0, kMostDoublings));
  wait = std::max(wait, milliseconds(retry_after * 1000));
  if (settings_.say) {
    settings_.say(fmt::format("{}; trying again in {:.1f} s", reason,
                              static_cast<double>(wait.count()) / 1000));
  }
  const auto end = std::chrono::steady_clock::now() + wait;
  while (!Interrupted()) {
    const auto now = std::chrono::steady_clock::now();
    if (now >= end) return OkStatus();
    std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(end - now, milliseconds(50)));
  }
  return Cancelled("interrupted");
}

Result<HttpAnswer, HttpFailure> HttpClient::Perform(const HttpRequest& request,
                                                    const std::string& url, const Sink& sink) {
  CURL* curl = curl_->handle;
  if (curl == nullptr) return Final(OutOfMemory("libcurl could not be started"));
  curl_easy_reset(curl);  // keeps connections
  Transfer transfer = {.answer = {.url = url}, .sink = &sink};
  curl_slist* headers = nullptr;
  const auto add = [&](const std::string& line) {
    headers = curl_slist_append(headers, line.c_str());
  };
  for (const std::string& line : request.headers) add(line);
  if (!request.token.empty() && OriginOf(url) == OriginOf(request.url)) {
    add("Authorization: Bearer " + request.token);
  }
  if (request.from > 0) {
    add(fmt::format("Range: bytes={}-", request.from));
    if (!request.if_range.empty()) add("If-Range: " + request.if_range);
  }
  char error[CURL_ERROR_SIZE] = {};
  curl_easy_setopt(curl, CURLOPT_URL, url.c_str());
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
  curl_easy_setopt(curl, CURLOPT_USERAGENT, "ebb/" EBB_VERSION);
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, static_cast<long>(settings_.connect_seconds));
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1000L);
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, static_cast<long>(settings_.stall_seconds));
  curl_easy_setopt(curl, CURLOPT_BUFFERSIZE, 262144L);
  curl_easy_setopt(curl, CURLOPT_TCP_KEEPALIVE, 1L);
  curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, error);
  curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, OnHeader);
  curl_easy_setopt(curl, CURLOPT_HEADERDATA, &transfer);
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, OnBody);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, &transfer);
  curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
  curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, OnProgress);
  // libcurl has a path of its own; OpenSSL's variable names that of a company's proxy.
  if (const char* file = std::getenv("SSL_CERT_FILE"); file != nullptr && *file != '\0') {
    curl_easy_setopt(curl, CURLOPT_CAINFO, file);
  }
  const CURLcode code = curl_easy_perform(curl);
  curl_slist_free_all(headers);
  if (!transfer.sink_status.ok()) return Final(transfer.sink_status);
  if (code == CURLE_ABORTED_BY_CALLBACK || (code != CURLE_OK && Interrupted())) {
    return Final(Cancelled("interrupted"));
  }
  if (code != CURLE_OK) {
    const char* text = *error != '\0' ? error : curl_easy_strerror(code);
    return HttpFailure{KindOf(code), IoError(fmt::format("{}: {}", HostOf(url), text))};
  }
  HttpAnswer& answer = transfer.answer;
  curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &answer.status);
  curl_off_t retry_after = 0;
  curl_easy_getinfo(curl, CURLINFO_RETRY_AFTER, &retry_after);
  answer.retry_after = retry_after;
  if (IsRedirect(answer.status)) {
    char* next = nullptr;
    curl_easy_getinfo(curl, CURLINFO_REDIRECT_URL, &next);
    answer.url = next == nullptr ? "" : next;
  }
  return answer;
}

Result<HttpAnswer, HttpFailure> HttpClient::Stream(const HttpRequest& request, const Sink& sink) {
  std::string url = request.url;
  for (int redirects = 0; redirects <= kMostRedirects; ++redirects) {
    if (OriginOf(url).empty()) {
      return Final(InvalidArgument(fmt::format("expected a URL of http or https, found {}", url)));
    }
    auto answer = Perform(request, url, sink);
    if (!answer.ok() || !IsRedirect(answer->status)) return answer;
    const std::string next = answer->url;
    const std::string origin = OriginOf(next);
    if (origin.empty()) {
      return Final(IoError(fmt::format("{} redirects to {}, which is no URL of http or https",
                                       HostOf(url), next.empty() ? "nothing" : next)));
    }
    if (OriginOf(url).starts_with("https:") && !origin.starts_with("https:")) {
      return Final(IoError(fmt::format("{} redirects from https to http", HostOf(url))));
    }
    url = next;
  }
  return Final(
      IoError(fmt::format("{} redirects more than {} times", HostOf(request.url), kMostRedirects)));
}

Result<HttpAnswer, HttpFailure> HttpClient::Get(const HttpRequest& request) {
  for (int attempt = 1;; ++attempt) {
    Result<HttpAnswer, HttpFailure> answer = Stream(request, nullptr);
    const bool is_last = attempt >= settings_.attempts;
    std::string reason;
    int64_t retry_after = 0;
    if (answer.ok()) {
      if (!IsTransient(answer->status) || is_last) return answer;
      reason = fmt::format("{} answered {}", HostOf(answer->url), answer->status);
      retry_after = answer->retry_after;
    } else {
      if (answer.error().kind != HttpFailure::Kind::kLost || is_last) return answer;
      reason = answer.error().status.message();
    }
    Status status = Wait(attempt + 1, retry_after, reason);
    if (!status.ok()) return Final(std::move(status));
  }
}

std::string OriginOf(const std::string& url) {
  const Url parsed(url);
  const std::string scheme = LowerCase(parsed.Part(CURLUPART_SCHEME));
  if (scheme != "http" && scheme != "https") return "";
  return fmt::format("{}://{}:{}", scheme, LowerCase(parsed.Part(CURLUPART_HOST)),
                     parsed.Part(CURLUPART_PORT, CURLU_DEFAULT_PORT));
}

std::string HostOf(const std::string& url) {
  const Url parsed(url);
  const std::string port = parsed.Part(CURLUPART_PORT);
  return parsed.Part(CURLUPART_HOST) + (port.empty() ? "" : ":" + port);
}

std::string EscapedPath(std::string_view path) {
  std::string escaped;
  for (const char c : path) {
    const auto byte = static_cast<unsigned char>(c);
    const bool stays =
        std::isalnum(byte) != 0 || std::string_view("-._~/").find(c) != std::string_view::npos;
    if (stays && byte < 0x80) {
      escaped += c;
    } else {
      escaped += fmt::format("%{:02X}", byte);
    }
  }
  return escaped;
}

}  // namespace ebb::cli

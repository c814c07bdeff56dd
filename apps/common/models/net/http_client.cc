#include "apps/common/models/net/http_client.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "apps/common/models/net/curl_library.h"
#include "apps/common/terminal/interrupt.h"
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

// UrlParts are the parts of a URL that say which server answers. Only plain URLs are parsed (no
// user name, no escapes, and a host of letters, digits, dots and hyphens), so that libcurl cannot
// read the same text as another server.
struct UrlParts {
  std::string scheme;  // "http" or "https"; empty: no plain URL of these
  std::string host;
  std::string port;  // empty: the usual one
};

UrlParts PartsOfUrl(std::string_view url) {
  const size_t colon = url.find("://");
  if (colon == std::string_view::npos) return {};
  UrlParts parts = {.scheme = LowerCase(url.substr(0, colon))};
  if (parts.scheme != "http" && parts.scheme != "https") return {};
  const std::string_view rest = url.substr(colon + 3);
  const std::string_view place = rest.substr(0, rest.find_first_of("/?#"));
  const size_t port = place.rfind(':');
  parts.host = LowerCase(place.substr(0, port));
  if (port != std::string_view::npos) parts.port = place.substr(port + 1);
  const auto is_host = [](unsigned char c) {
    return c < 0x80 && (std::isalnum(c) != 0 || c == '.' || c == '-');
  };
  const auto is_digit = [](unsigned char c) { return c >= '0' && c <= '9'; };
  const bool has_control =
      std::ranges::any_of(url, [](unsigned char c) { return c <= ' ' || c == 0x7f || c == '\\'; });
  constexpr size_t kMostDigits = 5;
  if (has_control || parts.host.empty() || !std::ranges::all_of(parts.host, is_host) ||
      !std::ranges::all_of(parts.port, is_digit) || parts.port.size() > kMostDigits ||
      place.ends_with(':')) {
    return {};
  }
  return parts;
}

bool IsRedirect(long status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

// One transfer.
struct Transfer {
  HttpAnswer answer;
  const HttpClient::Sink* sink = nullptr;
  Status sink_status;
  uint64_t from = 0;  // HttpRequest's
  uint64_t until = 0;
  bool is_enough = false;  // the bytes up to `until` have come
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
  if (answer.ok() && transfer->until > 0) {
    constexpr long kPartial = 206;
    const uint64_t most = transfer->until - (answer.status == kPartial ? transfer->from : 0);
    if (answer.body.size() + bytes.size() > most) {
      answer.body += bytes.substr(0, most - answer.body.size());
      transfer->is_enough = true;
      return 0;
    }
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
  explicit Curl(const CurlLibrary* loaded) : library(*loaded), handle(library.easy_init()) {}
  ~Curl() { library.easy_cleanup(handle); }
  Curl(const Curl&) = delete;
  Curl& operator=(const Curl&) = delete;

  template <typename Value>
  void Set(CURLoption option, Value value) {
    library.easy_setopt(handle, option, value);
  }
  template <typename Value>
  void Get(CURLINFO info, Value* value) {
    library.easy_getinfo(handle, info, value);
  }

  const CurlLibrary& library;
  CURL* handle;
};

std::string HttpAnswer::Header(const std::string& name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? "" : found->second;
}

HttpClient::HttpClient(HttpSettings settings) : settings_(std::move(settings)) {}

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
  if (curl_ == nullptr) {
    Result<const CurlLibrary*> library = LoadCurl();
    if (!library.ok()) return Final(library.status());
    curl_ = std::make_unique<Curl>(*library);
  }
  Curl& curl = *curl_;
  if (curl.handle == nullptr) return Final(OutOfMemory("libcurl could not be started"));
  curl.library.easy_reset(curl.handle);  // keeps connections
  Transfer transfer = {
      .answer = {.url = url}, .sink = &sink, .from = request.from, .until = request.until};
  curl_slist* headers = nullptr;
  const auto add = [&](const std::string& line) {
    headers = curl.library.slist_append(headers, line.c_str());
  };
  for (const std::string& line : request.headers) add(line);
  if (!request.token.empty() && OriginOf(url) == OriginOf(request.url)) {
    add("Authorization: Bearer " + request.token);
  }
  if (request.from > 0 || request.until > 0) {
    add(fmt::format("Range: bytes={}-{}", request.from,
                    request.until > 0 ? std::to_string(request.until - 1) : ""));
    if (!request.if_range.empty()) add("If-Range: " + request.if_range);
  }
  char error[CURL_ERROR_SIZE] = {};
  curl.Set(CURLOPT_URL, url.c_str());
  curl.Set(CURLOPT_HTTPHEADER, headers);
  curl.Set(CURLOPT_USERAGENT, "ebb/" EBB_VERSION);
  curl.Set(CURLOPT_PROTOCOLS_STR, "http,https");
  curl.Set(CURLOPT_CONNECTTIMEOUT, static_cast<long>(settings_.connect_seconds));
  curl.Set(CURLOPT_LOW_SPEED_LIMIT, 1000L);
  curl.Set(CURLOPT_LOW_SPEED_TIME, static_cast<long>(settings_.stall_seconds));
  curl.Set(CURLOPT_BUFFERSIZE, 262144L);
  curl.Set(CURLOPT_TCP_KEEPALIVE, 1L);
  curl.Set(CURLOPT_ERRORBUFFER, error);
  curl.Set(CURLOPT_HEADERFUNCTION, OnHeader);
  curl.Set(CURLOPT_HEADERDATA, &transfer);
  curl.Set(CURLOPT_WRITEFUNCTION, OnBody);
  curl.Set(CURLOPT_WRITEDATA, &transfer);
  curl.Set(CURLOPT_NOPROGRESS, 0L);
  curl.Set(CURLOPT_XFERINFOFUNCTION, OnProgress);
  // libcurl has its own path of certificates; $SSL_CERT_FILE, OpenSSL's variable, may name those of
  // a company's proxy.
  if (const char* file = std::getenv("SSL_CERT_FILE"); file != nullptr && *file != '\0') {
    curl.Set(CURLOPT_CAINFO, file);
  }
  CURLcode code = curl.library.easy_perform(curl.handle);
  if (transfer.is_enough) code = CURLE_OK;
  curl.library.slist_free_all(headers);
  if (!transfer.sink_status.ok()) return Final(transfer.sink_status);
  if (code == CURLE_ABORTED_BY_CALLBACK || (code != CURLE_OK && Interrupted())) {
    return Final(Cancelled("interrupted"));
  }
  if (code != CURLE_OK) {
    const char* text = *error != '\0' ? error : curl.library.easy_strerror(code);
    const bool has_network =
        code != CURLE_COULDNT_RESOLVE_HOST && code != CURLE_COULDNT_RESOLVE_PROXY;
    const char* advice = has_network ? ""
                                     : "; without network, `ebb list` shows the models that are "
                                       "here, and `ebb fit --list` which known ones would fit";
    return HttpFailure{KindOf(code), IoError(fmt::format("{}: {}{}", HostOf(url), text, advice))};
  }
  HttpAnswer& answer = transfer.answer;
  curl.Get(CURLINFO_RESPONSE_CODE, &answer.status);
  curl_off_t retry_after = 0;
  curl.Get(CURLINFO_RETRY_AFTER, &retry_after);
  answer.retry_after = retry_after;
  if (IsRedirect(answer.status)) {
    char* next = nullptr;
    curl.Get(CURLINFO_REDIRECT_URL, &next);
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

std::optional<uint64_t> ParseDigits(std::string_view text) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::optional<ContentRange> ParseContentRange(std::string_view text) {
  constexpr std::string_view kUnit = "bytes ";
  if (!text.starts_with(kUnit)) return std::nullopt;
  text.remove_prefix(kUnit.size());
  const size_t dash = text.find('-');
  const size_t slash = text.find('/');
  if (dash == std::string_view::npos || slash == std::string_view::npos) return std::nullopt;
  const auto first = ParseDigits(text.substr(0, dash));
  if (!first) return std::nullopt;
  return ContentRange{.first = *first, .total = ParseDigits(text.substr(slash + 1))};
}

std::string OriginOf(const std::string& url) {
  const UrlParts parts = PartsOfUrl(url);
  if (parts.scheme.empty()) return "";
  const std::string usual = parts.scheme == "https" ? "443" : "80";
  return fmt::format("{}://{}:{}", parts.scheme, parts.host,
                     parts.port.empty() ? usual : parts.port);
}

std::string HostOf(const std::string& url) {
  const UrlParts parts = PartsOfUrl(url);
  return parts.host + (parts.port.empty() ? "" : ":" + parts.port);
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

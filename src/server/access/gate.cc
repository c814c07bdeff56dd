#include "src/server/access/gate.h"

#include <algorithm>
#include <utility>

#include <arpa/inet.h>
#include <fmt/format.h>

#include "src/store/plain_name.h"

namespace ebb::server {
namespace {

constexpr const char* kRequestId = "X-Request-Id";

char LowerCase(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

// Returns the token after the scheme "Bearer", in upper or lower case; empty for another scheme.
std::string_view BearerOf(std::string_view authorization) {
  constexpr std::string_view kBearer = "bearer ";
  const std::string_view scheme = authorization.substr(0, kBearer.size());
  if (!std::ranges::equal(scheme, kBearer, {}, LowerCase)) return {};
  authorization.remove_prefix(kBearer.size());
  authorization.remove_prefix(std::min(authorization.find_first_not_of(' '), authorization.size()));
  return authorization;
}

// Returns the name of a host in lower case, without its port, its brackets and the dot at its end:
// "localhost" for "LocalHost.:8080", "::1" for "[::1]:8080".
std::string NameOf(std::string_view host) {
  if (host.starts_with('[')) return std::string(host.substr(1, host.find(']') - 1));
  std::string name(host.substr(0, host.find(':')));
  if (name.size() > 1 && name.ends_with('.')) name.pop_back();
  std::ranges::transform(name, name.begin(), LowerCase);
  return name;
}

// Returns whether a host, in lower case, is an address or a name that DNS cannot direct elsewhere.
bool IsOwnName(const std::string& lower) {
  if (lower == "localhost" || lower.ends_with(".localhost")) return true;
  in6_addr address = {};
  return inet_pton(AF_INET, lower.c_str(), &address) == 1 ||
         inet_pton(AF_INET6, lower.c_str(), &address) == 1;
}

// Returns whether `origin` is a page of a server on this machine, such as "http://localhost:3000".
bool IsLocalOrigin(std::string_view origin) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!origin.starts_with(scheme)) continue;
    const std::string_view host = origin.substr(scheme.size());
    const std::string name = NameOf(host);
    const bool is_local = name == "localhost" || name == "127.0.0.1" || name == "::1";
    const std::string_view written = name == "::1" ? std::string_view("[::1]") : name;
    if (!is_local || !host.starts_with(written)) return false;
    const std::string_view port = host.substr(written.size());
    return port.empty() || (port.size() > 1 && port.front() == ':' &&
                            port.find_first_not_of("0123456789", 1) == std::string_view::npos);
  }
  return false;
}

std::string Words(UsageLimit limit) {
  switch (limit) {
    case UsageLimit::kConcurrent:
      return "requests at a time";
    case UsageLimit::kRequests:
      return "requests per minute";
    case UsageLimit::kTokens:
      return "tokens per minute";
  }
  return "";
}

uint64_t ValueOf(UsageLimit limit, const KeyLimits& limits) {
  switch (limit) {
    case UsageLimit::kConcurrent:
      return limits.concurrent.value_or(0);
    case UsageLimit::kRequests:
      return limits.requests_per_minute.value_or(0);
    case UsageLimit::kTokens:
      return limits.tokens_per_minute.value_or(0);
  }
  return 0;
}

}  // namespace

bool IsRequestId(std::string_view text) {
  constexpr size_t kMost = 128;
  return store::IsPlainName(text, kMost, "._:-");
}

void Gate::SetKeys(std::shared_ptr<const KeyRing> keys) {
  const MutexLock lock(mutex_);
  keys_ = std::move(keys);
}

std::shared_ptr<const KeyRing> Gate::keys() const {
  const MutexLock lock(mutex_);
  return keys_;
}

std::optional<ApiError> Gate::Admit(Access access, HttpRequest* request) {
  const std::shared_ptr<const KeyRing> keys = this->keys();
  if (keys == nullptr) return CheckPage(*request);
  if (access == Access::kOpen) return std::nullopt;
  const std::string_view given[] = {BearerOf(request->header("authorization")),
                                    request->header("x-api-key")};
  bool any = false;
  for (const std::string_view text : given) {
    if (text.empty() || request->key != nullptr) continue;
    any = true;
    request->key = keys->Find(text);
  }
  if (request->key == nullptr) {
    return ApiError{.status = 401,
                    .message = any ? "this API key is not known"
                                   : "expected an API key, as Authorization: Bearer KEY or as "
                                     "X-Api-Key",
                    .code = any ? "invalid_api_key" : "missing_api_key"};
  }
  if (access == Access::kAdmin && !request->key->is_admin) {
    return ApiError{
        .status = 403,
        .message = fmt::format("{} needs an admin's API key, which "
                               "`ebb serve --api-keys FILE --new-key NAME --admin` makes",
                               request->path),
        .code = "admin_key_needed"};
  }
  return std::nullopt;
}

// Refuses requests to another host name, and requests that a page of another origin makes a browser
// send, because a server without keys would answer them.
std::optional<ApiError> Gate::CheckPage(const HttpRequest& request) const {
  const std::string_view host = request.header("host");
  const std::string name = NameOf(host);
  if (hosts_.has_value() && !host.empty() && !IsOwnName(name) &&
      std::ranges::find(*hosts_, name, NameOf) == hosts_->end()) {
    return ApiError{
        .status = 403,
        .message = fmt::format("the server is not called \"{}\"; --allow-host lets it be", name),
        .code = "host_not_allowed"};
  }
  const std::string_view origin = request.header("origin");
  if (origin.empty() || request.method == "GET" || request.method == "OPTIONS" ||
      IsAllowedOrigin(origin)) {
    return std::nullopt;
  }
  const size_t scheme = origin.find("://");
  if (scheme != std::string_view::npos && origin.substr(scheme + 3) == host) return std::nullopt;
  return ApiError{.status = 403,
                  .message = fmt::format("pages of {} may not ask; --cors lets them", origin),
                  .code = "origin_not_allowed"};
}

bool Gate::IsAllowedOrigin(std::string_view origin) const {
  return !origin.empty() && std::ranges::any_of(cors_origins_, [&](const std::string& allowed) {
    return allowed == "localhost" ? IsLocalOrigin(origin) : allowed == "*" || allowed == origin;
  });
}

std::optional<HttpAnswer> Gate::Preflight(const HttpRequest& request) const {
  const bool asks = request.method == "OPTIONS" && !cors_origins_.empty() &&
                    !request.header("access-control-request-method").empty() &&
                    !request.header("origin").empty();
  if (!asks) return std::nullopt;
  // Without Access-Control-Allow headers in this answer, the browser refuses the page's request.
  if (!IsAllowedOrigin(request.header("origin"))) return HttpAnswer{.content_type = ""};
  // Allows exactly the headers that the browser names: client libraries add some, such as
  // X-Stainless-Lang, and "*" would not cover Authorization.
  std::string_view headers = request.header("access-control-request-headers");
  if (headers.empty()) headers = "Authorization, Content-Type, X-Api-Key, X-Request-Id";
  // Some embedded browsers do not accept 204 as the answer to a preflight request.
  return HttpAnswer{.status = 200,
                    .content_type = "",
                    .headers = {{"Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS"},
                                {"Access-Control-Allow-Headers", std::string(headers)},
                                {"Access-Control-Max-Age", "3600"}}};
}

Headers Gate::HeadersFor(const HttpRequest& request) {
  const std::string_view id = request.header("x-request-id");
  Headers headers = {{kRequestId, IsRequestId(id)
                                      ? std::string(id)
                                      : fmt::format("req-{:08x}{:08x}", run_id_, next_id_++)}};
  if (cors_origins_.empty()) return headers;
  headers.emplace_back("Vary", "Origin");
  const std::string_view origin = request.header("origin");
  if (!IsAllowedOrigin(origin)) return headers;
  headers.emplace_back("Access-Control-Allow-Origin", origin);
  headers.emplace_back(
      "Access-Control-Expose-Headers",
      "Retry-After, X-Ebb-Ignored, X-Ebb-Mended, X-Request-Id, X-RateLimit-Remaining-Requests, "
      "X-RateLimit-Remaining-Tokens");
  return headers;
}

std::shared_ptr<Reply> Gate::WithHeaders(std::shared_ptr<Reply> reply, Headers headers) {
  return WithChangedAnswers(std::move(reply), [headers = std::move(headers)](HttpAnswer answer) {
    for (const auto& header : headers) {
      const bool is_there = std::ranges::any_of(
          answer.headers, [&](const auto& other) { return other.first == header.first; });
      if (!is_there) answer.headers.push_back(header);
    }
    return answer;
  });
}

Gate::Account& Gate::AccountOf(const ApiKey& key) {
  const auto [found, is_new] = accounts_.try_emplace(key.name);
  // Owners with keys count from 1, because requests without a key have owner 0.
  if (is_new) found->second.owner = accounts_.size();
  return found->second;
}

ApiResult<std::shared_ptr<Gate::Ticket>> Gate::Enter(const HttpRequest& request) {
  if (request.key == nullptr) return std::shared_ptr<Ticket>(new Ticket(this, nullptr, 0));
  const ApiKey& key = *request.key;
  const MutexLock lock(mutex_);
  Account& account = AccountOf(key);
  if (const auto refusal = account.usage.Begin(key.limits, Now())) {
    return ApiError{
        .status = 429,
        .message = fmt::format("the key \"{}\" may have {} {}", key.name,
                               ValueOf(refusal->limit, key.limits), Words(refusal->limit)),
        .code = "rate_limit_exceeded",
        .retry_after = refusal->retry_after};
  }
  return std::shared_ptr<Ticket>(new Ticket(this, request.key, account.owner));
}

Headers Gate::LimitHeaders(const HttpRequest& request) const {
  if (request.key == nullptr) return {};
  const MutexLock lock(mutex_);
  const auto found = accounts_.find(request.key->name);
  const KeyUsage unused;
  const KeyUsage& usage = found == accounts_.end() ? unused : found->second.usage;
  return usage.Headers(request.key->limits, Now());
}

bool Gate::MaySee(const HttpRequest& request, const Ticket& ticket) const {
  if (request.key == nullptr || request.key->is_admin) return true;
  return ticket.key() != nullptr && ticket.key()->name == request.key->name;
}

Gate::Ticket::~Ticket() {
  if (key_ == nullptr) return;
  const MutexLock lock(gate_->mutex_);
  gate_->AccountOf(*key_).usage.End();
}

ApiResult<int> Gate::Ticket::PriorityFor(std::optional<int> wanted) const {
  if (key_ == nullptr) return wanted.value_or(0);
  const int lowest = key_->limits.lowest_priority, highest = key_->limits.highest_priority;
  const int priority = wanted.value_or(std::clamp(0, lowest, highest));
  if (priority >= lowest && priority <= highest) return priority;
  return ApiError{.status = 403,
                  .message = fmt::format("priority: the key \"{}\" may have {} to {}, found {}",
                                         key_->name, lowest, highest, priority),
                  .code = "priority_not_allowed",
                  .param = "priority"};
}

void Gate::Ticket::Charge(uint64_t tokens) {
  if (key_ == nullptr) return;
  const MutexLock lock(gate_->mutex_);
  gate_->AccountOf(*key_).usage.Charge(key_->limits, tokens, gate_->Now());
}

}  // namespace ebb::server

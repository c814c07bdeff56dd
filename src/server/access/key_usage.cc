#include "src/server/access/key_usage.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace ebb::server {
namespace {

constexpr double kMinute = 60;

// Formats a duration as OpenAI's headers do: "1m30.5s".
std::string Duration(double seconds) {
  const auto tenths = static_cast<int64_t>(std::ceil(seconds * 10));
  const int64_t minutes = tenths / 600;
  const double rest = static_cast<double>(tenths % 600) / 10;
  return minutes > 0 ? fmt::format("{}m{:.3g}s", minutes, rest) : fmt::format("{:.3g}s", rest);
}

}  // namespace

double KeyUsage::Bucket::LevelAt(uint64_t size, double now) const {
  const auto full = static_cast<double>(size);
  const double back = std::max(0.0, now - time_) * full / kMinute;
  return full - std::max(0.0, missing_ - back);
}

void KeyUsage::Bucket::Take(uint64_t size, double amount, double now) {
  missing_ = static_cast<double>(size) - LevelAt(size, now) + amount;
  time_ = std::max(time_, now);
}

double KeyUsage::Bucket::SecondsUntil(uint64_t size, double level, double now) const {
  const double lacking = level - LevelAt(size, now);
  return std::max(0.0, lacking) * kMinute / static_cast<double>(size);
}

std::optional<UsageRefusal> KeyUsage::Begin(const KeyLimits& limits, double now) {
  if (limits.concurrent.has_value() && num_running_ >= *limits.concurrent) {
    // When a running request will end is unknown, so that the client should retry after a second.
    return UsageRefusal{UsageLimit::kConcurrent, 1};
  }
  const auto wait = [&](const std::optional<uint64_t>& size, const Bucket& bucket) {
    return size.has_value() ? bucket.SecondsUntil(*size, 1, now) : 0;
  };
  if (const double seconds = wait(limits.requests_per_minute, requests_); seconds > 0) {
    return UsageRefusal{UsageLimit::kRequests, seconds};
  }
  if (const double seconds = wait(limits.tokens_per_minute, tokens_); seconds > 0) {
    return UsageRefusal{UsageLimit::kTokens, seconds};
  }
  if (limits.requests_per_minute.has_value()) requests_.Take(*limits.requests_per_minute, 1, now);
  ++num_running_;
  return std::nullopt;
}

void KeyUsage::End() { --num_running_; }

void KeyUsage::Charge(const KeyLimits& limits, uint64_t tokens, double now) {
  if (limits.tokens_per_minute.has_value()) {
    tokens_.Take(*limits.tokens_per_minute, static_cast<double>(tokens), now);
  }
}

std::vector<std::pair<std::string, std::string>> KeyUsage::Headers(const KeyLimits& limits,
                                                                   double now) const {
  std::vector<std::pair<std::string, std::string>> headers;
  const auto add = [&](const char* name, const std::optional<uint64_t>& size,
                       const Bucket& bucket) {
    if (!size.has_value()) return;
    const double left = std::max(0.0, std::floor(bucket.LevelAt(*size, now)));
    const double full = bucket.SecondsUntil(*size, static_cast<double>(*size), now);
    headers.emplace_back(fmt::format("X-RateLimit-Limit-{}", name), fmt::format("{}", *size));
    headers.emplace_back(fmt::format("X-RateLimit-Remaining-{}", name),
                         fmt::format("{:.0f}", left));
    headers.emplace_back(fmt::format("X-RateLimit-Reset-{}", name), Duration(full));
  };
  add("Requests", limits.requests_per_minute, requests_);
  add("Tokens", limits.tokens_per_minute, tokens_);
  return headers;
}

}  // namespace ebb::server

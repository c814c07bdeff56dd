#include "src/base/text/size_text.h"

#include <charconv>
#include <cstddef>
#include <string>
#include <string_view>

#include <fmt/format.h>

namespace ebb {

std::string SizeText(double bytes) {
  constexpr double kStep = 1024;
  constexpr double kRounded = 1023.95;  // one decimal makes 1024 of it
  if (bytes < kStep) return fmt::format("{:.0f} bytes", bytes);
  std::string_view unit = "KiB";
  int decimals = 1;
  double size = bytes / kStep;
  if (size >= kRounded) {
    unit = "MiB";
    size /= kStep;
  }
  if (size >= kRounded) {
    unit = "GiB";
    decimals = 2;
    size /= kStep;
  }
  std::string text = fmt::format("{:.{}f}", size, decimals);
  while (text.ends_with('0')) text.pop_back();
  if (text.ends_with('.')) text.pop_back();
  return fmt::format("{} {}", text, unit);
}

std::string WithCommas(int64_t number) {
  std::string text = std::to_string(number);
  const std::ptrdiff_t first = number < 0 ? 1 : 0;
  for (auto at = static_cast<std::ptrdiff_t>(text.size()) - 3; at > first; at -= 3) {
    text.insert(static_cast<size_t>(at), ",");
  }
  return text;
}

ComparedSizes::ComparedSizes(uint64_t first_bytes, uint64_t second_bytes)
    : first(SizeText(static_cast<double>(first_bytes))),
      second(SizeText(static_cast<double>(second_bytes))) {
  if (first != second || first_bytes == second_bytes) return;
  first = fmt::format("{} bytes", first_bytes);
  second = fmt::format("{} bytes", second_bytes);
}

Status CheckHasUnit(std::string_view text, std::string_view unit, bool may_be_share) {
  constexpr uint64_t kFew = 1'000'000;
  uint64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  // A size of 0 has an error of its own.
  if (error != std::errc() || rest != end || number == 0 || number >= kFew) return OkStatus();
  const std::string share = may_be_share && number <= 100 ? fmt::format("{}% or ", number) : "";
  return InvalidArgument(fmt::format("{} bytes; did you mean {}{}{}?", text, share, text, unit));
}

}  // namespace ebb

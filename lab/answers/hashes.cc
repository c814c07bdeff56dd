#include "lab/answers/hashes.h"

#include <algorithm>
#include <utility>

#include "lab/answers/formula.h"
#include "lab/answers/numbers.h"
#include "lab/answers/options.h"
#include "lab/answers/text.h"

namespace ebb {
namespace {

enum class LinePlace { kLast, kBeforeOthers };

// Returns the line without its full stop and the markup around it.
std::string_view BareLine(std::string_view line) {
  line = SkipMarkup(line);
  if (line.ends_with('.')) line = SkipMarkup(line.substr(0, line.size() - 1));
  return line;
}

// Returns whether only units follow the number.
bool IsUnitAlone(std::string_view behind_number) {
  std::string_view rest = SkipMarkup(behind_number);
  while (rest.starts_with('$')) rest = SkipMarkup(rest.substr(1));
  while (!rest.empty()) {
    size_t end = 0;
    while (end < rest.size() && IsLetter(rest[end])) ++end;
    if (end == 0 || !IsUnitWord(LowerCase(rest.substr(0, end)))) return false;
    rest = Trim(rest.substr(end));
  }
  return true;
}

std::string_view NumberOfLine(std::string_view line, LinePlace place) {
  const std::string_view number = LeadingNumber(line);
  if (number.empty()) return {};
  const std::string_view rest = Behind(line, number);
  if (IsEnumerated(rest)) return {};
  if (place == LinePlace::kBeforeOthers && !IsUnitAlone(rest)) return {};
  return number;
}

std::string AnswerOfLine(std::string_view line, LinePlace place, const AnswerFormat& format) {
  line = BareLine(line);
  if (line.empty() || line.ends_with(':')) return {};
  switch (format.kind) {
    case AnswerKind::kNumber:
      return std::string(NumberOfLine(line, place));
    case AnswerKind::kOption:
      return place == LinePlace::kLast ? LoneOption(line, format.options) : std::string();
    case AnswerKind::kMath:
    case AnswerKind::kWord:
      return {};
  }
  return {};
}

}  // namespace

HashedAnswer FindHashedAnswer(std::string_view text, const AnswerFormat& format) {
  constexpr std::string_view kHashes = "####";
  size_t limit = text.size();
  LinePlace place = LinePlace::kLast;
  for (size_t at = text.rfind(kHashes); at != std::string_view::npos;
       at = at == 0 ? std::string_view::npos : text.rfind(kHashes, at - 1)) {
    std::string_view line = text.substr(at, limit - at);
    limit = at;
    line.remove_prefix(std::min(line.find_first_not_of('#'), line.size()));
    const size_t end = std::min(line.find('\n'), line.size());
    if (!Trim(line.substr(end)).empty()) place = LinePlace::kBeforeOthers;
    std::string answer = AnswerOfLine(line.substr(0, end), place, format);
    if (!answer.empty()) return {std::move(answer), at};
    if (!Trim(line).empty()) place = LinePlace::kBeforeOthers;
  }
  return {};
}

}  // namespace ebb

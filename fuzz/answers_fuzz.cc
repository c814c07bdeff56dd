// Any text as an answer, of each kind and under each rule: a verdict that holds together, in time
// that grows with the text alone. What stands before the first NUL is the reference.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "ebb/lab/answers.h"

namespace {

constexpr size_t kMaxInputBytes = size_t{1} << 20;

void Expect(bool holds) {
  if (!holds) std::abort();
}

void Judge(std::string_view text, std::string_view reference, const ebb::AnswerFormat& format) {
  const ebb::Judgement judgement = ebb::JudgeAnswer(text, reference, format);
  const ebb::Extraction& found = judgement.extraction;
  Expect(found.answer.empty() == (found.rule == ebb::ExtractionRule::kNone));
  const bool answered = judgement.verdict >= ebb::Verdict::kWrong;
  Expect(answered == !found.answer.empty());
  if (!answered) return;
  // What was found is the same as itself, and the verdict is that of the comparison.
  Expect(ebb::SameAnswer(found.answer, reference, format.kind) ==
         (judgement.verdict == ebb::Verdict::kRight));
  if (format.kind == ebb::AnswerKind::kMath) {
    Expect(ebb::SameAnswer(found.answer, found.answer, format.kind));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > kMaxInputBytes) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t end = input.find('\0');
  const std::string_view reference = end == std::string_view::npos ? "7" : input.substr(0, end);
  const std::string_view text = end == std::string_view::npos ? input : input.substr(end + 1);
  const std::vector<std::string> options = {"first", "second", std::string(reference), "fourth"};
  for (const auto kind : {ebb::AnswerKind::kNumber, ebb::AnswerKind::kMath,
                          ebb::AnswerKind::kOption, ebb::AnswerKind::kWord}) {
    for (const auto rules :
         {ebb::AnswerRules::kCascade, ebb::AnswerRules::kLastMark, ebb::AnswerRules::kBoxedOnly}) {
      Judge(text, reference, {.kind = kind, .rules = rules, .options = options});
    }
  }
  (void)ebb::SameAnswer(text, reference, ebb::AnswerKind::kNumber);
  return 0;
}

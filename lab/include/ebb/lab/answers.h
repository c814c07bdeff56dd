// Answers: finding what a model answered in what it wrote, and whether that is the reference.
//
// What is searched is the text after the last "</think>", or all of it where nothing follows that.
// Rules are tried in the order of ExtractionRule; within a rule the last place counts, since models
// correct themselves. The cascade is that of 000, App. F: "####", "the answer is X", \boxed{X}, the
// last standalone number. 002 takes the boxed answer alone. A "####" line is an answer where a
// value alone stands on it, or begins it and nothing is written after it; else it is a heading.
// Of MATH only boxes are looked for.
//
// Two numbers are the same when they have one value: 3/4, 0.75, \frac34, 75\%; "1,234" and "1234
// dollars"; x = 9 * 2 = 18 and 18. They may differ by 1e-5 (000), relatively where the reference is
// below 1; integers by nothing. A percent is the number before the sign, or a hundredth of it.
// Formulas of MATH are compared as texts: what they are worth, ebb.judge() of the Python package
// says, by math-verify.
//
// Any bytes are accepted: work is linear in the text, and answers of more than kMaxAnswerBytes are
// compared as text.
//
// Thread safety: free functions without state.
//
// SPDX-License-Identifier: MIT
#ifndef EBB_LAB_ANSWERS_H_
#define EBB_LAB_ANSWERS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace [[gnu::visibility("default")]] ebb {

inline constexpr size_t kMaxAnswerBytes = 2000;

enum class AnswerKind : uint8_t {
  kNumber,  // GSM8K, AIME
  kMath,    // an expression in LaTeX, or some words, in a box: MATH
  kOption,  // a letter: ARC, GPQA
  kWord,    // one word: pebble
};

enum class AnswerRules : uint8_t { kCascade, kBoxedOnly };

// Raised whenever an answer may get another verdict than before: evaluations that were judged
// otherwise are not put together.
inline constexpr int kJudgeNumber = 3;

// Which rule found an answer. Names are recorded in results.
enum class ExtractionRule : uint8_t {
  kNone,
  kHashes,      // "#### 18"
  kPhrase,      // "the answer is 18", "Answer: C"
  kBoxed,       // "\boxed{18}"
  kLastNumber,  // the last number that stands alone; not beside a refusal
  kLastLetter,  // the last "(C)" or "C)"; options alone
  kWholeText,   // nothing but the answer was written; options and words alone
};
[[nodiscard]] std::string_view ExtractionRuleName(ExtractionRule rule);

struct AnswerFormat {
  AnswerKind kind = AnswerKind::kNumber;
  AnswerRules rules = AnswerRules::kCascade;
  // kOption: the texts of the options A, B, ...; an answer may be one of them instead of its
  // letter.
  std::span<const std::string> options = {};
};

struct Extraction {
  ExtractionRule rule = ExtractionRule::kNone;
  std::string answer = {};  // as written, or an option's letter; empty with kNone
};
[[nodiscard]] Extraction ExtractAnswer(std::string_view text, const AnswerFormat& format);

// Not symmetric: the reference says how exact an answer must be.
[[nodiscard]] bool SameAnswer(std::string_view answer, std::string_view reference, AnswerKind kind);

enum class Verdict : uint8_t {
  kEmpty,     // nothing was written but white space and thinking tags
  kNoAnswer,  // no rule found one, or it was a refusal ("cannot be determined")
  kWrong,
  kRight,
};
[[nodiscard]] std::string_view VerdictName(Verdict verdict);

struct Judgement {
  Verdict verdict = Verdict::kEmpty;
  Extraction extraction = {};
};
[[nodiscard]] Judgement JudgeAnswer(std::string_view text, std::string_view reference,
                                    const AnswerFormat& format);

// The content of the last \boxed{...} (or \fbox, \framebox) that is closed and not empty, with
// nested braces; also of "\boxed 5". Empty: there is none.
[[nodiscard]] std::string_view LastBoxed(std::string_view text);

}  // namespace ebb

#endif  // EBB_LAB_ANSWERS_H_

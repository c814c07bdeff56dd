// Finds the answer in a model's text, and compares it with the reference.
//
// The text after the last "</think>" is searched, or the whole text if nothing follows that tag.
// Rules are tried in the order of ExtractionRule; within a rule the last place counts, since models
// correct themselves. The cascade is that of "Not All Thoughts Need HBM", App. F: "####", "the
// answer is X", \boxed{X}, the last standalone number. "EpiKV" uses the boxed answer alone;
// AnswerRules selects. A "####" line is an answer if it is a value alone, or begins with one and is
// the end of the text; otherwise it is a heading. For MATH only boxes are searched.
//
// Two numbers are the same if they have one value: 3/4, 0.75, \frac34, 75\%; "1,234" and "1234
// dollars"; x = 9 * 2 = 18 and 18. They may differ by 1e-5 ("Not All Thoughts Need HBM"),
// relatively if the reference is below 1; integers must be equal. A percentage may count as the
// number before the sign or as a hundredth of it. Formulas of MATH are compared as texts here;
// ebb.judge() of the Python package compares their values by math-verify.
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
  kNumber,  // a number: GSM8K, AIME
  kMath,    // a LaTeX expression or words in a box: MATH
  kOption,  // an option's letter: ARC, GPQA
  kWord,    // one word: pebble
};

// Returns "number", "formula", "option" or "word".
[[nodiscard]] std::string_view AnswerKindName(AnswerKind kind);

// AnswerRules names which marks of an answer count.
enum class AnswerRules : uint8_t {
  kCascade,    // the first rule that finds an answer, as in "Not All Thoughts Need HBM"
  kLastMark,   // of "####", a phrase and a box the one that stands last; without one, the cascade
  kBoxedOnly,  // a box alone, as in "EpiKV"
};
// Returns "cascade", "last" or "boxed".
[[nodiscard]] std::string_view AnswerRulesName(AnswerRules rules);

// kJudgeNumber is the version of the judgement. It is raised whenever an answer may get another
// verdict than before; evaluations with different numbers must not be combined.
inline constexpr int kJudgeNumber = 3;

// ExtractionRule names the rule that found an answer. Results contain its name.
enum class ExtractionRule : uint8_t {
  kNone,
  kHashes,      // "#### 18"
  kPhrase,      // "the answer is 18", "Answer: C"
  kBoxed,       // "\boxed{18}"
  kLastNumber,  // the last number by itself; not next to a refusal
  kLastLetter,  // the last "(C)" or "C)"; only for options
  kWholeText,   // the text is just the answer; only options and words
};
[[nodiscard]] std::string_view ExtractionRuleName(ExtractionRule rule);

struct AnswerFormat {
  AnswerKind kind = AnswerKind::kNumber;
  AnswerRules rules = AnswerRules::kCascade;
  // Are the texts of options A, B, ... for kOption; an answer may be such a text instead of a
  // letter.
  std::span<const std::string> options = {};
};

struct Extraction {
  ExtractionRule rule = ExtractionRule::kNone;
  std::string answer = {};  // as written, or an option's letter; empty if kNone
};
[[nodiscard]] Extraction ExtractAnswer(std::string_view text, const AnswerFormat& format);

// Returns whether an answer equals the reference. The order of arguments matters: the reference
// determines how exact an answer must be.
[[nodiscard]] bool SameAnswer(std::string_view answer, std::string_view reference, AnswerKind kind);

enum class Verdict : uint8_t {
  kEmpty,     // nothing but white space and thinking tags
  kNoAnswer,  // no rule applies, or the answer is a refusal
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

// Returns the content of the last \boxed{...} (or \fbox, \framebox) that is closed and not empty,
// with nested braces; also that of "\boxed 5". Empty: there is none.
[[nodiscard]] std::string_view LastBoxed(std::string_view text);

}  // namespace ebb

#endif  // EBB_LAB_ANSWERS_H_

#include "lab/tasks/task_formats.h"

#include <algorithm>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace ebb {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kHashes = "####";
constexpr size_t kMaxOptions = 26;

bool IsWholeNumber(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

Result<EvalProblem> ReadGsm8k(const TaskRecord& record) {
  EvalProblem problem = {.kind = AnswerKind::kNumber};
  EBB_ASSIGN_OR_RETURN(problem.question, record.Text({"question"}));
  EBB_ASSIGN_OR_RETURN(const std::string answer, record.Text({"answer"}));
  // Some copies of the set have only the number.
  const size_t hashes = answer.rfind(kHashes);
  const size_t begin =
      hashes == std::string::npos ? 0 : answer.find_first_not_of(" \t", hashes + kHashes.size());
  problem.reference = begin == std::string::npos ? "" : answer.substr(begin);
  std::string digits = problem.reference;
  std::erase(digits, ',');
  if (digits.starts_with('-')) digits.erase(0, 1);
  if (digits.find_first_not_of("0123456789.") != std::string::npos || digits.empty()) {
    return record.Error("the field \"answer\" does not end in \"#### NUMBER\"");
  }
  return problem;
}

Result<EvalProblem> ReadMath(const TaskRecord& record) {
  EvalProblem problem = {.kind = AnswerKind::kMath};
  EBB_ASSIGN_OR_RETURN(problem.question, record.Text({"problem"}));
  if (record.Has("answer") || !record.Has("solution")) {
    EBB_ASSIGN_OR_RETURN(problem.reference, record.Text({"answer"}));
    return problem;
  }
  EBB_ASSIGN_OR_RETURN(const std::string solution, record.Text({"solution"}));
  problem.reference = LastBoxed(solution);
  if (problem.reference.empty()) {
    return record.Error("missing field \"answer\", and \"solution\" holds no \\boxed");
  }
  return problem;
}

// Returns whether the problem's level is "Level 5" or 5.
Result<bool> IsLevel5(const TaskRecord& record) {
  EBB_ASSIGN_OR_RETURN(const std::string level, record.Text({"level"}));
  return level.ends_with('5');
}

Result<EvalProblem> ReadAime(const TaskRecord& record) {
  EvalProblem problem = {.kind = AnswerKind::kNumber};
  EBB_ASSIGN_OR_RETURN(problem.question,
                       record.Text({"problem", "Problem", "question", "Question"}));
  EBB_ASSIGN_OR_RETURN(problem.reference, record.Text({"answer", "Answer"}));
  if (!IsWholeNumber(problem.reference) || problem.reference.size() > 3) {
    return record.Error(
        fmt::format("expected an answer from 0 to 999, found \"{}\"", problem.reference));
  }
  return problem;
}

struct Choice {
  std::string label;
  std::string text;
};

Result<Choice> ReadChoice(const TaskRecord& record, const Json& label, const Json& text) {
  if (!label.is_string() || !text.is_string()) {
    return record.Error("a label or a text of the field \"choices\" is no text");
  }
  return Choice{label.get<std::string>(), text.get<std::string>()};
}

Result<std::vector<Choice>> ReadChoices(const TaskRecord& record, const Json& choices) {
  std::vector<Choice> read;
  if (choices.is_array()) {
    for (const Json& choice : choices) {
      if (!choice.is_object() || !choice.contains("label") || !choice.contains("text")) {
        return record.Error("a choice without \"label\" and \"text\"");
      }
      EBB_ASSIGN_OR_RETURN(read.emplace_back(),
                           ReadChoice(record, choice.at("label"), choice.at("text")));
    }
  } else if (choices.is_object() && choices.contains("label") && choices.contains("text")) {
    const Json& labels = choices.at("label");
    const Json& texts = choices.at("text");
    if (!labels.is_array() || !texts.is_array() || labels.size() != texts.size()) {
      return record.Error("\"label\" and \"text\" of the field \"choices\" are no equal lists");
    }
    for (size_t i = 0; i < labels.size(); ++i) {
      EBB_ASSIGN_OR_RETURN(read.emplace_back(), ReadChoice(record, labels[i], texts[i]));
    }
  } else {
    return record.Error("the field \"choices\" holds no labels and texts");
  }
  if (read.size() < 2 || read.size() > kMaxOptions) {
    return record.Error(
        fmt::format("expected 2 to {} choices, found {}", kMaxOptions, read.size()));
  }
  return read;
}

Result<EvalProblem> ReadArc(const TaskRecord& record) {
  EvalProblem problem = {.kind = AnswerKind::kOption};
  const Json* holder = &record.json();
  if (const auto question = record.json().find("question");
      question != record.json().end() && question->is_object()) {
    holder = &*question;
    if (!holder->contains("stem") || !holder->at("stem").is_string()) {
      return record.Error("missing field \"question\".\"stem\"");
    }
    problem.question = holder->at("stem").get<std::string>();
  } else {
    EBB_ASSIGN_OR_RETURN(problem.question, record.Text({"question"}));
  }
  if (!holder->contains("choices")) return record.Error("missing field \"choices\"");
  EBB_ASSIGN_OR_RETURN(const std::vector<Choice> choices,
                       ReadChoices(record, holder->at("choices")));
  EBB_ASSIGN_OR_RETURN(const std::string key, record.Text({"answerKey"}));
  // Some problems label their options 1 to 4; the reference is then the letter for the option's
  // place.
  for (size_t i = 0; i < choices.size(); ++i) {
    if (choices[i].label == key) problem.reference = static_cast<char>('A' + i);
    problem.options.push_back(choices[i].text);
  }
  if (problem.reference.empty()) {
    return record.Error(fmt::format("no choice has the label \"{}\" of \"answerKey\"", key));
  }
  return problem;
}

Result<EvalProblem> ReadGpqa(const TaskRecord& record, uint64_t shuffle) {
  EvalProblem problem = {.kind = AnswerKind::kOption};
  EBB_ASSIGN_OR_RETURN(problem.question, record.Text({"Question"}));
  for (const std::string_view field :
       {"Correct Answer", "Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3"}) {
    EBB_ASSIGN_OR_RETURN(problem.options.emplace_back(), record.Text({field}));
  }
  // Shuffles by hand, since std::shuffle differs between libraries.
  std::mt19937_64 random(shuffle);
  size_t right = 0;
  for (size_t i = problem.options.size(); i-- > 1;) {
    const size_t other = random() % (i + 1);
    std::swap(problem.options[i], problem.options[other]);
    if (right == i) {
      right = other;
    } else if (right == other) {
      right = i;
    }
  }
  problem.reference = static_cast<char>('A' + right);
  return problem;
}

Result<EvalProblem> ReadKept(const TaskRecord& record, TaskFormat format, uint64_t shuffle) {
  switch (format) {
    case TaskFormat::kGsm8k:
      return ReadGsm8k(record);
    case TaskFormat::kMath:
    case TaskFormat::kMathLevel5:
      return ReadMath(record);
    case TaskFormat::kAime:
      return ReadAime(record);
    case TaskFormat::kArc:
      return ReadArc(record);
    case TaskFormat::kGpqa:
      return ReadGpqa(record, shuffle);
  }
  return Internal("an unknown format of tasks");
}

}  // namespace

Result<TaskFormat> RecogniseFormat(const TaskRecord& record) {
  const auto has = [&](std::string_view field) { return record.Has(field); };
  if (has("answerKey")) return TaskFormat::kArc;
  if (has("Correct Answer")) return TaskFormat::kGpqa;
  if (has("problem") && (has("level") || has("subject") || has("type") || has("unique_id"))) {
    return TaskFormat::kMath;
  }
  const bool aime_answer = has("answer") || has("Answer");
  if (aime_answer && (has("problem") || has("Problem") || has("Question"))) {
    return TaskFormat::kAime;
  }
  if (has("question") && has("answer")) {
    const auto answer = record.Text({"answer"});
    if (answer.ok() && answer->find(kHashes) != std::string::npos) return TaskFormat::kGsm8k;
  }
  return record.Error(
      "no format is recognised from these fields; name one behind the file: FILE.jsonl:gsm8k");
}

Result<std::optional<EvalProblem>> ReadProblem(const TaskRecord& record, TaskFormat format,
                                               uint64_t shuffle) {
  if (format == TaskFormat::kMathLevel5) {
    EBB_ASSIGN_OR_RETURN(const bool kept, IsLevel5(record));
    if (!kept) return std::optional<EvalProblem>();
  }
  EBB_ASSIGN_OR_RETURN(EvalProblem problem, ReadKept(record, format, shuffle));
  for (const std::string_view field : {"id", "ID", "unique_id", "Record ID"}) {
    if (!record.Has(field)) continue;
    EBB_ASSIGN_OR_RETURN(problem.id, record.Text({field}));
    break;
  }
  return std::optional<EvalProblem>(std::move(problem));
}

}  // namespace ebb

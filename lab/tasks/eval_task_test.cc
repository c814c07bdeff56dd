#include "ebb/lab/eval_task.h"

#include <fstream>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/temp_folder.h"

namespace ebb {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

Result<EvalTask> Parse(std::string_view content, std::optional<TaskFormat> format = {},
                       uint64_t seed = 0) {
  return ParseEvalTask(content, {.path = "set.jsonl", .format = format, .shuffle_seed = seed});
}

EvalProblem OnlyProblem(std::string_view line, TaskFormat recognised) {
  const auto task = Parse(line);
  EXPECT_TRUE(task.ok()) << task.status().ToString();
  if (!task.ok() || task->problems.size() != 1) return {};
  EXPECT_EQ(TaskFormatName(task->format), TaskFormatName(recognised));
  EXPECT_EQ(task->problems[0].kind, AnswerKindOf(recognised));
  return task->problems[0];
}

TEST(EvalTask, ReadsGsm8k) {
  const EvalProblem problem = OnlyProblem(
      R"({"question": "How many eggs?", "answer": "16 - 3 = <<16-3=13>>13\n#### 1,013"})",
      TaskFormat::kGsm8k);
  EXPECT_EQ(problem.id, "line-1");
  EXPECT_EQ(problem.question, "How many eggs?");
  EXPECT_EQ(problem.reference, "1,013");
  EXPECT_THAT(problem.options, IsEmpty());
  EXPECT_EQ(problem.Text(), problem.question);
}

TEST(EvalTask, ReadsMathWithAnAnswerOrASolution) {
  EvalProblem problem =
      OnlyProblem(R"({"problem": "Find $x$.", "solution": "So \\boxed{5}.", "answer": "x=5",)"
                  R"( "subject": "Algebra", "level": 2, "unique_id": "test/algebra/1.json"})",
                  TaskFormat::kMath);
  EXPECT_EQ(problem.id, "test/algebra/1.json");
  EXPECT_EQ(problem.reference, "x=5");
  problem = OnlyProblem(R"({"problem": "Find $x$.", "level": "Level 3", "type": "Algebra",)"
                        R"( "solution": "Not \\boxed{4}, but $\\boxed{\\frac{1}{2}}$."})",
                        TaskFormat::kMath);
  EXPECT_EQ(problem.reference, "\\frac{1}{2}");
}

TEST(EvalTask, KeepsLevel5Alone) {
  const auto task = Parse(
      "{\"problem\": \"a\", \"answer\": \"1\", \"level\": 4}\n"
      "{\"problem\": \"b\", \"answer\": \"2\", \"level\": 5}\n"
      "{\"problem\": \"c\", \"answer\": \"3\", \"level\": \"Level 5\"}\n",
      TaskFormat::kMathLevel5);
  ASSERT_TRUE(task.ok()) << task.status().ToString();
  ASSERT_EQ(task->problems.size(), 2u);
  EXPECT_EQ(task->problems[0].question, "b");
  EXPECT_EQ(task->problems[1].id, "line-3");
  EXPECT_THAT(Parse(R"({"problem": "a", "answer": "1", "level": 4})", TaskFormat::kMathLevel5)
                  .status()
                  .message(),
              HasSubstr("set.jsonl: none of the 1 problems is of level 5"));
}

TEST(EvalTask, ReadsTheCopiesOfAime) {
  for (const std::string_view line :
       {R"({"id": 60, "problem": "P", "solution": "S", "answer": "073", "question": "P"})",
        R"({"ID": "60", "Year": 1983, "Question": "P", "Answer": "073"})",
        R"({"ID": "60", "Problem": "P", "Answer": "073", "Solution": "S"})"}) {
    const EvalProblem problem = OnlyProblem(line, TaskFormat::kAime);
    EXPECT_EQ(problem.id, "60");
    EXPECT_EQ(problem.question, "P");
    EXPECT_EQ(problem.reference, "073");
  }
  const auto task = Parse(R"({"question": "P", "answer": 73, "id": "1983-1"})", TaskFormat::kAime);
  ASSERT_TRUE(task.ok());
  EXPECT_EQ(task->problems[0].reference, "73");
}

TEST(EvalTask, ReadsBothFormsOfArc) {
  for (const std::string_view line :
       {R"({"id": "M1", "question": {"stem": "Why?", "choices": [{"text": "sun", "label": "A"},)"
        R"( {"text": "rain", "label": "B"}]}, "answerKey": "B"})",
        R"({"id": "M1", "question": "Why?", "choices": {"text": ["sun", "rain"],)"
        R"( "label": ["1", "2"]}, "answerKey": "2"})",
        R"({"id": "M1", "question": "Why?", "choices": [{"text": "sun", "label": "A"},)"
        R"( {"text": "rain", "label": "B"}], "answerKey": "B"})"}) {
    const EvalProblem problem = OnlyProblem(line, TaskFormat::kArc);
    EXPECT_EQ(problem.id, "M1");
    EXPECT_EQ(problem.reference, "B");
    EXPECT_THAT(problem.options, ElementsAre("sun", "rain"));
    EXPECT_EQ(problem.Text(), "Why?\n\nA) sun\nB) rain");
  }
}

constexpr std::string_view kGpqa =
    R"({"Record ID": "rec1", "Question": "Q\n", "Correct Answer": "right\n",)"
    R"( "Incorrect Answer 1": "w1", "Incorrect Answer 2": "w2", "Incorrect Answer 3": "w3"})";

TEST(EvalTask, ShufflesTheOptionsOfGpqaByTheSeed) {
  std::set<std::string> references;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const auto task = Parse(kGpqa, {}, seed);
    ASSERT_TRUE(task.ok());
    const EvalProblem& problem = task->problems[0];
    EXPECT_EQ(problem.question, "Q");
    EXPECT_THAT(problem.options, UnorderedElementsAre("right", "w1", "w2", "w3"));
    ASSERT_EQ(problem.reference.size(), 1u);
    EXPECT_EQ(problem.options[static_cast<size_t>(problem.reference[0] - 'A')], "right");
    EXPECT_EQ(Parse(kGpqa, {}, seed)->problems[0].options, problem.options);
    references.insert(problem.reference);
  }
  EXPECT_EQ(references.size(), 4u);
}

TEST(EvalTask, OrdersTheOptionsOfEachLineAnew) {
  std::string content;
  for (int i = 0; i < 40; ++i) content += std::string(kGpqa) + "\n";
  const auto task = Parse(content);
  ASSERT_TRUE(task.ok());
  std::set<std::vector<std::string>> orders;
  for (const EvalProblem& problem : task->problems) orders.insert(problem.options);
  EXPECT_GT(orders.size(), 10u);
}

TEST(EvalTask, GivesEachProblemItsOwnId) {
  const auto task = Parse(
      "{\"id\": 1, \"problem\": \"a\", \"answer\": \"1\"}\n"
      "{\"id\": 1, \"problem\": \"b\", \"answer\": \"2\"}\n");
  ASSERT_TRUE(task.ok());
  EXPECT_EQ(task->problems[0].id, "1");
  EXPECT_EQ(task->problems[1].id, "1#line-2");
}

TEST(EvalTask, PassesOverBlankLinesAndMarks) {
  const auto task = Parse(
      "\uFEFF\r\n{\"question\": \"a\", \"answer\": \"#### 1\"}\r\n\r\n \t\n"
      "{\"question\": \"b\", \"answer\": \"#### 2\"}");
  ASSERT_TRUE(task.ok()) << task.status().ToString();
  ASSERT_EQ(task->problems.size(), 2u);
  EXPECT_EQ(task->problems[0].reference, "1");
  EXPECT_EQ(task->problems[1].id, "line-5");
}

TEST(EvalTask, NamesTheFileTheLineAndTheField) {
  struct Case {
    std::string_view content;
    std::optional<TaskFormat> format;
    std::string_view message;
  };
  constexpr std::string_view kGood = "{\"question\": \"a\", \"answer\": \"#### 1\"}\n";
  for (const Case& c : std::vector<Case>{
           {"", {}, "set.jsonl: expected problems, found none"},
           {" \n\n", {}, "set.jsonl: expected problems, found none"},
           {"{\"question\": \"a\"", {}, "set.jsonl, line 1: malformed JSON"},
           {"[1]", {}, "set.jsonl, line 1: expected an object"},
           {"{\"question\": \"\xff\"}", {}, "set.jsonl, line 1: malformed JSON"},
           {"{\"text\": \"a\"}", {}, "set.jsonl, line 1: no format is recognised"},
           {"{\"question\": \"a\"}", TaskFormat::kGsm8k, "line 1: missing field \"answer\""},
           {"{\"answer\": \"#### 1\"}", TaskFormat::kGsm8k, "line 1: missing field \"question\""},
           {"{\"question\": [], \"answer\": \"#### 1\"}", TaskFormat::kGsm8k,
            "the field \"question\" is no text"},
           {"{\"question\": \" \", \"answer\": \"#### 1\"}", TaskFormat::kGsm8k,
            "the field \"question\" is empty"},
           {"{\"question\": \"a\", \"answer\": \"#### one\"}", TaskFormat::kGsm8k,
            "\"answer\" does not end in \"#### NUMBER\""},
           {"{\"question\": \"a\", \"answer\": \"1\\n####\"}", TaskFormat::kGsm8k,
            "\"answer\" does not end in \"#### NUMBER\""},
           {"{\"problem\": \"a\", \"solution\": \"5\"}", TaskFormat::kMath,
            "missing field \"answer\", and \"solution\" holds no \\boxed"},
           {"{\"problem\": \"a\"}", TaskFormat::kMath, "missing field \"answer\""},
           {"{\"problem\": \"a\", \"answer\": \"5\"}", TaskFormat::kMathLevel5,
            "missing field \"level\""},
           {"{\"Problem\": \"a\", \"Answer\": \"1000\"}", {}, "from 0 to 999, found \"1000\""},
           {"{\"Problem\": \"a\", \"Answer\": \"x\"}", {}, "from 0 to 999, found \"x\""},
           {"{\"Answer\": \"5\"}", TaskFormat::kAime,
            "missing field \"problem\" or \"Problem\" or \"question\" or \"Question\""},
           {"{\"question\": \"a\", \"answerKey\": \"A\"}", {}, "missing field \"choices\""},
           {"{\"question\": {\"stem\": \"a\"}, \"answerKey\": \"A\"}",
            {},
            "missing field \"choices\""},
           {"{\"question\": {}, \"answerKey\": \"A\"}", {}, "missing field \"question\".\"stem\""},
           {"{\"question\": \"a\", \"choices\": 5, \"answerKey\": \"A\"}",
            {},
            "the field \"choices\" holds no labels and texts"},
           {"{\"question\": \"a\", \"choices\": [5], \"answerKey\": \"A\"}",
            {},
            "a choice without \"label\" and \"text\""},
           {"{\"question\": \"a\", \"choices\": {\"label\": [\"A\"], \"text\": []}, "
            "\"answerKey\": \"A\"}",
            {},
            "are no equal lists"},
           {"{\"question\": \"a\", \"choices\": {\"label\": [\"A\"], \"text\": [\"b\"]}, "
            "\"answerKey\": \"A\"}",
            {},
            "expected 2 to 26 choices, found 1"},
           {"{\"question\": \"a\", \"choices\": {\"label\": [1, 2], \"text\": [\"b\", \"c\"]}, "
            "\"answerKey\": \"A\"}",
            {},
            "is no text"},
           {"{\"question\": \"a\", \"choices\": {\"label\": [\"A\", \"B\"], \"text\": [\"b\", "
            "\"c\"]}, \"answerKey\": \"C\"}",
            {},
            "no choice has the label \"C\""},
           {"{\"Question\": \"a\", \"Correct Answer\": \"b\"}",
            {},
            "missing field \"Incorrect Answer 1\""},
       }) {
    EXPECT_THAT(Parse(c.content, c.format).status().message(), HasSubstr(c.message)) << c.content;
  }
  EXPECT_THAT(Parse(std::string(kGood) + "\n{\"question\": \"b\"}\n").status().message(),
              HasSubstr("set.jsonl, line 3: missing field \"answer\""));
}

TEST(EvalTask, ReadsFilesAndSaysWhatIsWrongWithThem) {
  const TempFolder folder;
  const std::string path = folder.File("set.jsonl");
  std::ofstream(path) << "{\"question\": \"a\", \"answer\": \"#### 1\"}\n";
  const auto task = ReadEvalTask({.path = path});
  ASSERT_TRUE(task.ok());
  EXPECT_EQ(task->problems[0].question, "a");
  EXPECT_EQ(ReadEvalTask({.path = folder.File("none")}).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(ReadEvalTask({.path = folder.File("")}).status().code(), StatusCode::kInvalidArgument);
}

TEST(EvalTaskSource, TakesTheFormatBehindTheColon) {
  auto source = ParseEvalTaskSource("sets/a.jsonl:math_level_5");
  ASSERT_TRUE(source.ok());
  EXPECT_EQ(source->path, "sets/a.jsonl");
  EXPECT_EQ(source->format, TaskFormat::kMathLevel5);
  source = ParseEvalTaskSource("sets:old/a.jsonl");
  ASSERT_TRUE(source.ok());
  EXPECT_EQ(source->path, "sets:old/a.jsonl");
  EXPECT_FALSE(source->format.has_value());
  EXPECT_THAT(ParseEvalTaskSource("a.jsonl:gsm").status().message(),
              AllOf(HasSubstr("\"gsm\""), HasSubstr("gsm8k, math, math_level_5, aime, arc, gpqa")));
  EXPECT_FALSE(ParseEvalTaskSource("").ok());
  EXPECT_FALSE(ParseEvalTaskSource(":gsm8k").ok());
}

TEST(PromptPreset, HoldsTheProblemOnceAndACap) {
  const EvalProblem problem = {.question = "Why {problem}?", .options = {"sun", "rain"}};
  for (const PromptPreset& preset : PromptPresets()) {
    EXPECT_FALSE(preset.description.empty());
    const auto found = FindPromptPreset(preset.name);
    ASSERT_TRUE(found.ok());
    EXPECT_EQ(*found, &preset);
    for (int i = 0; i < kNumTaskFormats; ++i) {
      const TaskPrompt& prompt = preset.Of(static_cast<TaskFormat>(i));
      EXPECT_GE(prompt.max_new_tokens, 2048);
      const std::string text = FormatPrompt(prompt, problem);
      const std::string wanted = "Why {problem}?\n\nA) sun\nB) rain";
      EXPECT_THAT(text, HasSubstr(wanted)) << preset.name;
      EXPECT_EQ(text.size(), prompt.text.size() - 9 + wanted.size());
    }
  }
  EXPECT_THAT(FindPromptPreset("paper").status().message(),
              HasSubstr("there are plain, hierarchy, epikv, dms, lazy_eviction"));
}

TEST(PromptPreset, AsksAsThePapersDid) {
  const EvalProblem problem = {.question = "1+1?"};
  const auto text = [&](std::string_view name, TaskFormat format) {
    return FormatPrompt((*FindPromptPreset(name))->Of(format), problem);
  };
  EXPECT_EQ(text("lazy_eviction", TaskFormat::kMath),
            "Please reason step by step, and put your final answer within \\boxed{}.\n1+1?");
  EXPECT_THAT(
      text("dms", TaskFormat::kAime),
      AllOf(testing::StartsWith("Solve the following math problem efficiently and clearly."),
            HasSubstr("the final answer is: $\\boxed{ANSWER}$. I hope it is correct'"),
            testing::EndsWith("\n\n1+1?")));
  EXPECT_THAT(text("dms", TaskFormat::kGpqa), HasSubstr("'Answer: $LETTER' (without quotes)"));
  EXPECT_EQ((*FindPromptPreset("lazy_eviction"))->Of(TaskFormat::kAime).max_new_tokens, 16384);
  EXPECT_EQ((*FindPromptPreset("hierarchy"))->Of(TaskFormat::kGsm8k).max_new_tokens, 2048);
  EXPECT_EQ((*FindPromptPreset("hierarchy"))->Of(TaskFormat::kMathLevel5).max_new_tokens, 4096);
  EXPECT_EQ((*FindPromptPreset("epikv"))->rules, AnswerRules::kBoxedOnly);
}

TEST(EvalTask, FingerprintsTellProblemsApart) {
  const std::vector<EvalProblem> problems = {{.id = "1", .question = "a", .reference = "2"},
                                             {.id = "2", .question = "b", .reference = "3"}};
  const uint64_t print = Fingerprint(problems);
  EXPECT_EQ(Fingerprint(problems), print);
  EXPECT_NE(Fingerprint(std::span(problems).first(1)), print);
  for (std::string EvalProblem::*member :
       {&EvalProblem::id, &EvalProblem::question, &EvalProblem::reference}) {
    std::vector<EvalProblem> others = problems;
    others[1].*member += "x";
    EXPECT_NE(Fingerprint(others), print);
  }
  std::vector<EvalProblem> others = problems;
  others[0].options = {"x"};
  EXPECT_NE(Fingerprint(others), print);
}

}  // namespace
}  // namespace ebb

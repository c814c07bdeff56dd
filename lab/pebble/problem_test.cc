#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <xxhash.h>

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "ebb/lab/pebble.h"
#include "lab/pebble/vocabulary.h"

namespace ebb {
namespace {

using Words = std::vector<std::string>;

// Returns the sentences of a question or thought as words, without punctuation.
std::vector<Words> Sentences(std::string text) {
  std::vector<Words> sentences;
  for (char& c : text)
    if (c == '?') c = '.';
  text.erase(std::remove(text.begin(), text.end(), ','), text.end());
  std::istringstream all(text);
  for (std::string sentence; std::getline(all, sentence, '.');) {
    std::istringstream in(sentence);
    Words words;
    for (std::string word; in >> word;) words.push_back(word);
    if (!words.empty()) sentences.push_back(words);
  }
  return sentences;
}

int ValueOf(std::string_view word) {
  const auto numbers = pebble::Numbers();
  const auto found = std::find(numbers.begin(), numbers.end(), word);
  return found == numbers.end() ? -1 : static_cast<int>(found - numbers.begin());
}

int Calculate(int a, std::string_view word, int b) {
  if (word == "times") return a * b % 10;
  if (word == "minus" || word == "drop" || word == "loses") return (a - b + 10) % 10;
  return (a + b) % 10;
}

// Solver solves a question just from its words.
class Solver {
 public:
  explicit Solver(const std::string& question) : sentences_(Sentences(question)) {}

  std::string Solve() {
    for (Words words : sentences_) {
      if (words[1] == "last") words.erase(words.begin() + 1);
      if (words[0] == "What")
        return words[1] == "do" ? Sum(words[2], words[4]) : holds_.at(words[2]);
      if (words[0] == "Start" || words[0] == "At")
        Facts(std::span(words).subspan(2));
      else if (words[2] == "to")
        from_[words[1]] = words;
      else
        Apply(words);
    }
    return "no question";
  }

 private:
  int Amount(const std::string& word) {
    return ValueOf(word) >= 0 ? ValueOf(word) : ValueOf(holds_.at(word));
  }
  void Set(const std::string& name, int value) {
    holds_[name] = pebble::Numbers()[static_cast<size_t>(value)];
  }

  void Facts(std::span<const std::string> words) {
    room_ = words[0];
    for (size_t i = 0; i < words.size(); i += 2) holds_[words[i]] = words[i + 1];
  }

  // Applies a sentence of the form: ORDINAL NAME ...
  void Apply(const Words& words) {
    const std::string& name = words[1];
    if (words.back() == "swap")
      std::swap(holds_.at(name), holds_.at(words[3]));
    else if (words[2] != "gets")
      Set(name, Calculate(Amount(name), words[2], Amount(words[3])));
    else if (words.size() == 4)
      Set(name, Amount(words[3]));
    else
      Set(name, Calculate(Amount(words[3]), words[4], Amount(words[5])));
  }

  // Follows the steps of a walk, which are in any order: each is found by the room in which it
  // begins.
  std::string Sum(const std::string& one, const std::string& other) {
    while (from_.contains(room_)) {
      const Words& step = from_.at(room_);
      Set(step[3], Calculate(Amount(room_), step[4], Amount(step[5])));
      room_ = step[3];
    }
    const int sum = (Amount(one) + Amount(other)) % 10;
    return std::string(pebble::Numbers()[static_cast<size_t>(sum)]);
  }

  std::vector<Words> sentences_;
  std::map<std::string, std::string> holds_;
  std::map<std::string, Words> from_;  // steps of a walk, by their first room
  std::string room_;                   // the current room of the walk
};

std::string ThoughtOf(const PebbleProblem& problem) {
  const std::string text = problem.Text();
  const size_t begin = text.find("<think>") + 7;
  return text.substr(begin, text.find("</think>") - begin);
}

TEST(PebbleProblem, AnswersAreRight) {
  for (uint64_t number = 0; number < 500; ++number) {
    const PebbleProblem problem = MakePebbleProblem(3, number);
    EXPECT_EQ(Solver(problem.Question()).Solve(), problem.answer) << problem.Question();
  }
}

TEST(PebbleProblem, ThoughtsCanBeSolvedToo) {
  // All calculations in thoughts must be right, including those that filler repeats.
  for (uint64_t number = 0; number < 200; ++number) {
    for (const Words& words : Sentences(ThoughtOf(MakePebbleProblem(4, number)))) {
      const auto makes = std::find(words.begin(), words.end(), "makes");
      if (makes == words.end()) continue;
      std::vector<int> values;
      std::string operation;
      for (auto word = words.begin(); word != makes; ++word) {
        if (ValueOf(*word) >= 0) values.push_back(ValueOf(*word));
        for (const char* known : {"plus", "minus", "times"})
          if (*word == known) operation = known;
      }
      ASSERT_EQ(values.size(), 2u) << testing::PrintToString(words);
      EXPECT_EQ(ValueOf(makes[1]), Calculate(values[0], operation, values[1]))
          << testing::PrintToString(words);
    }
  }
}

TEST(PebbleProblem, IsTheSameForTheSameSeedAndNumber) {
  EXPECT_EQ(MakePebbleProblem(7, 11).tokens, MakePebbleProblem(7, 11).tokens);
  std::set<std::vector<uint16_t>> different;
  for (uint64_t i = 0; i < 100; ++i) {
    different.insert(MakePebbleProblem(7, i).tokens);
    different.insert(MakePebbleProblem(8 + i, 0).tokens);
  }
  EXPECT_EQ(different.size(), 200u);
}

// The weights in training/pebble were trained on exactly these problems and words: a change here
// makes them useless.
TEST(PebbleProblem, AreTheOnesThatTheModelLearntOn) {
  std::string all;
  for (const std::string& text : PebbleVocabulary()) all += text + '\n';
  for (uint64_t number = 0; number < 100; ++number) all += MakePebbleProblem(0, number).Text();
  EXPECT_EQ(XXH3_64bits(all.data(), all.size()), 5655690354221082946u);
}

TEST(PebbleProblem, ThoughtsAreLongAndReferFarBack) {
  std::vector<int> lengths;
  int num_far = 0;
  constexpr int kNumProblems = 1000;
  for (uint64_t i = 0; i < kNumProblems; ++i) {
    const PebbleProblem problem = MakePebbleProblem(0, i);
    lengths.push_back(problem.num_thought_tokens);
    num_far += problem.farthest_lookup > 500 ? 1 : 0;
    EXPECT_EQ(problem.tokens.size(), problem.kinds.size());
  }
  std::sort(lengths.begin(), lengths.end());
  EXPECT_GE(lengths.front(), 300);
  EXPECT_LE(lengths.back(), 1500);
  EXPECT_GE(lengths[lengths.size() / 2], 600);
  EXPECT_GE(num_far, kNumProblems / 5);
}

TEST(PebbleProblem, MostOfAThoughtIsDisposable) {
  int num_filler = 0, num_tokens = 0;
  for (uint64_t i = 0; i < 200; ++i) {
    const PebbleProblem problem = MakePebbleProblem(0, i);
    num_tokens += problem.num_thought_tokens;
    num_filler += static_cast<int>(
        std::count(problem.kinds.begin(), problem.kinds.end(), PebbleTokenKind::kFiller));
  }
  EXPECT_GT(num_filler, num_tokens / 2);
}

TEST(PebbleProblem, QuestionIsWhatAUserWouldType) {
  const PebbleProblem problem = MakePebbleProblem(0, 0);
  const std::string question = problem.Question();
  EXPECT_EQ(problem.Text().find("<|start|>Question: " + question + "<think>"), 0u);
  EXPECT_EQ(question.back(), '?');
}

TEST(PebbleProblem, BriefOnesHaveNoFiller) {
  for (uint64_t i = 0; i < 50; ++i) {
    const PebbleProblem problem = MakeBriefPebbleProblem(0, i);
    EXPECT_THAT(problem.kinds, testing::Not(testing::Contains(PebbleTokenKind::kFiller)));
    std::string question = problem.Question();
    ASSERT_EQ(question.find("Briefly. "), 0u);
    EXPECT_EQ(Solver(question.substr(9)).Solve(), problem.answer);
  }
}

TEST(PebbleProblem, DrillsSayFactsAndSentencesAgainAsTheyWere) {
  for (const PebbleDrill kind : {PebbleDrill::kFacts, PebbleDrill::kSentences}) {
    int num_facts = 0, num_sentences = 0;
    for (uint64_t i = 0; i < 20; ++i) {
      const PebbleProblem drill = MakePebbleDrill(kind, 0, i);
      std::vector<Words> said = Sentences(drill.Question());
      std::map<std::string, std::string> facts;
      for (size_t w = 2; w < said[0].size(); w += 2) facts[said[0][w]] = said[0][w + 1];
      for (const Words& words : Sentences(ThoughtOf(drill))) {
        if (words[0] == "Recall") {
          EXPECT_EQ(words[2], facts.at(words[1]));
          ++num_facts;
        } else if (words[0] != "That") {
          EXPECT_THAT(said, testing::Contains(words));
          ++num_sentences;
        }
      }
    }
    EXPECT_GT(num_facts, 200);
    if (kind == PebbleDrill::kFacts)
      EXPECT_EQ(num_sentences, 0);
    else
      EXPECT_GT(num_sentences, 200);
  }
}

// The next fact or sentence of a drill is random, so that training must not expect it.
TEST(PebbleProblem, DrillsAskForWhatCanBeKnownAlone) {
  const PebbleProblem drill = MakePebbleDrill(PebbleDrill::kSentences, 0, 5);
  const uint16_t recall = pebble::TokenOf("Recall");
  const auto thought = std::span(drill.tokens).first(drill.tokens.size() - 6);
  int num_recalled = 0;
  for (auto i = static_cast<size_t>(drill.num_question_tokens); i < thought.size(); ++i) {
    if (thought[i] != recall) continue;
    ++num_recalled;
    EXPECT_EQ(drill.kinds[i + 1], PebbleTokenKind::kQuestion) << i;
  }
  EXPECT_GT(num_recalled, 10);
}

TEST(PebbleVocabulary, HasEveryTextOnceAndAllBytes) {
  const auto vocabulary = PebbleVocabulary();
  EXPECT_EQ(std::set<std::string>(vocabulary.begin(), vocabulary.end()).size(), vocabulary.size());
  for (int byte = 0; byte < kNumPebbleBytes; ++byte)
    EXPECT_EQ(static_cast<unsigned char>(vocabulary[static_cast<size_t>(byte)][0]), byte);
  EXPECT_EQ(vocabulary[kPebbleThinkEnd], "</think>");
  EXPECT_EQ(vocabulary[pebble::TokenOf("seven")], " seven");
}

}  // namespace
}  // namespace ebb

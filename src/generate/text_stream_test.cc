#include "src/generate/text_stream.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace ebb {
namespace {

using State = TextStream::State;

// Seen has the text that a sink received, joined by part.
struct Seen {
  std::string thought;
  std::string answer;
  std::vector<std::string> pieces;
};

struct Case {
  std::string name;
  TextStream::Options options;
  std::string input;
  std::string thought;
  std::string answer;
  State state = State::kOpen;
};

TextStream::Options Stops(std::vector<std::string> stops) { return {.stops = std::move(stops)}; }

TextStream::Options Tags(std::vector<std::string> stops = {}) {
  return {.stops = std::move(stops), .thinking_start = "<think>", .thinking_end = "</think>"};
}

TextStream::Options InThought(std::vector<std::string> stops = {}) {
  TextStream::Options options = Tags(std::move(stops));
  options.opens_in_thinking = true;
  return options;
}

TextStream::Options TurnEnds(std::vector<std::string> ends) {
  TextStream::Options options = InThought();
  options.turn_ends = std::move(ends);
  return options;
}

TextStream::Options Channels(std::vector<std::string> stops = {}) {
  return {.stops = std::move(stops),
          .thinking_start = "<|channel|>analysis<|message|>",
          .thinking_end = "<|end|>",
          .channels = {.message = "<|start|>assistant", .answer = "<|channel|>final<|message|>"}};
}

const std::string kAnalysis = "<|channel|>analysis<|message|>";
const std::string kFinal = "<|channel|>final<|message|>";
const std::string kNext = "<|start|>assistant";

std::vector<Case> Cases() {
  return {
      {"Channels", Channels(), kAnalysis + "a<|end|>" + kNext + kFinal + "b",
       kAnalysis + "a<|end|>" + kNext + kFinal, "b"},
      {"ChannelsWithoutAThought", Channels(), kFinal + "b", kFinal, "b"},
      {"ChannelsWithTwoThoughts", Channels(),
       kAnalysis + "a<|end|>" + kNext + kAnalysis + "b<|end|>" + kNext + kFinal + "c",
       kAnalysis + "a<|end|>" + kNext + kAnalysis + "b<|end|>" + kNext + kFinal, "c"},
      {"ChannelOfACall", Channels(),
       kAnalysis + "a<|end|>" + kNext + "<|channel|>commentary to=functions.f<|message|>{}",
       kAnalysis + "a<|end|>" + kNext, "<|channel|>commentary to=functions.f<|message|>{}"},
      {"MarksThatAreCutOff", Channels(), kAnalysis + "a<|end|>" + kNext + "<|chan",
       kAnalysis + "a<|end|>" + kNext + "<|chan", ""},
      {"ChannelsThatAreMissing", Channels(), "b", "", "b"},
      {"StopBehindChannels", Channels({"a"}), kAnalysis + "a<|end|>" + kNext + kFinal + "bab",
       kAnalysis + "a<|end|>" + kNext + kFinal, "b", State::kStopString},
      {"Plain", {}, "one two", "", "one two"},
      {"Empty", Tags({"x"}), "", "", ""},
      {"StopString", Stops({"END"}), "one END two", "", "one ", State::kStopString},
      {"StopAtStart", Stops({"END"}), "END two", "", "", State::kStopString},
      {"EarliestStopWins", Stops({"two", "on"}), "one two", "", "", State::kStopString},
      {"StopThatOnlyBegins", Stops({"END"}), "one EN", "", "one EN"},
      {"StopThatRepeats", Stops({"aab"}), "aaaab", "", "aa", State::kStopString},
      {"EmptyStopIsIgnored", Stops({""}), "one", "", "one"},
      {"StopOfManyBytes", Stops({"€"}), "5 € 6", "", "5 ", State::kStopString},
      {"Characters", {}, "aé€😀z", "", "aé€😀z"},
      {"HalfCharacterAtTheEnd", {}, "a\xe2\x82", "", "a"},
      {"InvalidBytesPass", {}, "a\xff\xc0z", "", "a\xff\xc0z"},
      {"NoThought", Tags(), "answer <think>x</think>", "", "answer <think>x</think>"},
      {"Thought", Tags(), "<think>a b</think>c", "<think>a b</think>", "c"},
      {"BlanksBeforeThought", Tags(), "\n <think>a</think>c", "\n <think>a</think>", "c"},
      {"TagThatOnlyBegins", Tags(), "<thin", "", "<thin"},
      {"TagThatTurnsOut", Tags(), "<thing>", "", "<thing>"},
      {"OpensInThought", InThought(), "a</think>b", "a</think>", "b"},
      {"ThoughtThatNeverEnds", InThought(), "a</thin", "a</thin", ""},
      {"StartTagInThought", InThought(), "<think>a</think>b", "<think>a</think>", "b"},
      {"OnlyOneThought", InThought(), "a</think>b</think>c", "a</think>", "b</think>c"},
      {"StopInThought", InThought({"b"}), "ab</think>c", "ab</think>", "c"},
      {"StopInsideTag", InThought({"think"}), "ab</think>c", "ab</think>", "c"},
      {"StopInBoth", InThought({"b"}), "ab</think>cbd", "ab</think>", "c", State::kStopString},
      {"StopAcrossTheTag", InThought({">c"}), "a</think>c>cd", "a</think>", "c",
       State::kStopString},
      {"BlanksBehindThought", InThought({"\n\n"}), "a</think>\n\nb\n\nc", "a</think>", "\n\nb",
       State::kStopString},
      {"StopInStartTag", Tags({"<th"}), "<think>a</think>b", "<think>a</think>", "b"},
      {"StopInNoTag", Tags({"<th"}), "a <thing>", "", "a ", State::kStopString},
      {"StopInTagThatTurnsOut", Tags({"<th"}), "<thing>", "", "", State::kStopString},
      {"StopInTagThatOnlyBegins", Tags({"<th"}), "<thin", "", "", State::kStopString},
      {"TurnEndInThought", TurnEnds({"b"}), "ab</think>c", "a", "", State::kStopString},
      {"TurnEndInAnswer", TurnEnds({"END"}), "a</think>c EN END", "a</think>", "c EN ",
       State::kStopString},
      {"StopAfterThought", InThought({"d"}), "ab</think>cd", "ab</think>", "c", State::kStopString},
      {"NoEndTag", {.thinking_start = "<think>"}, "<think>a", "", "<think>a"},
  };
}

class TextStreamTest : public testing::TestWithParam<Case> {};

// Pushes `input` in pieces of `size` bytes.
std::pair<State, Seen> Feed(TextStream::Options options, const std::string& input, size_t size) {
  Seen seen;
  options.sink = [&seen](std::string_view text, TextPart part) {
    (part == TextPart::kThought ? seen.thought : seen.answer) += text;
    seen.pieces.emplace_back(text);
    return true;
  };
  TextStream stream(options);
  State state = State::kOpen;
  for (size_t i = 0; i < input.size() && state == State::kOpen; i += size) {
    state = stream.Push(std::string_view(input).substr(i, size));
  }
  if (state == State::kOpen) state = stream.Finish();
  EXPECT_EQ(stream.text(), seen.thought + seen.answer);
  return {state, seen};
}

TEST_P(TextStreamTest, ShowsTheSameHoweverBytesArrive) {
  const Case& c = GetParam();
  for (size_t size = 1; size <= c.input.size() + 1; ++size) {
    const auto [state, seen] = Feed(c.options, c.input, size);
    EXPECT_EQ(state, c.state) << "pieces of " << size;
    EXPECT_EQ(seen.thought, c.thought) << "pieces of " << size;
    EXPECT_EQ(seen.answer, c.answer) << "pieces of " << size;
  }
}

INSTANTIATE_TEST_SUITE_P(All, TextStreamTest, testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

TEST(TextStreamPieces, NeverSplitCharacters) {
  const auto [state, seen] = Feed({}, "aé€😀z", 1);
  EXPECT_EQ(seen.pieces, (std::vector<std::string>{"a", "é", "€", "😀", "z"}));
}

TEST(TextStreamPieces, ArePassedOnAsSoonAsTheyAreCertain) {
  std::string seen;
  TextStream::Options options = Stops({"abc"});
  options.sink = [&seen](std::string_view text, TextPart) {
    seen += text;
    return true;
  };
  TextStream stream(options);
  EXPECT_EQ(stream.Push("xa"), State::kOpen);
  EXPECT_EQ(seen, "x");
  EXPECT_EQ(stream.Push("b"), State::kOpen);
  EXPECT_EQ(seen, "x");
  EXPECT_EQ(stream.Push("x"), State::kOpen);
  EXPECT_EQ(seen, "xabx");
}

TEST(TextStreamParts, AThoughtMayStillOpenWhileNothingButBlanksAndItsTagAreThere) {
  TextStream stream(Tags());
  EXPECT_TRUE(stream.is_undecided());
  EXPECT_FALSE(stream.MayOpenThought(" \n"));  // does not continue the tag
  EXPECT_TRUE(stream.MayOpenThought("\n<"));
  EXPECT_TRUE(stream.MayOpenThought("<think>hm"));
  EXPECT_FALSE(stream.MayOpenThought("<thing"));
  EXPECT_FALSE(stream.HasBegunTag());
  (void)stream.Push(" <th");
  EXPECT_TRUE(stream.HasBegunTag());
  EXPECT_TRUE(stream.MayOpenThought("in"));
  EXPECT_FALSE(stream.MayOpenThought("<"));
  (void)stream.Push("e");
  EXPECT_FALSE(stream.is_undecided());
  EXPECT_FALSE(stream.MayOpenThought("<think>"));
  EXPECT_FALSE(stream.has_thought());
}

TEST(TextStreamParts, TheTokenThatEndsAThoughtMayBringText) {
  TextStream stream(InThought());
  (void)stream.Push("a</thi");
  EXPECT_FALSE(stream.LeavesThoughtWithText("nk"));
  EXPECT_FALSE(stream.LeavesThoughtWithText("nk>\n\n"));
  EXPECT_TRUE(stream.LeavesThoughtWithText("nk>\n{"));
  (void)stream.Push("nk>");
  EXPECT_TRUE(stream.has_thought());
  EXPECT_FALSE(stream.LeavesThoughtWithText("nk>{"));
}

TEST(TextStreamSink, IsNotCalledAgainAfterItRefused) {
  int calls = 0;
  TextStream::Options options = InThought();
  options.sink = [&calls](std::string_view, TextPart) {
    ++calls;
    return false;
  };
  TextStream stream(options);
  EXPECT_EQ(stream.Push("a</think>b"), State::kRefused);
  EXPECT_EQ(stream.Finish(), State::kRefused);
  EXPECT_EQ(calls, 1);
}

TEST(FindThought, EndsBehindTheMarksOfAChannel) {
  const ChatPrompt prompt = {.thinking_start = kAnalysis,
                             .thinking_end = "<|end|>",
                             .channels = {.message = kNext, .answer = kFinal}};
  const std::string thought = kAnalysis + "a<|end|>" + kNext + kFinal;
  EXPECT_EQ(FindThought(prompt, thought + "b").bytes, thought.size());
  EXPECT_EQ(FindThought(prompt, kFinal + "b").bytes, kFinal.size());
  EXPECT_EQ(FindThought(prompt, "b").bytes, 0U);
  const ThoughtExtent cut = FindThought(prompt, kAnalysis + "a<|e");
  EXPECT_TRUE(cut.is_unended);
  EXPECT_EQ(cut.bytes, kAnalysis.size() + 4);
  EXPECT_FALSE(FindThought(prompt, thought).is_unended);
}

}  // namespace
}  // namespace ebb

#include "src/server/api/openai/answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ebb::server {
namespace {

using testing::ElementsAre;

std::shared_ptr<const ChatPrompt> Thinks(bool opens = false) {
  ChatPrompt prompt;
  prompt.thinking_start = "<think>";
  prompt.thinking_end = "</think>";
  prompt.opens_in_thinking = opens;
  return std::make_shared<const ChatPrompt>(std::move(prompt));
}

// Returns all pieces of a thought and an answer that are read in pieces of `size` bytes.
AnswerPiece Read(AnswerReader reader, const std::string& thought, const std::string& answer,
                 size_t size) {
  AnswerPiece whole;
  for (size_t i = 0; i < thought.size(); i += size) {
    whole.Append(reader.Add(thought.substr(i, size), TextPart::kThought));
  }
  for (size_t i = 0; i < answer.size(); i += size) {
    whole.Append(reader.Add(answer.substr(i, size), TextPart::kAnswer));
  }
  whole.Append(reader.End(AnswerEnd::kComplete));
  return whole;
}

TEST(AnswerReader, ThoughtsComeWithoutTagsAndBlanksHoweverTheyAreCut) {
  for (size_t size = 1; size < 30; ++size) {
    AnswerPiece piece =
        Read({Thinks(), Calls::kNone, {}}, "<think>\n a < b \n</think>", "\n\nYes. \n", size);
    EXPECT_EQ(piece.thought, "a < b") << size;
    EXPECT_EQ(piece.content, "Yes. \n") << size;
    piece = Read({Thinks(true), Calls::kNone, {}}, " one </th two</think>\n", "Yes.", size);
    EXPECT_EQ(piece.thought, "one </th two") << size;
    EXPECT_EQ(piece.content, "Yes.") << size;
  }
}

TEST(AnswerReader, AnAnswerWithoutAThoughtIsLeftAsItIs) {
  const AnswerPiece piece = Read({Thinks(), Calls::kNone, {}}, "", "\n <think> so", 3);
  EXPECT_EQ(piece.thought, "");
  EXPECT_EQ(piece.content, "\n <think> so");
}

TEST(AnswerReader, ChannelMarksBelongToNeitherThoughtNorContent) {
  ChatPrompt prompt;
  prompt.thinking_start = "<|channel|>analysis<|message|>";
  prompt.thinking_end = "<|end|>";
  prompt.channels = {.message = "<|start|>assistant", .answer = "<|channel|>final<|message|>"};
  const auto channels = std::make_shared<const ChatPrompt>(prompt);
  const std::string thought = prompt.thinking_start + "hm, <|e" + prompt.thinking_end;
  for (size_t size = 1; size < 40; ++size) {
    AnswerPiece piece = Read({channels, Calls::kNone, {}},
                             thought + prompt.channels.message + prompt.channels.answer, "A", size);
    EXPECT_EQ(piece.thought, "hm, <|e") << size;
    EXPECT_EQ(piece.content, "A") << size;
    piece = Read({channels, Calls::kNone, {}}, thought + prompt.channels.message, "call", size);
    EXPECT_EQ(piece.thought, "hm, <|e") << size;
    piece = Read({channels, Calls::kNone, {}},
                 thought + prompt.channels.message + thought + prompt.channels.message +
                     prompt.channels.answer,
                 "A", size);
    EXPECT_EQ(piece.thought, "hm, <|e\n\nhm, <|e") << size;
    EXPECT_EQ(piece.content, "A") << size;
    piece = Read({channels, Calls::kNone, {}}, thought + "<|start|>assist", "", size);
    EXPECT_EQ(piece.thought, "hm, <|e") << size;
    piece = Read({channels, Calls::kNone, {}}, prompt.channels.answer, "A", size);
    EXPECT_EQ(piece.thought, "") << size;
    EXPECT_EQ(piece.content, "A") << size;
  }
}

TEST(AnswerReader, AnEmptyThoughtIsNone) {
  EXPECT_EQ(Read({Thinks(), Calls::kNone, {}}, "<think>\n</think>", "\nA", 4).thought, "");
}

TEST(AnswerReader, AThoughtThatWasCutOffIsTold) {
  AnswerReader reader(Thinks(true), Calls::kNone, {});
  AnswerPiece piece = reader.Add("half a </thi", TextPart::kThought);
  EXPECT_EQ(piece.thought, "half a");
  piece = reader.End(AnswerEnd::kPartial);
  EXPECT_EQ(piece.thought, " </thi");
}

TEST(AnswerReader, OfAPromptWithoutSyntaxAllIsContent) {
  const AnswerPiece piece = Read({Thinks(), Calls::kParsed, {}}, "", "{\"name\": 1}", 2);
  EXPECT_EQ(piece.content, "{\"name\": 1}");
  EXPECT_TRUE(piece.calls.empty());
}

TEST(AnswerPiece, PiecesOfACallBecomeOne) {
  AnswerPiece piece = {.calls = {{.index = 0, .id = "a", .name = "f", .arguments = "{"}}};
  piece.Append({.thought = "t",
                .content = "c",
                .calls = {{.index = 0, .arguments = "}"}, {.index = 1, .id = "b", .name = "g"}}});
  EXPECT_EQ(piece.thought, "t");
  EXPECT_EQ(piece.content, "c");
  EXPECT_THAT(piece.calls,
              ElementsAre(CallPiece{.index = 0, .id = "a", .name = "f", .arguments = "{}"},
                          CallPiece{.index = 1, .id = "b", .name = "g"}));
}

}  // namespace
}  // namespace ebb::server

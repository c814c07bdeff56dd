// Turns the bytes of sampled tokens into text that can be shown: whole UTF-8 characters, nothing of
// a stop string, thoughts apart from the answer. Bytes that may still become a stop string or a tag
// are held back until that is decided. Stop strings are looked for in the answer alone, from its
// first character that is no blank where a thought is in front of it.
#ifndef EBB_GENERATE_TEXT_STREAM_H_
#define EBB_GENERATE_TEXT_STREAM_H_

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "ebb/generate.h"

namespace ebb {

class TextStream {
 public:
  struct Options {
    std::vector<std::string> stops;           // empty strings are ignored
    std::vector<std::string> turn_ends = {};  // stop strings in thoughts, too
    // Both or none. Only an answer that begins with the start tag has a thought.
    std::string thinking_start;
    std::string thinking_end;
    bool opens_in_thinking = false;
    ChannelMarks channels = {};  // their bytes belong to the thought; see ChatPrompt
    std::function<bool(std::string_view text, TextPart part)> sink;  // may be null
  };
  explicit TextStream(Options options);

  enum class State {
    kOpen,
    kStopString,  // one was found; the text before it has been passed on
    kRefused,     // the sink returned false
  };
  // REQUIRES: the state is kOpen.
  State Push(std::string_view bytes);
  // No more bytes will come: passes on what was held back, except half a character.
  State Finish();

  // Replaces the stop strings. The new ones are looked for in text that comes or is held back.
  void SetStops(std::vector<std::string> stops);

  // Returns a stream in the same state; its text starts empty and reaches no sink.
  [[nodiscard]] TextStream WithoutSink() const;

  // The one that was found; empty: none.
  [[nodiscard]] const std::string& stop_string() const { return stop_string_; }
  [[nodiscard]] bool in_thought() const { return part_ == Part::kThought; }
  // Whether it is open if the text begins with a thought.
  [[nodiscard]] bool is_undecided() const { return part_ == Part::kUndecided; }
  // Whether the answer's text or another thought begins once channel marks have come.
  [[nodiscard]] bool awaits_marks() const { return part_ == Part::kMarks; }
  // Bytes that are held back.
  [[nodiscard]] const std::string& pending() const { return pending_; }
  [[nodiscard]] bool has_thought() const { return in_thought() || thought_bytes_ > 0; }
  // Whether the text still may begin with a thought once `bytes` follow, which bring more of the
  // tag. False unless it is undecided.
  [[nodiscard]] bool MayOpenThought(std::string_view bytes) const;
  // Whether a part of the start tag is there.
  [[nodiscard]] bool HasBegunTag() const;
  // Whether `bytes` end the thought and bring text of the answer, more than blanks, at once. False
  // unless it is in a thought.
  [[nodiscard]] bool LeavesThoughtWithText(std::string_view bytes) const;
  // All that was passed on, or would have been if there were a sink.
  [[nodiscard]] const std::string& text() const { return text_; }
  // The bytes at the beginning of text() that belong to the thought.
  [[nodiscard]] size_t thought_bytes() const { return thought_bytes_; }

 private:
  enum class Part { kUndecided, kThought, kMarks, kAnswer };
  enum class Hold { kWhatMayChange, kHalfCharacters };
  void Advance(Hold hold);
  void AdvanceAnswer(Hold hold);
  // Cuts the pending bytes at the first of `words` in them. False: there is none.
  bool CutAt(const std::vector<std::string>& words);
  // Decides whether the pending bytes begin with a thought. False: it takes more bytes to tell.
  bool DecideStart(Hold hold);
  // Passes the pending bytes on up to the end of the thought. False: the thought has no end yet.
  bool EndThought(Hold hold);
  // Passes channel marks on, and decides what follows them. False: it takes more bytes to tell.
  bool PassMarks(Hold hold);
  [[nodiscard]] size_t HeldBytes(Hold hold) const;
  void Emit(size_t size, TextPart part);

  Options options_;
  std::string pending_;  // not passed on yet
  std::string text_;
  size_t thought_bytes_ = 0;
  std::string stop_string_;
  Part part_;
  bool skips_blanks_ = false;  // those between a thought and the answer hold no stop string
  State state_ = State::kOpen;
};

// The number of bytes at the end of `text` that begin a UTF-8 character without completing it.
[[nodiscard]] size_t IncompleteUtf8Suffix(std::string_view text);

}  // namespace ebb

#endif  // EBB_GENERATE_TEXT_STREAM_H_

// TextStream turns the bytes of sampled tokens into text that can be shown: whole UTF-8 characters,
// without stop strings, and with the thought separate from the answer. It holds back bytes that may
// become a stop string or a tag, until more bytes decide that. It looks for stop strings only in
// the answer; after a thought, from the answer's first non-blank character on.
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
    std::vector<std::string> turn_ends = {};  // stop strings that also count in thoughts
    // thinking_start and thinking_end are the tags around a thought; both are set or both are
    // empty. An answer has a thought only if it begins with thinking_start.
    std::string thinking_start;
    std::string thinking_end;
    bool opens_in_thinking = false;
    ChannelMarks channels = {};  // their bytes count as thought; see ChatPrompt
    std::function<bool(std::string_view text, TextPart part)> sink;  // gets the text; may be null
  };
  explicit TextStream(Options options);

  enum class State {
    kOpen,
    kStopString,  // a stop string was found; the text before it was passed on
    kRefused,     // the sink returned false
  };
  // Appends bytes and passes on those that cannot become part of a stop string or tag. REQUIRES:
  // the state is kOpen.
  State Push(std::string_view bytes);
  // Ends the input: passes on the bytes held back, except an incomplete character.
  State Finish();

  // Replaces the stop strings. The new ones are looked for in bytes that are held back or come
  // later.
  void SetStops(std::vector<std::string> stops);

  // Returns a copy of this stream's state, with empty text() and without a sink.
  [[nodiscard]] TextStream WithoutSink() const;

  // Returns the stop string that was found; empty: none was.
  [[nodiscard]] const std::string& stop_string() const { return stop_string_; }
  [[nodiscard]] bool in_thought() const { return part_ == Part::kThought; }
  // Returns whether it is unknown yet if the text begins with a thought.
  [[nodiscard]] bool is_undecided() const { return part_ == Part::kUndecided; }
  // Returns whether the stream waits for channel marks, which decide whether the answer or another
  // thought follows.
  [[nodiscard]] bool awaits_marks() const { return part_ == Part::kMarks; }
  // Returns the bytes that are held back.
  [[nodiscard]] const std::string& pending() const { return pending_; }
  [[nodiscard]] bool has_thought() const { return in_thought() || thought_bytes_ > 0; }
  // Returns whether the text may still begin with a thought if `bytes` come next; they must
  // continue the start tag. False unless is_undecided().
  [[nodiscard]] bool MayOpenThought(std::string_view bytes) const;
  // Returns whether is_undecided() and a beginning of the start tag has come.
  [[nodiscard]] bool HasBegunTag() const;
  // Returns whether `bytes` would end the thought and also add non-blank text of the answer. False
  // unless in_thought().
  [[nodiscard]] bool LeavesThoughtWithText(std::string_view bytes) const;
  // Returns all text that was passed on, or would have been passed to a sink.
  [[nodiscard]] const std::string& text() const { return text_; }
  // Returns the number of bytes at the beginning of text() that belong to the thought.
  [[nodiscard]] size_t thought_bytes() const { return thought_bytes_; }

 private:
  enum class Part { kUndecided, kThought, kMarks, kAnswer };
  enum class Hold { kWhatMayChange, kHalfCharacters };
  void Advance(Hold hold);
  void AdvanceAnswer(Hold hold);
  // Cuts the pending bytes off at the first occurrence of one of `words`. Returns false if there is
  // none.
  bool CutAt(const std::vector<std::string>& words);
  // Decides whether the pending bytes begin a thought. Returns false if this takes more bytes.
  bool DecideStart(Hold hold);
  // Passes on the pending bytes up to the end of the thought. Returns false if the end has not come
  // yet.
  bool EndThought(Hold hold);
  // Passes on channel marks, and decides about the text after them. Returns false if this takes
  // more bytes.
  bool PassMarks(Hold hold);
  [[nodiscard]] size_t HeldBytes(Hold hold) const;
  void Emit(size_t size, TextPart part);

  Options options_;
  std::string pending_;  // bytes held back
  std::string text_;
  size_t thought_bytes_ = 0;
  std::string stop_string_;
  Part part_;
  bool skips_blanks_ = false;  // blanks after a thought cannot begin a stop string
  State state_ = State::kOpen;
};

}  // namespace ebb

#endif  // EBB_GENERATE_TEXT_STREAM_H_

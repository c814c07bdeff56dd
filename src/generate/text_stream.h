// TextStream turns the bytes of sampled tokens into text that can be shown: whole UTF-8 characters,
// no part of a stop string, the thought separate from the answer. It holds back bytes that may
// still become a stop string or a tag until more bytes decide that. It looks for stop strings in
// the answer alone; after a thought, from the answer's first non-blank character on.
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
    // thinking_start and thinking_end are both set or both empty. Only an answer that begins with
    // the start tag has a thought.
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
  // Appends bytes and passes on what is certain. REQUIRES: the state is kOpen.
  State Push(std::string_view bytes);
  // Ends the input: passes on what was held back, except half a character.
  State Finish();

  // Replaces the stop strings. The stream looks for the new ones in text that comes or is held
  // back.
  void SetStops(std::vector<std::string> stops);

  // Returns a stream in the same state, with an empty text() and without a sink.
  [[nodiscard]] TextStream WithoutSink() const;

  // Returns the stop string that was found; empty: none.
  [[nodiscard]] const std::string& stop_string() const { return stop_string_; }
  [[nodiscard]] bool in_thought() const { return part_ == Part::kThought; }
  // Returns whether more bytes must decide if the text begins with a thought.
  [[nodiscard]] bool is_undecided() const { return part_ == Part::kUndecided; }
  // Returns whether the stream waits for channel marks, which decide if the answer or another
  // thought follows.
  [[nodiscard]] bool awaits_marks() const { return part_ == Part::kMarks; }
  // Returns the bytes that are held back.
  [[nodiscard]] const std::string& pending() const { return pending_; }
  [[nodiscard]] bool has_thought() const { return in_thought() || thought_bytes_ > 0; }
  // Returns whether the text may still begin with a thought once `bytes`, which must add to the
  // start tag, follow. False unless is_undecided().
  [[nodiscard]] bool MayOpenThought(std::string_view bytes) const;
  // Returns whether is_undecided() and a part of the start tag has come.
  [[nodiscard]] bool HasBegunTag() const;
  // Returns whether `bytes` would end the thought and at once add text of the answer other than
  // blanks. False unless in_thought().
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
  // Cuts the pending bytes at the first occurrence of one of `words`. Returns false if there is
  // none.
  bool CutAt(const std::vector<std::string>& words);
  // Decides whether the pending bytes begin with a thought. Returns false if more bytes must
  // decide.
  bool DecideStart(Hold hold);
  // Passes the pending bytes on up to the end of the thought. Returns false if the end has not
  // come.
  bool EndThought(Hold hold);
  // Passes channel marks on, and decides what follows them. Returns false if more bytes must
  // decide.
  bool PassMarks(Hold hold);
  [[nodiscard]] size_t HeldBytes(Hold hold) const;
  void Emit(size_t size, TextPart part);

  Options options_;
  std::string pending_;  // not passed on yet
  std::string text_;
  size_t thought_bytes_ = 0;
  std::string stop_string_;
  Part part_;
  bool skips_blanks_ = false;  // blanks between thought and answer hold no stop string
  State state_ = State::kOpen;
};

}  // namespace ebb

#endif  // EBB_GENERATE_TEXT_STREAM_H_

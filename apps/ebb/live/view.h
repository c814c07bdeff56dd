// ebb run --live: the text of a session on the terminal's alternate screen, each token in the style
// of the tier that most groups have it in, redrawn as tiers change; below it the rows of each tier
// and the speed. Text that does not fit the screen has scrolled away. When the answer ends, the
// screen comes back as it was, and the answer is written to it in its last styles.
#ifndef EBB_APPS_LIVE_VIEW_H_
#define EBB_APPS_LIVE_VIEW_H_

#include <chrono>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apps/common/options/options.h"
#include "apps/common/terminal/screen.h"
#include "apps/ebb/live/text.h"
#include "ebb/engine.h"
#include "ebb/generate.h"

namespace ebb::cli {

// "T0 fast 1200 rows 2.5 MiB", a tier each, its name in its style.
[[nodiscard]] std::vector<std::string> TierLegend(const Session& session);
// Blanks between the parts, line breaks where the next part would not fit; a part that is too wide
// is cut. Escape sequences take no columns.
[[nodiscard]] std::vector<std::string> FillLines(const std::vector<std::string>& parts,
                                                 int columns);

// A token that was chosen, and where it stands.
struct ChosenToken {
  Position position = -1;  // -1: none was
  Token token = 0;
};
// The guesses after the last token that was chosen, of those that a session has `drafted` from
// `next_position` on. It may not have read the token, which then is the first of them, or refutes
// them all.
[[nodiscard]] std::span<const Token> GuessesBehind(const ChosenToken& last,
                                                   std::span<const Token> drafted,
                                                   Position next_position);

class LiveView {
 public:
  // `unread`: shown before as well, but not in the session yet; the last token of an answer that
  // goes on. REQUIRES: Screen::IsThere(), and a session with a ledger that has read its prompt and
  // outlives the view.
  LiveView(const Session& session, const Model& model, Thoughts thoughts,
           std::span<const Token> unread);

  // For GenerateOptions. A token comes before its text.
  void AddToken(Token token, const ChatPrompt& prompt);
  // False when the terminal cannot be written; status() says why.
  bool Write(std::string_view text, TextPart part);
  // A sentence to be seen now, and to be found on stderr afterwards.
  void Note(std::string sentence);
  // Gives the screen back and writes the answer.
  void Finish();
  [[nodiscard]] const Status& status() const { return status_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct TokenBytes {
    Position position = 0;
    size_t bytes = 0;  // still to come
  };
  void Draw();
  [[nodiscard]] std::string StyleOf(Position position, TextPart part) const;
  [[nodiscard]] std::string DraftedLine(int columns) const;
  [[nodiscard]] double Rate() const;
  [[nodiscard]] std::vector<std::string> StatusLines(int columns) const;

  const Session& session_;
  const Model& model_;
  const Thoughts thoughts_;
  LiveText text_;
  size_t answer_begin_ = 0;  // characters of text_ before the answer
  ChosenToken last_chosen_;
  bool hides_ = false;  // what comes is a thought that is not shown
  std::deque<TokenBytes> coming_;
  Position last_position_ = 0;                 // of the token whose text came last
  bool trim_ = false;                          // blanks between a hidden thought and the answer
  std::deque<Clock::time_point> token_times_;  // of the last few
  std::vector<std::string> notes_;
  std::optional<Screen> screen_;
  Screen::Size drawn_size_;
  Clock::time_point drawn_at_;
  Status status_;
};

}  // namespace ebb::cli

#endif  // EBB_APPS_LIVE_VIEW_H_

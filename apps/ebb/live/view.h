// Implements `ebb run --live`: shows the text of a session on the terminal's alternate screen, each
// token in the colour of the tier in which most groups hold it, and redraws it as tiers change.
// Below the text it shows the rows of each tier and the speed. Text that does not fit scrolls away.
// When the answer ends, the previous screen comes back, and the answer is written to it in its last
// colours.
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

// Returns one text for each tier, such as "T0 fast 1,200 tokens 2.5 MiB", with its name in the
// tier's colour. Counts a token whose rows lie in several tiers by its share in each.
[[nodiscard]] std::vector<std::string> TierLegend(const Session& session, const ModelShape& shape);
// Joins the parts to lines of at most `columns` columns, with blanks between parts; cuts a part
// that is too wide. Escape sequences count as no columns.
[[nodiscard]] std::vector<std::string> FillLines(const std::vector<std::string>& parts,
                                                 int columns);

// ChosenToken is the token that the sampler chose last, and its position.
struct ChosenToken {
  Position position = -1;  // -1: none was
  Token token = 0;
};
// Returns the drafted tokens that are still guesses after `last` was chosen. `drafted` are the
// session's draft tokens from `next_position` on. If the session has not decoded `last` yet, it
// either equals the first drafted token, and the rest is returned, or it refutes them all, and
// nothing is returned.
[[nodiscard]] std::span<const Token> GuessesBehind(const ChosenToken& last,
                                                   std::span<const Token> drafted,
                                                   Position next_position);

// LiveView shows a session's text on the terminal's alternate screen, each token in the colour of
// the tier that holds its rows.
class LiveView {
 public:
  // Enters the screen and draws the session's text. `unread` are tokens at the end of an answer
  // that goes on which were shown before but which the session has not decoded yet. REQUIRES:
  // Screen::IsThere(); the session has a ledger, has read its prompt and outlives the view.
  LiveView(const Session& session, const Model& model, Thoughts thoughts,
           std::span<const Token> unread);

  // Records a chosen token, before Write() brings its text. Call it from GenerateOptions::on_token.
  void AddToken(Token token, const ChatPrompt& prompt);
  // Shows a piece of the answer. Returns false if the terminal cannot be written; status() says
  // why.
  bool Write(std::string_view text, TextPart part);
  // Shows a sentence below the text and writes it to stderr after Finish().
  void Note(std::string sentence);
  // Leaves the screen, then writes the answer to stdout and the notes to stderr.
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

#include "apps/ebb/live/view.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>

#include <fmt/format.h>

#include "apps/common/report.h"
#include "apps/common/terminal/output.h"
#include "apps/common/terminal/say.h"
#include "apps/common/terminal/tier_style.h"
#include "ebb/report.h"
#include "src/base/text/size_text.h"

namespace ebb::cli {
namespace {

using namespace std::chrono_literals;

constexpr auto kFrameTime = 50ms;
constexpr size_t kRateTokens = 32;

std::string Styled(std::string_view text, std::string_view style) {
  return style.empty() ? std::string(text) : fmt::format("\033[{}m{}\033[0m", style, text);
}

// Returns the end of the escape sequence or the character at `at`. All texts of this file are
// ASCII.
size_t EndOfUnit(std::string_view text, size_t at) {
  if (text[at] != '\033') return at + 1;
  return std::min(text.find('m', at), text.size() - 1) + 1;
}

int Columns(std::string_view text) {
  int columns = 0;
  for (size_t at = 0; at < text.size(); at = EndOfUnit(text, at)) columns += text[at] != '\033';
  return columns;
}

std::string Cut(std::string_view text, int columns) {
  std::string cut;
  for (size_t at = 0; at < text.size();) {
    const size_t end = EndOfUnit(text, at);
    const bool is_escape = text[at] == '\033';
    if (is_escape || columns-- > 0) cut += text.substr(at, end - at);
    at = end;
  }
  return cut;
}

}  // namespace

std::vector<std::string> TierLegend(const Session& session, const ModelShape& shape) {
  static constexpr std::array<std::string_view, kNumTiers> kMeanings = {"fast", "capacity",
                                                                        "compressed", "evicted"};
  const CacheAccounting cache = session.accounting();
  std::vector<std::string> parts;
  for (const Tier tier : {Tier::kT0, Tier::kT1, Tier::kT2, Tier::kT3}) {
    const auto index = static_cast<size_t>(tier);
    const bool gone = tier == Tier::kT3;
    const TierAccounting& of_tier = cache.tiers[index];
    std::string text =
        Styled(fmt::format("{} {}", TierName(tier), kMeanings[index]), TierStyle(tier));
    text += fmt::format(" {} tokens",
                        WithCommas(InTokens(gone ? cache.rows_evicted : of_tier.rows, shape)));
    if (!gone) text += " " + SizeText(of_tier.page_bytes);
    parts.push_back(std::move(text));
  }
  return parts;
}

std::vector<std::string> FillLines(const std::vector<std::string>& parts, int columns) {
  constexpr int kGap = 2;
  std::vector<std::string> lines;
  int used = columns;
  for (const std::string& part : parts) {
    const int wanted = Columns(part);
    if (used + kGap + wanted > columns) {
      lines.emplace_back();
      used = 0;
    } else {
      lines.back().append(kGap, ' ');
      used += kGap;
    }
    lines.back() += wanted > columns ? Cut(part, columns) : part;
    used += wanted;
  }
  return lines;
}

std::span<const Token> GuessesBehind(const ChosenToken& last, std::span<const Token> drafted,
                                     Position next_position) {
  if (last.position < next_position) return drafted;
  const bool is_right = !drafted.empty() && drafted.front() == last.token;
  return is_right ? drafted.subspan(1) : std::span<const Token>();
}

LiveView::LiveView(const Session& session, const Model& model, Thoughts thoughts,
                   std::span<const Token> unread)
    : session_(session), model_(model), thoughts_(thoughts) {
  Position position = 0;
  for (const std::span<const Token> tokens : {session.tokens(), unread}) {
    for (const Token token : tokens) {
      text_.Append(model.TokenText(token, Model::ControlTokens::kHide), position++,
                   TextPart::kAnswer);
    }
  }
  text_.EndCharacter();
  answer_begin_ = text_.num_characters();
  screen_.emplace();
  Draw();
}

void LiveView::AddToken(Token token, const ChatPrompt& prompt) {
  const std::string text = ShownText(model_, token, prompt.thinking_start, prompt.thinking_end);
  last_chosen_ = {.position = session_.next_position(), .token = token};
  coming_.push_back({session_.next_position(), text.size()});
  token_times_.push_back(Clock::now());
  if (token_times_.size() > kRateTokens) token_times_.pop_front();
}

bool LiveView::Write(std::string_view text, TextPart part) {
  const bool hidden = part == TextPart::kThought && thoughts_ == Thoughts::kHide;
  hides_ = hidden;
  if (hidden) trim_ = true;
  while (!text.empty()) {
    // If an earlier answer was cut within a character, that character comes whole now and has more
    // bytes than the new tokens.
    const bool is_surplus = coming_.empty();
    const size_t size = is_surplus ? text.size() : std::min(coming_.front().bytes, text.size());
    std::string_view piece = text.substr(0, size);
    text.remove_prefix(size);
    if (!is_surplus) last_position_ = coming_.front().position;
    if (!hidden) {
      if (trim_) {
        piece.remove_prefix(std::min(piece.find_first_not_of(" \t\r\n"), piece.size()));
        trim_ = piece.empty();
      }
      text_.Append(piece, last_position_, part);
    }
    if (is_surplus) continue;
    coming_.front().bytes -= size;
    if (coming_.front().bytes == 0) coming_.pop_front();
  }
  if (Clock::now() - drawn_at_ >= kFrameTime || Screen::CameBack()) Draw();
  return status_.ok();
}

void LiveView::Note(std::string sentence) { notes_.push_back(std::move(sentence)); }

// Returns the colour of a token by its tier. The token that was chosen last is not in the cache yet
// and counts as T0.
std::string LiveView::StyleOf(Position position, TextPart part) const {
  const Ledger& ledger = *session_.ledger();
  Tier tier = position < ledger.next_position() ? ledger.CommonTier(position) : Tier::kT0;
  // The draft of a lossless session drops rows, but every row also lies in T1.
  if (session_.lossless_report() != nullptr && tier == Tier::kT3) tier = Tier::kT1;
  std::string style(TierStyle(tier));
  if (part == TextPart::kThought && thoughts_ == Thoughts::kDim) {
    style = style.empty() ? "2" : "2;" + style;
  }
  return style;
}

// Returns a line with the drafted tokens. They may still turn out to be wrong, so they are shown
// next to the text, on one line even if they contain line breaks.
std::string LiveView::DraftedLine(int columns) const {
  constexpr std::string_view kTitle = "drafted: ";
  if (hides_ || columns <= static_cast<int>(kTitle.size()))
    return Cut(Styled(kTitle, "2"), columns);
  LiveText drafted;
  drafted.SetWidth(columns - static_cast<int>(kTitle.size()));
  for (const Token token :
       GuessesBehind(last_chosen_, session_.drafted(), session_.next_position())) {
    std::string text = model_.TokenText(token, Model::ControlTokens::kHide);
    std::ranges::replace(text, '\n', ' ');
    drafted.Append(text, 0, TextPart::kAnswer);
  }
  const auto style = [](Position, TextPart) { return std::string("2;3"); };
  return Styled(kTitle, "2") + drafted.Line(0, style);
}

double LiveView::Rate() const {
  if (token_times_.size() < 2) return 0;
  const std::chrono::duration<double> time = token_times_.back() - token_times_.front();
  return time.count() > 0 ? static_cast<double>(token_times_.size() - 1) / time.count() : 0;
}

std::vector<std::string> LiveView::StatusLines(int columns) const {
  const MoveAccounting moves = session_.accounting().moves;
  std::vector<std::string> lines = FillLines(TierLegend(session_, model_.shape()), columns);
  const std::vector<std::string> figures = {
      fmt::format("{} tokens", session_.next_position()), fmt::format("{:.1f} tokens/s", Rate()),
      "moved down " + SizeText(moves.bytes_down), "up " + SizeText(moves.bytes_up)};
  if (session_.lossless_report() != nullptr) {
    lines.insert(lines.begin(), DraftedLine(columns));
  }
  for (const auto& parts : {figures, notes_}) {
    for (std::string& line : FillLines(parts, columns)) lines.push_back(std::move(line));
  }
  return lines;
}

void LiveView::Draw() {
  const Screen::Size size = screen_->size();
  drawn_at_ = Clock::now();
  text_.SetWidth(size.columns);
  std::vector<std::string> status = StatusLines(size.columns);
  const auto rows = static_cast<size_t>(size.rows);
  // At least half of a small screen is left for the text.
  status.resize(std::min(status.size(), rows / 2));
  const size_t text_rows = rows - status.size();
  const size_t lines = text_.num_lines();
  const auto style = [this](Position p, TextPart part) { return StyleOf(p, part); };
  std::vector<std::string> frame;
  for (size_t line = lines - std::min(lines, text_rows); line < lines; ++line) {
    frame.push_back(text_.Line(line, style));
  }
  frame.resize(text_rows);
  frame.insert(frame.end(), status.begin(), status.end());
  if (status_.ok()) status_ = screen_->Draw(frame);
}

void LiveView::Finish() {
  if (!screen_.has_value()) return;
  text_.EndCharacter();
  screen_.reset();
  const auto style = [this](Position p, TextPart part) { return StyleOf(p, part); };
  const bool ends_line = text_.EndsLine() && text_.num_characters() > answer_begin_;
  const std::string answer = text_.From(answer_begin_, style);
  if (status_.ok()) status_ = WriteToStdout(ends_line ? answer : answer + "\n");
  for (const std::string& note : notes_) Say("{}\n", note);
  notes_.clear();
}

}  // namespace ebb::cli

#include "apps/common/terminal/line_reader.h"

#include <algorithm>
#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <cwchar>
#include <filesystem>
#include <iostream>
#include <string_view>
#include <system_error>
#include <utility>

#include <histedit.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "apps/common/terminal/interrupt.h"
#include "apps/common/terminal/line_end.h"
#include "apps/common/terminal/say.h"
#include "apps/common/terminal/screen.h"

namespace ebb::cli {
namespace {

// kMarkPastes turns on the terminal's "bracketed paste mode", in which it marks the begin and end
// of pasted text.
constexpr char kMarkPastes[] = "\033[?2004h";
constexpr char kMarkNone[] = "\033[?2004l";
constexpr std::wstring_view kPasteEnd = L"\033[201~";

// Replaces the carriage returns that terminals paste for line breaks by newlines.
std::wstring WithNewlines(std::wstring_view pasted) {
  std::wstring text;
  for (size_t i = 0; i < pasted.size(); ++i) {
    const bool is_return = pasted[i] == L'\r';
    if (is_return && i + 1 < pasted.size() && pasted[i + 1] == L'\n') continue;
    text += is_return ? L'\n' : pasted[i];
  }
  // A line break at the end of the paste is dropped, since Enter ends the line.
  if (text.ends_with(L'\n')) text.pop_back();
  return text;
}

// Reads one character from stdin, as libedit's own function does, but never misses a signal: that
// function blocks in read(), which a signal that came just before it does not end. Returns 1, 0 at
// the end of input, or -1 with EINTR once Ctrl-C was pressed.
int ReadCharacter(EditLine*, wchar_t* character) {
  constexpr int kPollMillis = 50;
  mbstate_t state = {};
  while (true) {
    pollfd input = {.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
    const int num_ready = Interrupted() ? 0 : poll(&input, 1, kPollMillis);
    if (Interrupted()) {
      errno = EINTR;
      return -1;
    }
    if (num_ready <= 0) continue;  // libedit's handlers did what a resize or SIGCONT asks for
    char byte = 0;
    const ssize_t num_read = read(STDIN_FILENO, &byte, 1);
    if (num_read < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (num_read <= 0) return static_cast<int>(num_read);
    const size_t length = mbrtowc(character, &byte, 1, &state);
    if (length <= 1) return 1;                          // 0 is the character NUL
    if (length == static_cast<size_t>(-1)) state = {};  // drops bytes that are no character
  }
}

// Reads pasted text up to its end mark and inserts it into the line. libedit calls this when the
// mark of a paste's begin arrives.
unsigned char TakePaste(EditLine* editor, int) {
  std::wstring pasted;
  while (!pasted.ends_with(kPasteEnd)) {
    wchar_t next = 0;
    if (el_wgetc(editor, &next) != 1) return CC_EOF;
    pasted += next;
  }
  pasted.resize(pasted.size() - kPasteEnd.size());
  return el_winsertstr(editor, WithNewlines(pasted).c_str()) == 0 ? CC_REFRESH : CC_ERROR;
}

}  // namespace

class LineReader::Editor {
 public:
  Editor(std::string history_file, Complete complete);
  ~Editor() {
    el_end(editor_);
    history_end(history_);
  }
  Editor(const Editor&) = delete;
  Editor& operator=(const Editor&) = delete;

  std::optional<std::string> Next(const std::string& prompt);
  void Remember(const std::string& text);
  [[nodiscard]] bool had_typed() const { return had_typed_; }

 private:
  static Editor* Self(EditLine* editor) {
    Editor* self = nullptr;
    el_get(editor, EL_CLIENTDATA, &self);
    return self;
  }
  // Types the common beginning of all completions of the line, or lists them if it is typed
  // already.
  static unsigned char OnTab(EditLine* editor, int);
  static char* Prompt(EditLine* editor) { return Self(editor)->prompt_.data(); }

  const std::string history_file_;
  const Complete complete_;
  EditLine* editor_;
  History* history_;
  std::string prompt_;
  bool marks_pastes_;
  bool had_typed_ = false;
};

unsigned char LineReader::Editor::OnTab(EditLine* editor, int) {
  const LineInfo* const line = el_line(editor);
  const std::string_view typed(line->buffer, static_cast<size_t>(line->cursor - line->buffer));
  const std::vector<std::string> lines = Self(editor)->complete_(typed);
  if (lines.empty()) return CC_REFRESH_BEEP;
  std::string_view common = lines.front();
  for (const std::string& one : lines) {
    const auto end = std::ranges::mismatch(common, one).in1;
    common = common.substr(0, static_cast<size_t>(end - common.begin()));
  }
  if (common.size() > typed.size()) {
    const std::string rest(common.substr(typed.size()));
    return el_insertstr(editor, rest.c_str()) == 0 ? CC_REFRESH : CC_ERROR;
  }
  if (lines.size() == 1) return CC_REFRESH_BEEP;
  std::string list = "\n";
  for (const std::string& one : lines) list += one + "  ";
  Say("{}\n", list);
  return CC_REDISPLAY;
}

LineReader::Editor::Editor(std::string history_file, Complete complete)
    : history_file_(std::move(history_file)),
      complete_(std::move(complete)),
      editor_(el_init("ebb", stdin, stderr, stderr)),  // stdout is for the model's text
      history_(history_init()),
      marks_pastes_(TakesEscapes(STDERR_FILENO)) {
  constexpr int kRememberedLines = 1000;
  HistEvent event = {};
  history(history_, &event, H_SETSIZE, kRememberedLines);
  el_set(editor_, EL_CLIENTDATA, this);
  el_set(editor_, EL_HIST, history, history_);
  el_set(editor_, EL_EDITOR, "emacs");
  el_set(editor_, EL_SIGNAL, 1);
  el_set(editor_, EL_PROMPT, Prompt);
  el_set(editor_, EL_GETCFN, ReadCharacter);
  // Terminals send Home, End and Delete in several ways.
  for (const char* keys : {"\\e[1~", "\\e[7~", "\\e[H"}) {
    el_set(editor_, EL_BIND, keys, "ed-move-to-beg", nullptr);
  }
  for (const char* keys : {"\\e[4~", "\\e[8~", "\\e[F"}) {
    el_set(editor_, EL_BIND, keys, "ed-move-to-end", nullptr);
  }
  el_set(editor_, EL_BIND, "\\e[3~", "ed-delete-next-char", nullptr);
  el_set(editor_, EL_BIND, "^R", "em-inc-search-prev", nullptr);
  el_set(editor_, EL_ADDFN, "ebb-take-paste", "inserts what is pasted", TakePaste);
  el_set(editor_, EL_BIND, "\\e[200~", "ebb-take-paste", nullptr);
  el_set(editor_, EL_ADDFN, "ebb-complete", "completes commands and files", OnTab);
  el_set(editor_, EL_BIND, "^I", "ebb-complete", nullptr);
  el_source(editor_, nullptr);  // the user's own ~/.editrc
  if (history_file_.empty()) return;
  std::error_code ignored;  // without its folder, history() keeps nothing
  std::filesystem::create_directories(std::filesystem::path(history_file_).parent_path(), ignored);
  history(history_, &event, H_LOAD, history_file_.c_str());
}

void LineReader::Editor::Remember(const std::string& text) {
  HistEvent event = {};
  history(history_, &event, H_ENTER, text.c_str());
  if (history_file_.empty()) return;
  // The file is written at once, since a signal may end the program. Questions are private.
  const mode_t before = umask(S_IRWXG | S_IRWXO);
  history(history_, &event, H_SAVE, history_file_.c_str());
  umask(before);
}

std::optional<std::string> LineReader::Editor::Next(const std::string& prompt) {
  prompt_ = prompt;
  if (marks_pastes_) {
    SetExitBytes(kMarkNone);
    SayWithEscapes(kMarkPastes);
  }
  int num_bytes = 0;
  const char* const typed = el_gets(editor_, &num_bytes);
  if (marks_pastes_) {
    SayWithEscapes(kMarkNone);
    SetExitBytes(nullptr);
  }
  const LineInfo* const begun = el_line(editor_);
  had_typed_ = begun->lastchar > begun->buffer;
  if (typed == nullptr || num_bytes <= 0) return std::nullopt;
  return WithoutLineEnd(std::string(typed, static_cast<size_t>(num_bytes)));
}

LineReader::LineReader(std::string history_file, Complete complete) {
  if (isatty(STDIN_FILENO) == 0 || isatty(STDERR_FILENO) == 0) return;
  std::setlocale(LC_CTYPE, "");  // characters of more than one byte
  // The locale "C" would drop characters of more than one byte.
  if (MB_CUR_MAX == 1) std::setlocale(LC_CTYPE, "C.UTF-8");
  editor_ = std::make_unique<Editor>(std::move(history_file), std::move(complete));
}

LineReader::~LineReader() = default;

void LineReader::Remember(const std::string& text) {
  if (editor_ != nullptr) editor_->Remember(text);
}

bool LineReader::had_typed() const { return editor_ != nullptr && editor_->had_typed(); }

std::optional<std::string> LineReader::Next(const std::string& prompt) {
  if (editor_ != nullptr) return editor_->Next(prompt);
  std::string line;
  if (!std::getline(std::cin, line)) return std::nullopt;
  // WithoutLineEnd() takes the carriage return off only before a newline, which getline() has
  // removed. At the end of the input the last line had no newline and stays as it is.
  return std::cin.eof() ? line : WithoutLineEnd(line + '\n');
}

}  // namespace ebb::cli

#include <string_view>
#include <vector>

#include "ebb/lab/answers.h"
#include "lab/answers/text.h"

namespace ebb {
namespace {

// Returns the length of "\boxed" or a similar command at the beginning of `rest`, with what may
// precede its brace; 0: there is none.
size_t BoxCommandAt(std::string_view rest) {
  for (const std::string_view command : {"\\boxed", "\\fbox", "\\framebox"}) {
    if (!rest.starts_with(command)) continue;
    size_t length = command.size();
    if (length < rest.size() && IsLetter(rest[length])) return 0;
    while (length < rest.size() && rest[length] == ' ') ++length;
    return length;
  }
  return 0;
}

// Returns the content of a box without braces, "5" of "\boxed 5": up to white space or the end of
// the formula. Its length is limited, so that the search takes linear time.
std::string_view BareContent(std::string_view rest) {
  rest = rest.substr(0, 64);
  size_t end = 0;
  while (end < rest.size() && !IsSpace(rest[end]) && rest[end] != '$' && rest[end] != '}') ++end;
  std::string_view content = rest.substr(0, end);
  if (content.ends_with('.') || content.ends_with(',')) content.remove_suffix(1);
  return content;
}

}  // namespace

// Makes one pass with a stack of open braces: hostile nesting costs only memory, in proportion to
// the text.
std::string_view LastBoxed(std::string_view text) {
  struct Brace {
    size_t content_begin;
    bool is_box;
  };
  std::vector<Brace> open;
  std::string_view last;
  size_t last_begin = 0;
  const auto offer = [&](size_t begin, std::string_view content) {
    content = Trim(content);
    if (content.empty() || (begin < last_begin && !last.empty())) return;
    last = content;
    last_begin = begin;
  };
  for (size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (c == '\\') {
      const size_t command = BoxCommandAt(text.substr(at));
      if (command == 0) {
        at += 2;  // an escaped brace does not count
        continue;
      }
      at += command;
      if (at < text.size() && text[at] == '{') {
        ++at;
        open.push_back({at, true});
      } else {
        offer(at, BareContent(text.substr(at)));
      }
      continue;
    }
    ++at;
    if (c == '{') {
      open.push_back({at, false});
    } else if (c == '}' && !open.empty()) {
      const Brace brace = open.back();
      open.pop_back();
      if (brace.is_box) {
        offer(brace.content_begin, text.substr(brace.content_begin, at - 1 - brace.content_begin));
      }
    }
  }
  return last;
}

}  // namespace ebb

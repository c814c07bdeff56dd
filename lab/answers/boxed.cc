#include "lab/answers/boxed.h"

#include <cstdint>

#include "ebb/lab/answers.h"
#include "lab/answers/text.h"

namespace ebb {
namespace {

// The length of "\boxed" and its kin, with what may stand before the brace; 0: none begins here.
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

// "\boxed 5": up to white space or the end of the formula. Bounded, so that the pass stays linear.
std::string_view BareContent(std::string_view rest) {
  rest = rest.substr(0, 64);
  size_t end = 0;
  while (end < rest.size() && !IsSpace(rest[end]) && rest[end] != '$' && rest[end] != '}') ++end;
  std::string_view content = rest.substr(0, end);
  if (content.ends_with('.') || content.ends_with(',')) content.remove_suffix(1);
  return content;
}

// "$, $", " and ", "\text{ or }": what joins boxes that are one answer.
bool IsJoin(std::string_view between) {
  constexpr size_t kMaxBytes = 32;
  if (between.size() > kMaxBytes) return false;
  bool joins = false;
  while (!between.empty()) {
    size_t length = IsSpace(between[0]) ? 1 : 0;
    for (const std::string_view dress : {"$", "\\(", "\\)", "\\text{", "\\quad", "}"}) {
      if (between.starts_with(dress)) length = dress.size();
    }
    for (const std::string_view word : {",", ";", "and", "or"}) {
      if (!between.starts_with(word)) continue;
      length = word.size();
      joins = true;
    }
    if (length == 0) return false;
    between.remove_prefix(length);
  }
  return joins;
}

}  // namespace

// One pass with a stack of open braces: hostile nesting costs memory in proportion, no more.
std::vector<std::string_view> LastBoxes(std::string_view text) {
  struct Brace {
    size_t command_begin;
    size_t content_begin;
    bool is_box;
  };
  std::vector<Brace> open;
  std::vector<std::string_view> last;
  size_t last_begin = 0;
  size_t last_end = 0;
  const auto offer = [&](size_t command_begin, size_t begin, std::string_view content, size_t end) {
    content = Trim(content);
    if (content.empty() || (begin < last_begin && !last.empty())) return;
    if (last.empty() || command_begin < last_end ||
        !IsJoin(text.substr(last_end, command_begin - last_end))) {
      last.clear();
    }
    if (last.empty() || last.back() != content) last.push_back(content);
    last_begin = begin;
    last_end = end;
  };
  for (size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (c == '\\') {
      const size_t command = BoxCommandAt(text.substr(at));
      if (command == 0) {
        at += 2;  // an escaped brace is no brace
        continue;
      }
      const size_t begin = at;
      at += command;
      if (at < text.size() && text[at] == '{') {
        ++at;
        open.push_back({begin, at, true});
      } else {
        const std::string_view content = BareContent(text.substr(at));
        offer(begin, at, content, at + content.size());
      }
      continue;
    }
    ++at;
    if (c == '{') {
      open.push_back({at, at, false});
    } else if (c == '}' && !open.empty()) {
      const Brace brace = open.back();
      open.pop_back();
      if (!brace.is_box) continue;
      const size_t length = at - 1 - brace.content_begin;
      offer(brace.command_begin, brace.content_begin, text.substr(brace.content_begin, length), at);
    }
  }
  return last;
}

std::string_view LastBoxed(std::string_view text) {
  const std::vector<std::string_view> last = LastBoxes(text);
  return last.empty() ? std::string_view() : last.back();
}

}  // namespace ebb

#include "src/model/chat/answer_syntax.h"

#include <algorithm>
#include <exception>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <log.h>
#include <nlohmann/json.hpp>

namespace ebb {
namespace {

constexpr std::string_view kBlankBytes = " \t\r\n";

std::string_view WithoutBlanksAround(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(kBlankBytes), text.size()));
  return text.substr(0, text.find_last_not_of(kBlankBytes) + 1);
}

bool Parses(const common_chat_parser_params& params, const std::string& text) {
  try {
    (void)common_chat_parse(text, /*is_partial=*/true, params);
  } catch (const std::exception&) {
    return false;
  }
  return true;
}

// Returns the end of the prompt with which parsers and grammars begin. They know nothing of
// thoughts (the inputs have no reasoning_format), so tags that open or close a thought are left
// out.
std::string AnswerPrefix(const common_chat_params& params, const ChatPrompt& prompt,
                         common_chat_parser_params parser) {
  parser.generation_prompt.clear();
  const std::string& whole = params.generation_prompt;
  for (const std::string& tag : {params.thinking_start_tag, prompt.thinking_start}) {
    if (tag.empty()) continue;
    const std::string before = whole.substr(0, whole.find(tag));
    if (Parses(parser, before)) return before;
  }
  return whole;
}

#ifndef EBB_COMMON_IS_PATCHED
// Returns whether so many brackets are open that the parser, which recurses for each, might
// overflow the stack. The patched library limits its recursion itself.
bool IsTooDeep(std::string_view text) {
  constexpr int kMaxAnswerDepth = 500;
  int depth = 0;
  for (const char c : text) {
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') depth = std::max(depth - 1, 0);
    if (depth > kMaxAnswerDepth) return true;
  }
  return false;
}
#else
bool IsTooDeep(std::string_view /*text*/) { return false; }
#endif

// Returns whether all of `text` is an answer or, with COMMON_PEG_PARSE_FLAG_LENIENT, the beginning
// of an answer. The library's own function ignores a rest that some formats do not read.
bool ReadsAll(const std::string& text, const common_chat_parser_params& params,
              common_peg_parse_flags flags) {
  if (params.parser.empty()) return true;
  const std::string input = params.generation_prompt + text;
  common_peg_parse_context context(input, flags);
  const common_peg_parse_result result = params.parser.parse(context);
  if (result.need_more_input()) return true;
  return result.success() && input.find_first_not_of(kBlankBytes, result.end) == std::string::npos;
}

// Escapes line breaks and tabs within strings: some formats have arguments that are JSON except for
// line breaks and tabs.
std::string WithEscapedControls(const std::string& json) {
  std::string escaped;
  bool in_string = false;
  for (size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (in_string && c == '\\' && i + 1 < json.size()) {
      escaped += c;
      escaped += json[++i];
      continue;
    }
    if (c == '"') in_string = !in_string;
    const bool is_control = static_cast<unsigned char>(c) < ' ';
    if (!in_string || !is_control) {
      escaped += c;
    } else if (c == '\n' || c == '\t' || c == '\r') {
      escaped += c == '\n' ? "\\n" : c == '\t' ? "\\t" : "\\r";
    } else {
      escaped += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
    }
  }
  return escaped;
}

bool AreWhole(const std::vector<ToolCall>& calls) {
  return std::ranges::all_of(calls, [](const ToolCall& call) {
    return nlohmann::json::parse(call.arguments, nullptr, /*allow_exceptions=*/false).is_object();
  });
}

// Restores the blanks around a text, which parsers skip although they belong to it.
void RestoreBlanks(std::string_view text, AnswerEnd end, ChatAnswer* answer) {
  if (answer->content.empty()) {
    const bool is_blank = text.find_first_not_of(kBlankBytes) == std::string_view::npos;
    if (is_blank && end == AnswerEnd::kComplete) answer->content = text;
    return;
  }
  const size_t begin = std::min(text.find_first_not_of(kBlankBytes), text.size());
  if (text.substr(begin).starts_with(answer->content)) {
    answer->content.insert(0, text.substr(0, begin));
  }
  if (end == AnswerEnd::kComplete && answer->tool_calls.empty() &&
      WithoutBlanksAround(text) == WithoutBlanksAround(answer->content)) {
    answer->content = text;
  }
}

// Returns `text` as the parser expects it; nullopt: more text is needed to know how it begins.
std::optional<std::string> WithMark(const AnswerSyntax& syntax, std::string_view text,
                                    AnswerEnd end) {
  const std::string& mark = syntax.answer_mark;
  if (mark.empty()) return std::string(text);
  // Generation removes the marks in front of a final message and keeps those of a call, where the
  // receiver comes before or after the channel.
  constexpr std::string_view kChannel = "<|", kReceiver = "to=";
  const std::string_view rest =
      text.substr(std::min(text.find_first_not_of(kBlankBytes), text.size()));
  const bool has_head = rest.starts_with(kChannel) || rest.starts_with(kReceiver);
  const bool is_open =
      kChannel.starts_with(rest) || kReceiver.starts_with(rest) ||
      (has_head && rest.find(mark.substr(mark.rfind(kChannel))) == std::string::npos);
  if (is_open && end == AnswerEnd::kPartial) return std::nullopt;
  if (rest.starts_with(kReceiver)) return " " + std::string(rest);
  return (rest.starts_with(kChannel) ? "" : mark) + std::string(text);
}

}  // namespace

void SilenceLog() {
  static std::once_flag once;
  std::call_once(once, [] { common_log_set_verbosity_thold(-1); });
}

std::shared_ptr<const AnswerSyntax> SyntaxFrom(const common_chat_params& params,
                                               const ChatPrompt& prompt, bool may_call) {
  auto syntax = std::make_shared<AnswerSyntax>();
  syntax->may_call = may_call;
  syntax->params = common_chat_parser_params(params);
  syntax->params.parser.load(params.parser);
  syntax->params.generation_prompt = AnswerPrefix(params, prompt, syntax->params);
  syntax->answer_mark = prompt.channels.answer;
  return syntax;
}

std::string MarksBetweenThoughts(const ChatPrompt& prompt) {
  if (prompt.channels.empty()) return "";
  return prompt.thinking_end + prompt.channels.message + prompt.thinking_start;
}

void JoinThoughts(std::string_view marks_between, std::string* thought) {
  if (marks_between.empty()) return;
  for (size_t at = 0; (at = thought->find(marks_between, at)) != std::string::npos;) {
    thought->replace(at, marks_between.size(), "\n\n");
  }
}

std::string_view WithoutThoughtEnd(std::string_view thought, const ChatPrompt& prompt) {
  const std::string& tag = prompt.thinking_end;
  if (tag.empty()) return thought;
  const std::string before_answer = tag + prompt.channels.message + prompt.channels.answer;
  for (const std::string& marks : {before_answer, MarksBetweenThoughts(prompt)}) {
    for (size_t size = marks.size(); size >= tag.size(); --size) {
      if (thought.ends_with(std::string_view(marks).substr(0, size))) {
        return thought.substr(0, thought.size() - size);
      }
    }
  }
  return thought;
}

Result<ChatAnswer> ParseAnswer(const ChatPrompt& prompt, std::string_view text, AnswerEnd end) {
  if (prompt.syntax == nullptr) return ChatAnswer{.content = std::string(text)};
  // An answer that does not parse, because the template's analysis may be wrong, is an error only
  // if it may have calls; otherwise the whole text is the answer.
  const AnswerSyntax& syntax = *prompt.syntax;
  const auto refuse = [&](std::string_view why) -> Result<ChatAnswer> {
    if (!syntax.may_call) return ChatAnswer{.content = std::string(text)};
    return InvalidArgument(fmt::format("the answer is not in the model's format: {}", why));
  };
  if (IsTooDeep(text)) return refuse("its brackets are nested too deeply");
  SilenceLog();
  const std::optional<std::string> whole = WithMark(syntax, text, end);
  ChatAnswer answer;
  if (!whole.has_value()) return answer;
  try {
    const common_chat_msg message = common_chat_parse(*whole, /*is_partial=*/false, syntax.params);
    answer.content = message.content;
    for (const common_chat_tool_call& call : message.tool_calls) {
      answer.tool_calls.push_back(
          {.name = call.name, .arguments = WithEscapedControls(call.arguments), .id = call.id});
    }
    if (!ReadsAll(*whole, syntax.params, COMMON_PEG_PARSE_FLAG_LENIENT)) {
      return refuse("some of it is outside of the format");
    }
    if (end == AnswerEnd::kComplete &&
        !ReadsAll(*whole, syntax.params, COMMON_PEG_PARSE_FLAG_NONE)) {
      // A format may require calls after a text, or a last token that ended the generation and is
      // not in the text. So an incomplete parse is accepted if it loses no text and its calls are
      // whole.
      const bool is_whole = answer.tool_calls.empty()
                                ? WithoutBlanksAround(answer.content) == WithoutBlanksAround(text)
                                : AreWhole(answer.tool_calls);
      if (!is_whole) return refuse("it ends too early");
    }
  } catch (const std::exception& error) {
    return refuse(error.what());
  }
  RestoreBlanks(text, end, &answer);
  return answer;
}

}  // namespace ebb

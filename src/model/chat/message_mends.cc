#include "src/model/chat/message_mends.h"

#include <algorithm>
#include <cctype>
#include <functional>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>

#include "src/model/chat/system_messages.h"

namespace ebb {
namespace {

using Messages = std::vector<ChatMessage>;

// Calls `lone` for each result without its call, which occurs if the beginning of a history was cut
// off.
void ForLoneResults(const Messages& messages, const std::function<void(size_t index)>& lone) {
  std::unordered_set<std::string_view> called;
  for (size_t i = 0; i < messages.size(); ++i) {
    for (const ToolCall& call : messages[i].tool_calls) called.insert(call.id);
    if (messages[i].role == "tool" && !called.contains(messages[i].tool_call_id)) lone(i);
  }
}

ChatMessage ResultAsText(const ChatMessage& result) {
  return {"user", "[result of a tool]\n" + result.content};
}

// Turns each result without its call into a user's message.
Messages WithoutLoneResults(const Messages& messages) {
  Messages mended = messages;
  ForLoneResults(messages, [&](size_t index) { mended[index] = ResultAsText(messages[index]); });
  return mended;
}

// Returns the longest run of letters and digits, which no template escapes, so that it can be found
// in a prompt.
std::string_view LongestWord(std::string_view text) {
  std::string_view longest;
  for (size_t begin = 0; begin < text.size();) {
    size_t end = begin;
    while (end < text.size() && std::isalnum(static_cast<unsigned char>(text[end])) != 0) ++end;
    if (end - begin > longest.size()) longest = text.substr(begin, end - begin);
    begin = end + 1;
  }
  return longest;
}

// Splits a message with several calls into messages with one call, each followed by its results.
Messages WithSingleCalls(const Messages& messages) {
  Messages mended;
  for (size_t i = 0; i < messages.size(); ++i) {
    if (messages[i].tool_calls.size() < 2) {
      mended.push_back(messages[i]);
      continue;
    }
    size_t end = i + 1;
    while (end < messages.size() && messages[end].role == "tool") ++end;
    std::unordered_map<std::string_view, std::vector<size_t>> results;
    for (size_t r = i + 1; r < end; ++r) results[messages[r].tool_call_id].push_back(r);
    for (const ToolCall& call : messages[i].tool_calls) {
      const bool is_first = &call == messages[i].tool_calls.data();
      ChatMessage& single = mended.emplace_back(ChatMessage{.role = messages[i].role});
      if (is_first) single = messages[i];
      single.tool_calls = {call};
      const auto own = results.extract(call.id);
      if (own.empty()) continue;
      for (const size_t r : own.mapped()) mended.push_back(messages[r]);
    }
    for (size_t r = i + 1; r < end; ++r) {
      if (results.contains(messages[r].tool_call_id)) mended.push_back(messages[r]);
    }
    i = end - 1;
  }
  return mended;
}

// Makes the conversation begin with a user's message.
Messages WithUserFirst(const Messages& messages) {
  const auto first = std::ranges::find_if_not(messages, IsSystem);
  if (first != messages.end() && first->role == "user") return messages;
  Messages mended = messages;
  mended.insert(mended.begin() + (first - messages.begin()), {"user", ""});
  return mended;
}

// Inserts an assistant's message between results and the user's next message, for templates that
// require one.
Messages WithAnsweredResults(const Messages& messages) {
  Messages mended;
  for (const ChatMessage& message : messages) {
    const bool waits =
        !mended.empty() && (mended.back().role == "tool" || !mended.back().tool_calls.empty());
    if (message.role == "user" && waits) mended.push_back({"assistant", ""});
    mended.push_back(message);
  }
  return mended;
}

// Joins adjacent messages of the user, and adjacent messages of the assistant.
Messages WithJoinedNeighbours(const Messages& messages) {
  const auto append = [](const std::string& more, std::string* text) {
    *text += (text->empty() || more.empty() ? "" : "\n\n") + more;
  };
  Messages mended;
  for (const ChatMessage& message : messages) {
    const bool is_like_last =
        !mended.empty() && mended.back().role == message.role && mended.back().tool_calls.empty();
    if (!is_like_last || (message.role != "user" && message.role != "assistant")) {
      mended.push_back(message);
      continue;
    }
    append(message.content, &mended.back().content);
    append(message.reasoning_content, &mended.back().reasoning_content);
    mended.back().tool_calls = message.tool_calls;
  }
  return mended;
}

// Moves the texts of system messages in front of a user's message.
Messages WithSystemTextsAtUsers(const Messages& messages) {
  auto placed = PlaceSystemMessages(
      messages, {.first = false, .several = false, .later = false, .alone = false});
  return placed.ok() ? *std::move(placed) : messages;
}

struct Mend {
  Messages (*mended)(const Messages& messages);
  std::string_view change;
};
constexpr Mend kMends[] = {
    {WithoutLoneResults, "results without a call became messages of the user"},
    {WithSingleCalls, "parallel calls became consecutive calls"},
    {WithUserFirst, "an empty message of the user begins the conversation"},
    {WithAnsweredResults, "empty answers were put between results and messages of the user"},
    {WithJoinedNeighbours, "neighbours of one role were joined"},
    {WithSystemTextsAtUsers, "texts of system messages stand at those of the user"},
};

bool AreEqual(const Messages& a, const Messages& b) {
  return std::ranges::equal(a, b, [](const ChatMessage& x, const ChatMessage& y) {
    return x.role == y.role && x.content == y.content && x.tool_calls == y.tool_calls;
  });
}

}  // namespace

MendedMessages WithCallsAsTexts(const std::vector<ChatMessage>& messages) {
  MendedMessages mended = {.messages = messages};
  for (ChatMessage& message : mended.messages) {
    if (message.role != "tool" && message.tool_calls.empty()) continue;
    if (message.role == "tool") message = ResultAsText(message);
    for (const ToolCall& call : message.tool_calls) {
      if (!message.content.empty()) message.content += '\n';
      message.content += fmt::format("[call of {}]\n{}", call.name, call.arguments);
    }
    message.tool_calls.clear();
    mended.changes = {"calls and results became texts"};
  }
  return mended;
}

bool ShowsTexts(const std::string& prompt, const std::vector<ChatMessage>& messages) {
  constexpr size_t kMostTexts = 8;
  std::vector<size_t> looked_for;
  ForLoneResults(messages, [&](size_t index) { looked_for.push_back(index); });
  for (size_t i = 0; i < messages.size() && looked_for.size() < kMostTexts; ++i) {
    if (IsSystem(messages[i])) looked_for.push_back(i);
  }
  looked_for.resize(std::min(looked_for.size(), kMostTexts));
  return std::ranges::all_of(looked_for, [&](size_t index) {
    return prompt.find(LongestWord(messages[index].content)) != std::string::npos;
  });
}

std::vector<MendedMessages> MendedForms(const std::vector<ChatMessage>& messages) {
  std::vector<MendedMessages> forms = {{.messages = messages}};
  MendedMessages all = forms.front();
  for (const Mend& mend : kMends) {
    Messages mended = mend.mended(messages);
    if (!AreEqual(mended, messages)) {
      forms.push_back({std::move(mended), {std::string(mend.change)}});
    }
    mended = mend.mended(all.messages);
    if (AreEqual(mended, all.messages)) continue;
    all.messages = std::move(mended);
    all.changes.emplace_back(mend.change);
  }
  if (all.changes.size() > 1) forms.push_back(std::move(all));
  return forms;
}

}  // namespace ebb

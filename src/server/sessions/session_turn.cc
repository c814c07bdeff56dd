#include "src/server/sessions/session_turn.h"
#include "ebb/generate.h"
#include "ebb/setting_fields.h"

#include <algorithm>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "src/server/sessions/turn_wanted.h"
#include "src/store/names.h"
#include "src/store/session_store.h"

namespace ebb::server {
namespace {

// Returns a text that replaces an answer while the template formats the conversation. It is random,
// so that no client's message can contain it; the tokenizer never sees it.
std::string NewAnswerMark() {
  return fmt::format("[[ebb-answer-{:016x}{:016x}]]", store::RandomNumber(), store::RandomNumber());
}

// Returns the text of an answer's tokens, with the tags of the thought.
std::string TextOf(const Model& model, const AnswerSoFar& answer, const ChatPrompt& prompt) {
  std::string text;
  for (const Token token : answer.tokens) {
    text += ShownText(model, token, prompt.thinking_start, prompt.thinking_end);
  }
  return text;
}

class TurnMaker {
 public:
  TurnMaker(const Model& model, const SessionRecord& record, CompletionRequest* request)
      : model_(model), record_(record), request_(*request) {}

  ApiResult<std::vector<Job>> Make() {
    const bool is_hint = !request_.session_hints.empty();
    EBB_ASSIGN_OR_RETURN(TurnWanted wanted, is_hint
                                                ? CompareHistory(record_, request_.chat.messages)
                                                : CompareMessages(record_, request_.chat.messages));
    switch (wanted.kind) {
      case TurnWanted::Kind::kNew:
        return record_.asked.empty() ? First(std::move(wanted.messages))
                                     : Behind(std::move(wanted.messages));
      case TurnWanted::Kind::kInstead:
        return Instead(std::move(wanted.messages));
      case TurnWanted::Kind::kContinue:
        return ContinueAnswer();
      case TurnWanted::Kind::kSayAgain:
        return SayAgain();
    }
    return ErrorFrom(Internal("no such turn"));
  }

 private:
  // Replaces the request's messages by `messages` and applies the template.
  [[nodiscard]] Result<ChatPrompt> Format(std::vector<ChatMessage> messages) {
    request_.chat.messages = std::move(messages);
    return model_.FormatChat(request_.chat);
  }

  [[nodiscard]] Status CheckBytes(size_t bytes, size_t kept) const {
    return CheckPromptBytes(model_, bytes, kept, ContextBound(model_, request_));
  }

  ApiResult<std::vector<Job>> First(std::vector<ChatMessage> messages) {
    const Result<ChatPrompt> prompt = Format(messages);
    if (!prompt.ok()) return PromptError(prompt.status(), request_);
    if (const Status fits = CheckBytes(prompt->text.size(), /*kept=*/0); !fits.ok()) {
      return PromptError(fits, request_);
    }
    auto tokens = model_.TokenizePrompt(*prompt, Model::AddBos::kAsModelSays);
    if (!tokens.ok()) return PromptError(tokens.status(), request_);
    SessionRecord next;
    next.asked = std::move(messages);
    return MakeJob(std::move(next), {.tokens = *std::move(tokens), .prompt = *prompt}, 0);
  }

  ApiResult<std::vector<Job>> Behind(std::vector<ChatMessage> messages) {
    // Formats the messages before the newest answer, because the resulting prompt says how to find
    // the thought in that answer.
    std::vector<ChatMessage> asked = record_.before;
    asked.insert(asked.end(), record_.asked.begin(), record_.asked.end());
    const Result<ChatPrompt> old = Format(std::move(asked));
    if (!old.ok()) return PromptError(old.status(), request_);
    const std::string text = TextOf(model_, record_.answer, *old);
    const ThoughtExtent thought = FindThought(*old, text);
    // Makes a message of an answer that was cut off, with the text after its thought.
    SessionRecord next = WithTurnEnded(
        record_,
        {.role = "assistant", .content = text.substr(std::min(thought.bytes, text.size()))});
    if (!record_.has_read_answer()) next.lead.push_back(record_.answer.tokens.back());
    if (thought.is_unended) {
      const std::string line = old->channels.empty() ? "\n" : "";
      auto tokens = model_.Tokenize(line + old->thinking_end + line, Model::AddBos::kNo,
                                    Model::Specials::kParse);
      if (!tokens.ok()) return PromptError(tokens.status(), request_);
      next.lead.insert(next.lead.end(), tokens->begin(), tokens->end());
    }
    return Append(std::move(next), std::move(messages));
  }

  ApiResult<std::vector<Job>> Instead(std::vector<ChatMessage> messages) {
    if (record_.before.empty()) return First(std::move(messages));
    SessionRecord next = {
        .before = record_.before, .turn_begin = record_.turn_begin, .lead = record_.lead};
    return Append(std::move(next), std::move(messages));
  }

  // Makes a job that appends `messages` after the last answer of next.before.
  ApiResult<std::vector<Job>> Append(SessionRecord next, std::vector<ChatMessage> messages) {
    const std::string mark = NewAnswerMark();
    std::vector<ChatMessage> all = next.before;
    all.back() = {.role = "assistant", .content = mark};
    all.insert(all.end(), messages.begin(), messages.end());
    Result<ChatPrompt> prompt = Format(std::move(all));
    if (!prompt.ok()) return PromptError(prompt.status(), request_);
    const size_t mark_at = prompt->text.rfind(mark);
    if (mark_at == std::string::npos) {
      return PromptError(
          Unsupported("messages",
                      "the chat template of the model leaves answers out, so no message "
                      "can follow one"),
          request_);
    }
    const size_t begin = mark_at + mark.size();
    const auto kept = static_cast<size_t>(next.turn_begin);
    const Status fits = CheckBytes(prompt->text.size() - begin, kept + next.lead.size());
    if (!fits.ok()) return PromptError(fits, request_);
    const auto tokens = model_.TokenizePrompt(*prompt, Model::AddBos::kNo, begin);
    if (!tokens.ok()) return PromptError(tokens.status(), request_);
    Turn turn = {.tokens = next.lead, .prompt = *std::move(prompt)};
    turn.tokens.insert(turn.tokens.end(), tokens->begin(), tokens->end());
    next.asked = std::move(messages);
    return MakeJob(std::move(next), std::move(turn), kept);
  }

  ApiResult<std::vector<Job>> ContinueAnswer() {
    std::vector<ChatMessage> asked = record_.before;
    asked.insert(asked.end(), record_.asked.begin(), record_.asked.end());
    Result<ChatPrompt> prompt = Format(std::move(asked));
    if (!prompt.ok()) return PromptError(prompt.status(), request_);
    Turn turn = {.prompt = *std::move(prompt)};
    if (record_.answer.tokens.empty()) {
      return ErrorFrom(Internal("an answer without tokens was stored"));
    }
    turn.goes_on = {.so_far = record_.answer, .sampler = record_.sampler};
    // The client gets the whole text again, not only the new part.
    turn.goes_on->so_far.text_bytes = 0;
    int& most = request_.generate.max_tokens;
    if (most >= 0) most = std::max(0, most - static_cast<int>(record_.answer.tokens.size()));
    return MakeJob(record_, std::move(turn), static_cast<size_t>(record_.num_tokens));
  }

  ApiResult<std::vector<Job>> SayAgain() {
    std::vector<ChatMessage> asked = record_.before;
    asked.insert(asked.end(), record_.asked.begin(), record_.asked.end());
    Result<ChatPrompt> prompt = Format(std::move(asked));
    if (!prompt.ok()) return PromptError(prompt.status(), request_);
    request_.prompt = std::make_shared<const ChatPrompt>(*std::move(prompt));
    request_.call_seed = CallIdSeed(record_.before, record_.asked);
    request_.may_call = MayCall(request_.chat);
    request_.drawn_seed.reset();  // the stored answer used another seed
    JobUpdate said = {.accepted = true};
    const size_t thought = record_.thought_bytes;
    if (thought > 0) said.pieces.push_back({TextPart::kThought, record_.text.substr(0, thought)});
    if (thought < record_.text.size()) {
      said.pieces.push_back({TextPart::kAnswer, record_.text.substr(thought)});
    }
    said.end =
        JobEnd{.finish = record_.finish,
               .prompt_tokens = record_.answer.begin,
               .cached_tokens = record_.answer.begin,
               .generated_tokens = static_cast<int>(record_.answer.tokens.size()),
               .thought_tokens = record_.thought_tokens,
               .logits_hash = record_.logits_hash,
               .session = SessionEnd{
                   .id = request_.session_id, .is_saved = true, .num_tokens = record_.num_tokens}};
    request_.said = std::move(said);
    return std::vector<Job>();
  }

  // Makes the job of a turn. `kept` is the number of tokens that the session keeps from before the
  // turn.
  ApiResult<std::vector<Job>> MakeJob(SessionRecord next, Turn turn, size_t kept) {
    SessionWork work = {.num_kept = kept, .call_seed = CallIdSeed(next.before, next.asked)};
    if (!turn.goes_on.has_value() && (kept > 0 || !record_.asked.empty())) {
      work.roll_back = static_cast<Position>(kept);
    }
    next.turn_begin = turn.goes_on.has_value() ? next.turn_begin : static_cast<Position>(kept);
    work.record = std::move(next);
    turn.prompt.text.clear();
    turn.prompt.plain_at.clear();
    std::vector<Turn> turns;
    turns.push_back(std::move(turn));
    request_.call_seed = work.call_seed;
    request_.may_call = MayCall(request_.chat);
    EBB_ASSIGN_OR_RETURN(std::vector<Job> jobs,
                         PrepareTurns(model_, std::move(turns), kept, &request_));
    work.prompt = request_.prompt;
    Job& job = jobs.front();
    job.work = std::move(work);
    job.prefix_key.reset();  // no prefix caching: the rows belong to this session
    return jobs;
  }

  const Model& model_;
  const SessionRecord& record_;
  CompletionRequest& request_;
};

// Returns why the request cannot have a session with this id; nothing if it can.
std::optional<ApiError> CheckSession(const std::string& id, bool has_sessions,
                                     const CompletionRequest& request) {
  const auto refused = [](const std::string& why, std::string code) {
    return Invalid("ebb.session: " + why, "ebb.session", std::move(code));
  };
  if (!store::IsSessionId(id)) {
    return refused("expected 1 to 64 letters, digits, '-', '_' and ':'", "invalid_value");
  }
  if (!has_sessions) {
    return refused("this server keeps no sessions; start it with --sessions", "unsupported");
  }
  if (request.endpoint != Endpoint::kChat) {
    return refused("expected a chat; other endpoints have no sessions", "unsupported");
  }
  if (request.num_choices > 1) {
    return Invalid("n: expected 1 answer in a session; fork it for others", "n", "unsupported");
  }
  if (request.session.past_context != PastContext::kRefuse) {
    return refused("cannot be combined with a context that re-rotates keys", "unsupported");
  }
  return std::nullopt;
}

}  // namespace

ApiResult<std::vector<Job>> PrepareTurn(const Model& model, const SessionRecord& record,
                                        CompletionRequest* request) {
  return TurnMaker(model, record, request).Make();
}

std::optional<ApiError> TakeSession(const SessionHeaders& headers, bool has_sessions,
                                    CompletionRequest* request) {
  std::string& id = request->session_id;
  const bool are_two = !headers.session.empty() && !id.empty() && headers.session != id;
  if (are_two) return Invalid("ebb.session: differs from the header X-Ebb-Session", "ebb.session");
  if (!headers.session.empty()) id = headers.session;
  std::optional<ApiError> error =
      id.empty() ? std::nullopt : CheckSession(id, has_sessions, *request);
  if (error.has_value()) return error;
  const std::string hint = headers.hint.empty() ? request->session_hint : headers.hint;
  const bool is_named = !id.empty();
  const bool is_used = !is_named && !hint.empty() && !request->begun.has_value() &&
                       !CheckSession(hint, has_sessions, *request).has_value();
  if (is_used) id = hint;
  for (const auto& [name, value] :
       {std::pair("X-Session-Id", headers.hint), std::pair("session_id", request->session_hint)}) {
    if (value.empty() || (is_named && value == id)) continue;
    (is_used && value == id ? request->session_hints : request->ignored).emplace_back(name);
  }
  return std::nullopt;
}

std::optional<ApiError> TakeBegunAnswer(CompletionRequest* request) {
  if (request->session_id.empty() || !request->begun.has_value()) return std::nullopt;
  if (request->must_continue) {
    return Invalid(
        "continue_final_message: cannot be combined with a session, which continues its last "
        "answer "
        "by itself",
        "continue_final_message", "unsupported");
  }
  request->chat.messages.push_back(*std::exchange(request->begun, std::nullopt));
  return std::nullopt;
}

std::string DescribePolicy(const SessionOptions& options) {
  return PolicyText(options.policy) + (options.lossless.has_value() ? ", lossless" : "");
}

std::string DescribeTiers(const EngineOptions& engine, const SessionOptions& session) {
  const std::optional<TierSetting> tiers = TiersOf(engine, session);
  return tiers.has_value() ? TierOptionsText(*tiers, T0Share::kHidden) : std::string(kNoTiers);
}

}  // namespace ebb::server

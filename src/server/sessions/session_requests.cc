// Implements the requests about sessions: lists them from the store, copies and removes them.
#include <algorithm>

#include <fmt/format.h>

#include "src/server/sessions/session_keeper_impl.h"

namespace ebb::server {
namespace {

using store::Held;
using store::Lease;
using store::Manifest;
using store::SessionName;
using store::SessionStore;

ApiError NotThere(const SessionName& name) {
  return {.status = 404,
          .message = fmt::format("there is no session \"{}\"", name.id),
          .code = "session_not_found",
          .param = "id"};
}

HttpAnswer JsonAnswer(const Json& json) { return {.body = Dump(json)}; }

HttpAnswer DescribeIn(SessionStore& store, const SessionName& name) {
  const auto stored = store.Describe(name);
  if (!stored.ok()) return ErrorAnswer(StoreError(stored.status()));
  if (!stored->has_value()) return ErrorAnswer(NotThere(name));
  return JsonAnswer(SessionJson((*stored)->manifest));
}

// Returns a message as OpenAI's API writes it.
Json MessageJson(const ChatMessage& message) {
  Json json = {{"role", message.role}, {"content", message.content}};
  if (!message.reasoning_content.empty()) json["reasoning_content"] = message.reasoning_content;
  for (const ToolCall& call : message.tool_calls) {
    json["tool_calls"].push_back(
        {{"id", call.id},
         {"type", "function"},
         {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
  }
  if (!message.tool_call_id.empty()) json["tool_call_id"] = message.tool_call_id;
  if (!message.name.empty()) json["name"] = message.name;
  return json;
}

HttpAnswer MessagesIn(SessionStore& store, const SessionName& name) {
  const auto stored = store.Describe(name);
  if (!stored.ok()) return ErrorAnswer(StoreError(stored.status()));
  if (!stored->has_value()) return ErrorAnswer(NotThere(name));
  const Result<SessionRecord> record = DecodeRecord((*stored)->record);
  if (!record.ok()) return ErrorAnswer(StoreError(record.status()));
  Json data = Json::array();
  for (const ChatMessage& message : record->AllMessages()) data.push_back(MessageJson(message));
  return JsonAnswer({{"object", "list"}, {"session_id", name.id}, {"data", std::move(data)}});
}

HttpAnswer ListIn(SessionStore& store, const std::string& tenant) {
  constexpr size_t kMostPerPage = 100;
  Json data = Json::array();
  std::string after;
  do {
    const auto page = store.List(tenant, after, kMostPerPage);
    if (!page.ok()) return ErrorAnswer(StoreError(page.status()));
    for (const Manifest& manifest : page->sessions) data.push_back(SessionJson(manifest));
    after = page->next;
  } while (!after.empty());
  return JsonAnswer({{"object", "list"}, {"data", std::move(data)}});
}

HttpAnswer DeleteIn(SessionStore& store, const SessionName& name, const Lease& lease) {
  const auto stored = store.Describe(name);
  // Damaged sessions and those of other versions can be removed too.
  const bool is_there = stored.ok() ? stored->has_value()
                                    : stored.status().code() == StatusCode::kCorrupt ||
                                          stored.status().code() == StatusCode::kUnsupported;
  if (!stored.ok() && !is_there) return ErrorAnswer(StoreError(stored.status()));
  const auto outcome = store.Delete(lease);
  if (!outcome.ok()) return ErrorAnswer(StoreError(outcome.status()));
  if (*outcome == Held::kNo) return ErrorAnswer(BusyError(name));
  if (!is_there) return ErrorAnswer(NotThere(name));
  return JsonAnswer({{"id", name.id}, {"object", "session.deleted"}, {"deleted", true}});
}

// Acquires the lease of a session, runs `work` and releases the lease.
template <typename Work>
HttpAnswer Under(SessionStore& store, const SessionName& name, Work work) {
  const auto lease = store.Acquire(name);
  if (!lease.ok()) return ErrorAnswer(StoreError(lease.status()));
  if (!lease->has_value()) return ErrorAnswer(BusyError(name));
  HttpAnswer answer = work(**lease);
  static_cast<void>(store.Release(**lease));
  return answer;
}

HttpAnswer Copy(SessionStore& store, const SessionName& from, const SessionName& to,
                const Lease& lease, const std::string& file) {
  const auto there = store.Describe(to);
  if (!there.ok()) return ErrorAnswer(StoreError(there.status()));
  if (there->has_value()) {
    return ErrorAnswer({.status = 409,
                        .message = fmt::format("there is a session \"{}\" already", to.id),
                        .code = "session_exists",
                        .param = "id"});
  }
  const auto stored = store.Describe(from);
  if (!stored.ok()) return ErrorAnswer(StoreError(stored.status()));
  if (!stored->has_value()) return ErrorAnswer(NotThere(from));
  Manifest manifest = (*stored)->manifest;
  if (const Status status = store.Get(manifest, file); !status.ok()) {
    return ErrorAnswer(StoreError(status));
  }
  const int64_t now = store::NowMs();
  manifest.expires_ms += now - manifest.used_ms;
  manifest.created_ms = manifest.used_ms = now;
  const auto put = store.Put(lease, file, (*stored)->record, &manifest);
  if (!put.ok()) return ErrorAnswer(StoreError(put.status()));
  return *put == Held::kYes ? JsonAnswer(SessionJson(manifest)) : ErrorAnswer(BusyError(to));
}

}  // namespace

Json SessionJson(const Manifest& m) {
  return {{"id", m.id},
          {"object", "session"},
          {"created", m.created_ms / 1000},
          {"last_used", m.used_ms / 1000},
          {"expires_at", m.expires_ms / 1000},
          {"tokens", m.tokens},
          {"bytes", m.bytes},
          {"in_progress", m.in_progress},
          {"answer_tokens", m.answer_tokens},
          {"model", m.model},
          {"policy", m.policy},
          {"tiers", m.tiers}};
}

std::string SessionKeeper::MetricsText() const {
  const auto& counted = impl_->counted;
  const auto unsaved = std::ranges::count_if(
      impl_->held, [](const auto& entry) { return entry.second->unsaved.has_value(); });
  return fmt::format(
      "# TYPE ebb_session_saves_total counter\n"
      "ebb_session_saves_total{{result=\"saved\"}} {}\n"
      "ebb_session_saves_total{{result=\"refused\"}} {}\n"
      "# TYPE ebb_session_fetches_total counter\n"
      "ebb_session_fetches_total {}\n"
      "# TYPE ebb_session_leases_lost_total counter\n"
      "ebb_session_leases_lost_total {}\n"
      "# TYPE ebb_sessions gauge\n"
      "ebb_sessions{{state=\"in_use\"}} {}\n"
      "ebb_sessions{{state=\"resting\"}} {}\n"
      "ebb_sessions{{state=\"unsaved\"}} {}\n",
      counted.saved, counted.not_saved, counted.fetched, counted.lost, impl_->jobs.size(),
      impl_->copies.size(), unsaved);
}

void SessionKeeper::List(const std::string& tenant, Answered then) {
  impl_->Ask(
      &impl_->working, [impl = impl_.get(), tenant] { return ListIn(*impl->store, tenant); },
      std::move(then));
}

void SessionKeeper::Describe(const SessionName& name, Answered then) {
  impl_->Ask(
      &impl_->working, [impl = impl_.get(), name] { return DescribeIn(*impl->store, name); },
      std::move(then));
}

void SessionKeeper::Messages(const SessionName& name, Answered then) {
  impl_->Ask(
      &impl_->working, [impl = impl_.get(), name] { return MessagesIn(*impl->store, name); },
      std::move(then));
}

void SessionKeeper::Delete(const SessionName& name, Answered then) {
  Impl* const impl = impl_.get();
  const Holding holding = impl->Find(name);
  if (holding != nullptr && (holding->is_used || holding->is_writing)) {
    return then(ErrorAnswer(BusyError(name)));
  }
  if (holding != nullptr) {
    // The session has unsaved changes, so that this server has its lease. `is_writing` keeps
    // requests from using the session until it is written.
    holding->is_writing = true;
    const auto remove = [impl, holding, name] {
      return DeleteIn(*impl->store, name, holding->use->lease);
    };
    return impl->Ask(&impl->working, remove,
                     [impl, holding, then = std::move(then)](HttpAnswer answer) {
                       holding->is_writing = false;
                       if (answer.status == 503) return then(std::move(answer));
                       if (holding->use->resting) impl->hooks.discard(*holding->use->resting);
                       impl->Release(holding->use->lease);
                       impl->Drop(holding);
                       // A session that was never stored exists for the client all the same, so
                       // that 404 becomes 200.
                       then(answer.status == 404 ? JsonAnswer({{"id", holding->use->name.id},
                                                               {"object", "session.deleted"},
                                                               {"deleted", true}})
                                                 : std::move(answer));
                     });
  }
  const auto remove = [impl, name] {
    return Under(*impl->store, name,
                 [&](const Lease& lease) { return DeleteIn(*impl->store, name, lease); });
  };
  impl->AskBehindReleases(remove, [impl, name, then = std::move(then)](HttpAnswer answer) {
    if (answer.status == 200) impl->DropCopy(name);
    then(std::move(answer));
  });
}

void SessionKeeper::Fork(const SessionName& from, const std::string& to, Answered then) {
  Impl* const impl = impl_.get();
  const SessionName copy = {from.tenant, to};
  const std::string file = NewScratchPath(impl->scratch.path(), "fork");
  const auto fork = [impl, from, copy, file] {
    return Under(*impl->store, from, [&](const Lease&) {
      return Under(*impl->store, copy,
                   [&](const Lease& lease) { return Copy(*impl->store, from, copy, lease, file); });
    });
  };
  impl->AskBehindReleases(fork, [impl, file, then = std::move(then)](HttpAnswer answer) {
    impl->RemoveFile(file);
    then(std::move(answer));
  });
}

void SessionKeeper::Explain(const SessionName& name, std::string_view path, Answered then) {
  const Holding holding = impl_->Find(name);
  const auto copy = impl_->copies.find(name);
  std::optional<JobId> job;
  if (copy != impl_->copies.end()) job = copy->second.number;
  if (holding != nullptr) job = holding->is_used ? holding->job : holding->use->resting;
  AnswerReasons(path, job, impl_->hooks.explain, std::move(then));
}

void SessionKeeper::Park(const SessionName& name, Answered then) {
  const Holding holding = impl_->Find(name);
  if (holding != nullptr && (holding->is_used || holding->is_writing)) {
    return then(ErrorAnswer(BusyError(name)));
  }
  if (holding != nullptr && holding->use->resting.has_value()) {
    // Frees the copy in memory; the session can be resumed from its file.
    impl_->hooks.discard(*std::exchange(holding->use->resting, std::nullopt));
  }
  impl_->DropCopy(name);
  Describe(name, std::move(then));
}

}  // namespace ebb::server

#include "src/server/engine/session_shelf.h"

#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "ebb/session_file.h"
#include "ebb/state.h"
#include "src/server/engine/scratch_folder.h"
#include "src/store/names.h"

namespace ebb::server {
namespace {

SessionTrouble TroubleOf(const Status& status) {
  switch (status.code()) {
    case StatusCode::kInvalidArgument:
    case StatusCode::kUnsupported:
      return SessionTrouble::kMismatch;
    case StatusCode::kCorrupt:
    case StatusCode::kNotFound:
      return SessionTrouble::kCorrupt;
    default:
      return SessionTrouble::kNone;
  }
}

// Sets the session's T0 floor and share to those of `options`, which Keep() has reset.
Status TakeMemoryBack(const Engine& engine, const SessionOptions& options, Session* session) {
  if (options.t0_floor_bytes > 0) {
    EBB_RETURN_IF_ERROR(session->SetT0Floor(options.t0_floor_bytes));
  }
  const std::optional<TierSetting> tiers = TiersOf(engine.options(), options);
  if (!HasT1(tiers, options) || tiers->engine.t0_cap_bytes > 0) return OkStatus();
  return session->SetT0Share(*tiers->shares.t0_share);
}

// Returns the bytes that a session file has as its `extra`: the owner and the tag of its record.
std::string FileOwner(std::string_view tenant, std::string_view tag) {
  StateWriter to;
  to.Text(tenant);
  to.Text(tag);
  return to.text();
}

std::string NewTag() {
  return fmt::format("{:016x}{:016x}", store::RandomNumber(), store::RandomNumber());
}

// Returns `status` with `name` in the place of the file's path, because clients read the message.
Status WithoutPath(const Status& status, const std::string& path, std::string_view name) {
  std::string message = status.message();
  for (size_t at = message.find(path); at != std::string::npos; at = message.find(path)) {
    message.replace(at, path.size(), name);
  }
  return {status.code(), status.field(), std::move(message)};
}

Result<std::unique_ptr<Session>> OpenFile(Engine* engine, const SessionOptions& options,
                                          const SessionWork& work) {
  auto resumed = ResumeSession(*engine, work.file, options);
  if (!resumed.ok()) return WithoutPath(resumed.status(), work.file, "the stored session");
  if (resumed->extra != FileOwner(work.tenant, work.file_tag)) {
    return Corrupt("the stored session belongs to another conversation");
  }
  const int64_t found = resumed->session->next_position();
  if (found != work.file_tokens) {
    return Corrupt(
        fmt::format("the stored session has {} tokens, expected {}", found, work.file_tokens));
  }
  return std::move(resumed->session);
}

}  // namespace

bool IsCap(size_t cap_bytes) { return cap_bytes > 0 && cap_bytes < size_t{1} << 62; }

bool HasT1(const std::optional<TierSetting>& tiers, const SessionOptions& options) {
  return tiers.has_value() && tiers->engine.t1 != T1Place::kNone && !options.lossless.has_value();
}

Result<std::unique_ptr<Session>> SessionShelf::Open(Engine* engine, const SessionOptions& options,
                                                    const SessionWork& work,
                                                    SessionTrouble* trouble) {
  std::unique_ptr<Session> session;
  const auto kept = work.resting.has_value() ? kept_.find(*work.resting) : kept_.end();
  if (kept != kept_.end()) {
    if (const Status status = TakeMemoryBack(*engine, options, kept->second.get()); !status.ok()) {
      const Status released = kept->second->SetT0Floor(0);
      return released.ok() ? status : released;
    }
    session = std::move(kept->second);
    kept_.erase(kept);
  } else if (!work.file.empty()) {
    auto opened = OpenFile(engine, options, work);
    if (!opened.ok()) {
      *trouble = TroubleOf(opened.status());
      return opened.status();
    }
    session = *std::move(opened);
  } else {
    return engine->OpenSession(options);
  }
  if (!work.roll_back.has_value() || *work.roll_back == session->next_position()) return session;
  if (const Status status = session->TruncateTo(*work.roll_back); !status.ok()) {
    *trouble = SessionTrouble::kConflict;
    return status;
  }
  return session;
}

bool SessionShelf::Keep(uint64_t number, const SessionOptions& options, const Engine& engine,
                        std::unique_ptr<Session> session) {
  if (IsCap(engine.arena_accounting(Tier::kT0).cap_bytes)) {
    const bool has_t1 = HasT1(TiersOf(engine.options(), options), options);
    if (!has_t1 || engine.options().tiers->t1_cap_bytes > 0) return false;
    if (!session->SetT0Floor(0).ok() || !session->Park().ok()) return false;
  }
  kept_[number] = std::move(session);
  return true;
}

const Session* SessionShelf::Find(uint64_t number) const {
  const auto found = kept_.find(number);
  return found == kept_.end() ? nullptr : found->second.get();
}

Result<SavedSession> SessionShelf::Save(Session* session, const SessionWork& work,
                                        SessionRecord record) {
  record.num_tokens = session->next_position();
  record.logits_hash = session->logits_hash();
  record.file_tag = NewTag();
  SavedSession saved = {.file = NewScratchPath(work.folder, "saved"), .record = std::move(record)};
  const Status status =
      SaveSession(*session, saved.file, FileOwner(work.tenant, saved.record.file_tag));
  if (!status.ok()) return WithoutPath(status, saved.file, "the session");
  return saved;
}

}  // namespace ebb::server

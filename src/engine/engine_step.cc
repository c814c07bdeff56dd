// One step of some sequences, from tokens to logits and what the policies decide behind it.
#include <chrono>
#include <new>
#include <string>

#include "src/engine/engine_impl.h"

namespace ebb {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

bool WantsCosts(const Session::Impl& session) {
  return session.options.step_costs == SessionOptions::Record::kYes;
}

MoveAccounting Since(const MoveAccounting& before, const MoveAccounting& now) {
  return {.rows_down = now.rows_down - before.rows_down,
          .rows_up = now.rows_up - before.rows_up,
          .bytes_down = now.bytes_down - before.bytes_down,
          .bytes_up = now.bytes_up - before.bytes_up,
          .rows_compressed = now.rows_compressed - before.rows_compressed,
          .seconds = now.seconds - before.seconds,
          .seconds_down = now.seconds_down - before.seconds_down,
          .seconds_up = now.seconds_up - before.seconds_up};
}

Status NoMemory() { return ResourceExhausted("no memory for this step"); }

}  // namespace

// A policy that ran out of memory half-way may know of other rows than the cache has.
Result<int64_t> Engine::Impl::Decide(Session::Impl* session, StepKind kind, int new_tokens) {
  try {
    Result<int64_t> evicted = session->driver.EndStep(session->Facts(kind, new_tokens));
    if (!evicted.ok()) {
      session->broken = session->cache.CheckWhole();
      return evicted;
    }
    if (*evicted > 0 && session->policy.key_turns == KeyTurns::kAfterEviction) {
      EBB_RETURN_IF_ERROR(session->CloseGaps());
    }
    return evicted;
  } catch (const std::bad_alloc&) {
    session->EndWithoutMemory("for what the policy decided");
    return session->broken;
  }
}

Status Engine::Impl::MakeRoom(Session::Impl* session, StepKind next) {
  EBB_RETURN_IF_ERROR(session->broken);
  try {
    Status status = session->driver.MakeRoom(session->Facts(next, /*new_tokens=*/0));
    if (!status.ok()) session->broken = session->cache.CheckWhole();
    return status;
  } catch (const std::bad_alloc&) {
    session->EndWithoutMemory("for moving rows out of T0");
    return session->broken;
  }
}

Status Engine::Impl::CheckRefused(Session::Impl* session) {
  if (!session->refused.has_value()) return OkStatus();
  EBB_RETURN_IF_ERROR(session->driver.Check(session->Facts(*session->refused)));
  session->refused.reset();
  return OkStatus();
}

Status Engine::Impl::MoveRefused(Session::Impl* store) {
  if (!store->refused.has_value()) return OkStatus();
  EBB_RETURN_IF_ERROR(MakeRoom(store, *store->refused));
  store->refused.reset();
  return OkStatus();
}

void Engine::Impl::EndStep(StepKind kind, const Part& part, StepReport report, Status* status) {
  Session::Impl& session = *part.session;
  const auto start = Clock::now();
  session.tokens.insert(session.tokens.end(), part.tokens.begin(), part.tokens.end());
  const TokenKind token_kind =
      kind == StepKind::kDecode ? TokenKind::kGenerated : TokenKind::kGiven;
  const auto num_tokens = static_cast<int>(part.tokens.size());
  if (kind == StepKind::kDecode) {
    if (session.first_generated < 0) session.first_generated = session.next() - num_tokens;
    session.decode_steps += num_tokens;
  }
  session.kinds.resize(session.tokens.size(), token_kind);
  const MoveAccounting before = session.cache.moves();
  Result<int64_t> evicted = Decide(&session, kind, num_tokens);
  if (!evicted.ok()) {
    session.refused = kind;
  }
  report.num_tokens = num_tokens;
  report.rows_evicted = evicted.ok() ? *evicted : 0;
  report.policy_seconds = SecondsSince(start);
  report.moves = Since(before, session.cache.moves());
  report.mass_computed = session.signals.wants_mass();
  session.report = report;
  if (!evicted.ok() && status->ok()) *status = std::move(evicted).status();
}

// Why the step cannot be taken, before anything is changed.
Status Engine::Impl::CheckParts(std::span<const Part> parts) try {
  for (const Part& part : parts) {
    EBB_RETURN_IF_ERROR(part.session->broken);
    if (part.draft != nullptr) EBB_RETURN_IF_ERROR(part.draft->broken);
    EBB_RETURN_IF_ERROR(part.session->CheckTokens(part.tokens));
    EBB_RETURN_IF_ERROR(part.session->CheckRoomAfterTurning(part.tokens.size()));
  }
  // In a batch the others go on.
  if (parts.size() != 1) return OkStatus();
  const Part& part = parts.front();
  if (part.draft == nullptr) return CheckRefused(part.session);
  EBB_RETURN_IF_ERROR(MoveRefused(part.session));
  const Status of_draft = CheckRefused(part.draft);
  return of_draft.ok() ? OkStatus() : OfDraft(of_draft);
} catch (const std::bad_alloc&) {
  return NoMemory();
}

// Everything that can fail comes before anything that the caller could see.
Status Engine::Impl::Step(StepKind kind, std::span<const Part> parts, Outputs outputs) {
  EBB_RETURN_IF_ERROR(CheckParts(parts));
  StepWork work;
  StepCosts costs;
  std::vector<double> waited;
  bool wants_costs = false, out_of_memory = false;
  Status status;
  const auto start = Clock::now();
  const double device_begin = stores.device()->Seconds();
  try {
    for (const Part& part : parts) {
      waited.push_back(part.session->cache.stage_wait_seconds());
      wants_costs = wants_costs || WantsCosts(*part.session);
    }
    status = Append(kind, parts, outputs, &work);
    if (status.ok()) status = runner->Run(work, wants_costs ? &costs : nullptr);
  } catch (const std::bad_alloc&) {
    out_of_memory = true;
  }
  if (out_of_memory || !status.ok()) {
    Undo(parts, work);
    return out_of_memory ? NoMemory() : status;
  }
  const double compute_seconds = SecondsSince(start);
  ReportDevice(kind, work, device_begin);
  // What a policy could not move ends its own request; the others go on.
  Status moved;
  for (size_t i = 0; i < parts.size(); ++i) {
    Session::Impl& session = *parts[i].session;
    StepReport report = {.kind = kind, .compute_seconds = compute_seconds};
    report.rows_unread = session.rows_unread;
    report.select_seconds = runner->select_seconds();
    report.io_wait_seconds = session.cache.stage_wait_seconds() - waited[i];
    if (WantsCosts(session)) report.costs = costs;
    EndStep(kind, parts[i], report, &moved);
    if (Session::Impl* const draft = parts[i].draft; draft != nullptr) {
      draft->signals.TakeMass(*draft->lossless->store_signals(), draft->cache);
      Status of_draft;
      EndStep(kind, {.session = draft, .tokens = parts[i].tokens}, report, &of_draft);
      if (!of_draft.ok() && moved.ok()) moved = OfDraft(of_draft);
    }
  }
  return moved;
}

Status Engine::Impl::StepAndShow(StepKind kind, std::span<const Part> parts) {
  const Position before = parts.front().session->next();
  const Status status = Step(kind, parts, Outputs::kLast);
  if (parts.front().session->next() == before) return status;
  for (size_t i = 0; i < parts.size(); ++i) parts[i].session->ShowLogits(runner->logits(i));
  return status;
}

Status Engine::Impl::AppendRows(Session::Impl* session, size_t num_tokens) {
  const size_t length = session->tokens.size() + num_tokens;
  if (length > session->tokens.capacity()) session->tokens.reserve(length + length / 2);
  if (length > session->kinds.capacity()) session->kinds.reserve(length + length / 2);
  return session->cache.Append(session->next(), static_cast<int>(num_tokens));
}

// Rows for the new tokens, and what the step's nodes need to know of them.
Status Engine::Impl::Append(StepKind kind, std::span<const Part> parts, Outputs outputs,
                            StepWork* work) {
  work->logits_later = outputs == Outputs::kLater;
  for (const Part& part : parts) {
    EBB_RETURN_IF_ERROR(AppendRows(part.session, part.tokens.size()));
    if (part.draft != nullptr) {
      const Status of_draft = AppendRows(part.draft, part.tokens.size());
      if (!of_draft.ok()) return OfDraft(of_draft);
    }
    work->tokens_apart = work->tokens_apart || part.tokens_apart;
  }
  for (const Part& part : parts) {
    EBB_RETURN_IF_ERROR(part.session->TurnKeysIfFull(part.tokens.size()));
  }
  for (const Part& part : parts) {
    Session::Impl& session = *part.session;
    const int num_tokens = static_cast<int>(part.tokens.size());
    // First: Undo() takes back what began for the sequences that stand here.
    work->sequences.push_back({.first = session.next(),
                               .num_tokens = num_tokens,
                               .chunk_first = session.next(),
                               .chunk_tokens = num_tokens,
                               .first_token = static_cast<int>(work->tokens.size())});
    if (part.chunk_tokens > 0) {
      work->sequences.back().chunk_first = part.chunk_first;
      work->sequences.back().chunk_tokens = static_cast<int>(part.chunk_tokens);
    }
    BeginPart(kind, part, &work->sequences.back());
    for (int t = 0; t < num_tokens; ++t) {
      if (outputs != Outputs::kLast || t + 1 == num_tokens) {
        work->output_rows.push_back(static_cast<int32_t>(work->tokens.size()));
      }
      work->tokens.push_back(part.tokens[t]);
      work->rope_positions.push_back(session.rope.Next(session.next() + t));
    }
  }
  return OkStatus();
}

void Engine::Impl::BeginPart(StepKind kind, const Part& part, SequenceStep* step) {
  Session::Impl& session = *part.session;
  session.rows_unread = 0;
  step->cache = &session.cache;
  step->signals = part.draft == nullptr ? &session.signals : part.draft->lossless->store_signals();
  step->selector = kind == StepKind::kDecode ? session.policy.selector.get() : nullptr;
  step->rows_unread = &session.rows_unread;
  step->signals->Begin(session.cache, kind, step->first, step->num_tokens);
  session.driver.BeginStep(step->first, step->num_tokens);
  step->hides_rows = session.driver.HidesRows();
  if (part.rewritten != nullptr) step->echo.cache = &part.rewritten->cache;
  if (part.draft == nullptr) return;
  part.draft->signals.Begin(part.draft->cache, kind, step->first, step->num_tokens);
  part.draft->driver.BeginStep(step->first, step->num_tokens);
  step->echo = {.cache = &part.draft->cache, .signals = &part.draft->signals};
}

void Engine::Impl::ReportDevice(StepKind kind, const StepWork& work, double begin) {
  const Device& device = *stores.device();
  if (device.one_memory() || kind != StepKind::kDecode) return;
  device_report.t1_mode = runner->t1_mode();
  ++device_report.decode_steps;
  device_report.decode_seconds += device.Seconds() - begin;
  device_report.critical_path_seconds += runner->CriticalPathSeconds(RatesOf(options.device), work);
}

// Takes back what Append() did, as far as it came.
void Engine::Impl::Undo(std::span<const Part> parts, const StepWork& work) {
  for (size_t i = 0; i < parts.size(); ++i) {
    for (Session::Impl* session : {parts[i].session, parts[i].draft}) {
      if (session == nullptr) continue;
      // Its history of queries moved up when the step began.
      if (i < work.sequences.size()) session->signals.Forget();
      session->DropRows(session->next());
    }
  }
}

}  // namespace ebb

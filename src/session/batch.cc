// Implements steps of several sessions in one batch.
#include <algorithm>
#include <chrono>
#include <new>
#include <string>
#include <vector>

#include "src/session/session_impl.h"

namespace ebb {
namespace {

Status CheckParts(const std::shared_ptr<EngineCore>& core, std::span<SessionStep> parts) {
  if (parts.empty()) return InvalidArgument("a batch without sessions");
  std::vector<const Session*> sessions;
  for (SessionStep& part : parts) {
    part.status = OkStatus();
    part.num_taken = 0;
    if (Internals::Of(*part.session).core != core) {
      return InvalidArgument("a batch holds a session of another engine");
    }
    sessions.push_back(part.session);
  }
  std::ranges::sort(sessions);
  if (std::ranges::adjacent_find(sessions) != sessions.end()) {
    return InvalidArgument("a batch holds one session twice");
  }
  return OkStatus();
}

// Returns how many tokens of its prompt each part may read that leaves the number to the engine: an
// equal share of what fits into max_stall_seconds.
size_t PromptTokens(const PromptPace& pace, double max_stall_seconds,
                    std::span<const SessionStep> parts) {
  const auto reads = [](const SessionStep& part) {
    return !part.token.has_value() && part.most_prompt_tokens == 0;
  };
  const auto num_reading = static_cast<size_t>(std::ranges::count_if(parts, reads));
  return pace.TokensWithin(max_stall_seconds) / std::max<size_t>(num_reading, 1);
}

// Returns whether a part needs no step: a session may have verified or computed its token ahead and
// hold its logits already.
Result<bool> IsAhead(const SessionStep& part, Session::Impl* session) {
  if (!part.token.has_value() || session->prompt.has_value()) return false;
  if (session->lookup != nullptr) return session->lookup->HasComputed(*part.token);
  if (session->speculator == nullptr) return false;
  return session->speculator->HasCachedLogits(*part.token);
}

// Decodes the tokens of parts that need no step. StepParts() calls this last, because either all
// parts are taken or none.
void TakeAhead(std::span<SessionStep* const> ahead) {
  for (SessionStep* const part : ahead) {
    Session::Impl& session = Internals::Of(*part->session);
    if (session.lookup != nullptr) {
      const StepOutcome outcome = session.lookup->TakeComputed(*part->token, &session.logits);
      part->status = outcome.status;
      part->num_taken = outcome.taken ? 1 : 0;
      continue;
    }
    part->status = session.speculator->BeginDecode(*part->token, &session.logits).status();
    part->num_taken = 1;
  }
}

// Returns the part's entry for the step, or nothing if the part needs no step.
Result<std::optional<SequenceStep>> EntryOf(const SessionStep& part, size_t prompt_tokens,
                                            Session::Impl* session) {
  if (part.token.has_value()) {
    EBB_RETURN_IF_ERROR(session->CheckNoPrompt());
    if (session->speculator == nullptr) {
      if (session->lookup != nullptr) session->lookup->Discard();
      return std::optional(SequenceStep{.sequence = session->sequence.get()});
    }
    return session->speculator->BeginDecode(*part.token, &session->logits);
  }
  if (!session->prompt.has_value()) {
    return InvalidArgument("a part of a batch has neither a token nor a prompt to read");
  }
  const size_t most = part.most_prompt_tokens > 0 ? part.most_prompt_tokens : prompt_tokens;
  EBB_ASSIGN_OR_RETURN(const SequenceStep entry, session->prompt->reading.Next(most));
  return std::optional(entry);
}

StepOutcome NotTaken(Status status) { return {.taken = false, .status = std::move(status)}; }

void Show(const StepResult& result, size_t entry_index, const SequenceStep& entry,
          SessionStep* part) {
  Session::Impl& session = Internals::Of(*part->session);
  part->num_taken = entry.tokens.size();
  const std::span<const float> logits = result.logits(entry_index);
  if (part->token.has_value()) {
    session.logits.Show(logits);
    if (session.speculator != nullptr) session.speculator->EndDecode();
    return;
  }
  PromptReading& reading = session.prompt->reading;
  reading.AddRead(entry);
  session.logits.Set(logits);
  if (!reading.done()) return;
  session.logits.AddToHash();
  reading.End();
  session.prompt.reset();
}

// Runs one step with all parts. May throw std::bad_alloc; *taken then says whether the sessions had
// taken their tokens before.
StepOutcome StepParts(const std::shared_ptr<EngineCore>& core, std::span<SessionStep> parts,
                      bool* taken) {
  if (Status wrong = CheckParts(core, parts); !wrong.ok()) return NotTaken(std::move(wrong));
  const auto begin = std::chrono::steady_clock::now();
  const size_t prompt_tokens =
      PromptTokens(core->prompt_pace, core->options.max_stall_seconds, parts);
  std::vector<SequenceStep> entries;
  std::vector<SessionStep*> stepping, ahead;  // stepping: [entries]
  for (SessionStep& part : parts) {
    Session::Impl& session = Internals::Of(*part.session);
    Result<bool> is_ahead = IsAhead(part, &session);
    if (!is_ahead.ok()) return NotTaken(part.status = std::move(is_ahead).error());
    if (*is_ahead) {
      ahead.push_back(&part);
      continue;
    }
    Result<std::optional<SequenceStep>> entry = EntryOf(part, prompt_tokens, &session);
    if (!entry.ok()) return NotTaken(part.status = std::move(entry).error());
    if (!entry->has_value()) continue;
    entries.push_back(**entry);
    if (part.token.has_value()) entries.back().tokens = {&*part.token, 1};
    stepping.push_back(&part);
  }
  if (entries.empty()) {
    TakeAhead(ahead);
    return {.taken = true, .status = OkStatus()};
  }
  for (const SessionStep* const part : stepping) {
    Internals::Of(*part->session).logits.Reserve(core->model->shape().vocab_size);
  }
  const StepResult result = RunStep(core.get(), {.entries = entries});
  *taken = result.taken();
  size_t num_read = 0;
  for (size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].kind == StepKind::kPrefill) num_read += entries[i].tokens.size();
    stepping[i]->status = result.entry_status(i);
    if (result.taken()) Show(result, i, entries[i], stepping[i]);
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  if (result.taken()) {
    core->prompt_pace.RecordRead(num_read, took.count());
    TakeAhead(ahead);
  }
  return result.outcome();
}

}  // namespace

StepOutcome Engine::Step(std::span<SessionStep> parts) {
  bool taken = false;
  try {
    return StepParts(core_, parts, &taken);
  } catch (const std::bad_alloc&) {
    return {.taken = taken, .status = OutOfMemory("no memory for a batch")};
  }
}
StepOutcome Engine::DecodeBatch(std::span<Session* const> sessions,
                                std::span<const Token> tokens) try {
  if (sessions.size() != tokens.size() || sessions.empty()) {
    return NotTaken(InvalidArgument("a batch of " + std::to_string(sessions.size()) +
                                    " sessions and " + std::to_string(tokens.size()) +
                                    " tokens; expected one for each"));
  }
  std::vector<SessionStep> parts(sessions.size());
  for (size_t i = 0; i < parts.size(); ++i) {
    parts[i].session = sessions[i];
    parts[i].token = tokens[i];
  }
  return Step(parts);
} catch (const std::bad_alloc&) {
  return NotTaken(OutOfMemory("no memory for a batch"));
}

}  // namespace ebb

// Implements steps of several sessions in one batch.
#include <algorithm>
#include <chrono>
#include <new>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "src/base/clock.h"
#include "src/model/loaded/loaded_model.h"
#include "src/sequence/step.h"
#include "src/session/session_impl.h"

namespace ebb {
namespace {

Status CheckParts(const std::shared_ptr<EngineCore>& core, std::span<SessionStep> parts) {
  if (parts.empty()) return InvalidArgument("a batch without sessions");
  std::vector<const Session*> sessions;
  for (SessionStep& part : parts) {
    part.status = OkStatus();
    part.num_taken = part.num_guesses = 0;
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

size_t Sum(std::span<const size_t> counts) {
  return std::accumulate(counts.begin(), counts.end(), size_t{0});
}

StepResult RunTimed(EngineCore* core, std::span<const SequenceStep> entries) {
  const double begin = SecondsNow();
  StepResult result = RunStep(core, {.entries = entries});
  const double seconds = SecondsNow() - begin;
  size_t num_tokens = 0;
  for (const SequenceStep& entry : entries) {
    if (entry.kind == StepKind::kPrefill) return result;
    num_tokens += entry.tokens.size();
  }
  if (!result.taken()) return result;
  if (num_tokens == entries.size()) {
    core->batch_times.AddPlain(entries.size(), seconds);
  } else {
    core->batch_times.AddWithGuesses(entries.size(), num_tokens, seconds);
  }
  return result;
}

// Runs the step with so many guesses of each entry, or without any where T0 has no room for them.
StepResult RunWithGuesses(EngineCore* core, std::span<SessionStep* const> stepping,
                          std::span<const size_t> guesses, std::vector<SequenceStep>* entries) {
  const auto set_guesses = [&](bool has_guesses) {
    for (size_t i = 0; i < stepping.size(); ++i) {
      GuessingDecoder* const lookup = Internals::Of(*stepping[i]->session).lookup.get();
      if (lookup == nullptr || !stepping[i]->token.has_value()) continue;
      (*entries)[i] = lookup->PartOfStep(*stepping[i]->token, has_guesses ? guesses[i] : 0);
    }
  };
  set_guesses(true);
  StepResult result = RunTimed(core, *entries);
  const bool has_guesses = std::ranges::any_of(guesses, [](size_t num) { return num > 0; });
  if (result.taken() || !IsLimit(result.status().code()) || !has_guesses) return result;
  set_guesses(false);
  return RunTimed(core, *entries);
}

// Returns how many guesses of each entry the step computes, [entries], and prepares the sessions
// for them. A step that reads a prompt computes none.
Result<std::vector<size_t>> GuessesOf(const EngineCore& core,
                                      std::span<SessionStep* const> stepping) {
  const size_t num_parts = stepping.size();
  // A step with guesses that runs out of memory is repeated without them. Neither recurrent states
  // nor a history of queries can be undone in the sequences beside the one that guesses.
  const auto may_be_undone = [](const SessionStep* part) {
    return Internals::Of(*part->session).sequence->signals().needs().num_recent_queries == 0;
  };
  const bool can_undo = num_parts == 1 || (core.model->loaded().hparams.state_bytes == 0 &&
                                           std::ranges::all_of(stepping, may_be_undone));
  const bool may_guess = can_undo && std::ranges::all_of(stepping, [](const SessionStep* part) {
                           return part->token.has_value();
                         });
  const bool is_worth_it = core.batch_times.KnowsPlain(num_parts);
  const auto decoder_of = [&](size_t i) -> GuessingDecoder* {
    if (!stepping[i]->token.has_value()) return nullptr;
    return Internals::Of(*stepping[i]->session).lookup.get();
  };
  std::vector<std::vector<double>> chances(num_parts);
  std::vector<size_t> guesses(num_parts);
  bool one_reads = false;  // one after the other, drafters read texts that they are behind with
  for (size_t i = 0; i < num_parts; ++i) {
    GuessingDecoder* const decoder = decoder_of(i);
    if (decoder == nullptr) continue;
    const Token token = *stepping[i]->token;
    const Sequence& sequence = *Internals::Of(*stepping[i]->session).sequence;
    EBB_RETURN_IF_ERROR(sequence.CheckTokens({&token, 1}));
    const bool guesses_now =
        may_guess && decoder->MayGuessInBatch() && (is_worth_it || decoder->IsForced());
    const bool may_draft = guesses_now && stepping[i]->guess != nullptr;
    chances[i] =
        decoder->BeginInBatch(token, guesses_now ? stepping[i]->most_guesses : 0, may_draft);
    if (may_draft && !one_reads) one_reads = decoder->ReadBehind(token);
    if (decoder->IsForced()) guesses[i] = std::exchange(chances[i], {}).size();
  }
  if (may_guess && is_worth_it) {
    const auto ratio = [&](std::span<const size_t> given) {
      double time = core.batch_times.Ratio(num_parts, num_parts + Sum(given));
      for (size_t i = 0; i < num_parts; ++i) {
        if (given[i] == 0 || !decoder_of(i)->WillDraft()) continue;
        time += core.batch_times.DraftRatio(num_parts, given[i]);
      }
      return time;
    };
    const std::vector<size_t> divided = DivideGuesses(chances, ratio);
    for (size_t i = 0; i < num_parts; ++i) guesses[i] += divided[i];
  }
  for (size_t i = 0; i < num_parts; ++i) {
    if (guesses[i] == 0 || !decoder_of(i)->WillDraft()) continue;
    guesses[i] = decoder_of(i)->DraftInBatch(*stepping[i]->token, stepping[i]->guess, guesses[i]);
  }
  return guesses;
}

StepOutcome NotTaken(Status status) { return {.taken = false, .status = std::move(status)}; }

void Show(const StepResult& result, size_t entry_index, const SequenceStep& entry,
          SessionStep* part) {
  Session::Impl& session = Internals::Of(*part->session);
  part->num_taken = entry.tokens.size();
  const std::span<const float> logits = result.logits(entry_index);
  if (part->token.has_value()) {
    part->num_taken = 1;
    part->num_guesses = entry.tokens.size() - 1;
    if (session.lookup != nullptr) {
      return session.lookup->EndPart(entry, logits, &session.logits);
    }
    session.logits.Show(logits);
    if (session.speculator != nullptr) session.speculator->EndDecode();
    return;
  }
  PromptReading& reading = session.prompt->reading;
  reading.AddRead(entry);
  if (session.lookup != nullptr) session.lookup->FollowStep();
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
  const Result<std::vector<size_t>> guesses = GuessesOf(*core, stepping);
  if (!guesses.ok()) return NotTaken(guesses.status());
  const StepResult result = RunWithGuesses(core.get(), stepping, *guesses, &entries);
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

// Steps, and what comes of them for each job: its prompt, its tokens, its end.
#include "ebb/generate.h"
#include "src/server/engine/driver_impl.h"

#include <cstdio>
#include <utility>

namespace ebb::server {

void Driver::Impl::Step(const Plan& plan) {
  std::vector<Active*> together;
  std::vector<Active*> alone;
  for (const JobId id : plan.decodes) {
    Active* const active = Find(id);
    if (active == nullptr || active->state.phase != Phase::kDecoding) continue;
    (active->state.stepping == Stepping::kTogether ? together : alone).push_back(active);
  }
  const bool reads_alone = together.empty() && alone.empty();
  Active* const reader = plan.reader.has_value() ? Find(*plan.reader) : nullptr;
  if (reader != nullptr && reader->state.phase == Phase::kReading) {
    const bool is_new = !reader->HasBegunPrompt();
    if (BeginPrompt(reader)) {
      if (is_new) NoteProgress(reader);
      together.push_back(reader);
    }
  }
  if (!together.empty()) StepTogether(together, reads_alone);
  for (Active* active : alone) StepAlone(active);
}

void Driver::Impl::StepTogether(std::span<Active* const> who, bool reads_alone) {
  std::vector<SessionStep> parts(who.size());
  for (size_t i = 0; i < who.size(); ++i) {
    parts[i].session = who[i]->session.get();
    parts[i].token = who[i]->pending;
    if (!who[i]->pending.has_value() && reads_alone) {
      parts[i].most_prompt_tokens = static_cast<size_t>(engine->options().prefill_chunk);
    }
  }
  const double start = Now();
  const StepOutcome outcome = engine->Step(parts);
  const double seconds = Now() - start;
  const bool is_blamed = std::ranges::any_of(parts, [](const auto& p) { return !p.status.ok(); });
  if (!outcome.taken && !outcome.ok() && !is_blamed && who.size() > 1) {
    for (Active* const& active : who) StepTogether({&active, 1}, reads_alone);
    return;
  }
  ++counted.steps;
  counted.stepped_jobs += who.size();
  size_t num_read = 0;
  for (size_t i = 0; i < who.size(); ++i) {
    const Status& error =
        parts[i].status.ok() && who.size() == 1 ? outcome.status : parts[i].status;
    if (!outcome.taken) {
      if (!error.ok()) Refused(who[i], error);
    } else if (parts[i].token.has_value()) {
      Appended(who[i], error, seconds);
    } else {
      num_read = parts[i].num_taken;
      counted.prompt_tokens += num_read;
      const Position first = who[i]->session->next_position() - static_cast<Position>(num_read);
      shares.Charge(who[i]->state.owner, CostOf(static_cast<double>(num_read), first));
      Read(who[i], error);
    }
  }
  if (!outcome.taken) return;
  if (num_read > 0) Blend(seconds / num_read, &machine.seconds_per_prompt_token);
  if (num_read == 0) Blend(seconds, &machine.seconds_per_step);
}

void Driver::Impl::StepAlone(Active* active) {
  const double start = Now();
  const StepOutcome outcome = active->session->Decode(
      *active->pending, active->generation->Guesses(), active->generation->most_guesses());
  ++counted.steps;
  ++counted.stepped_jobs;
  if (!outcome.taken) return Refused(active, outcome.status);
  Blend(Now() - start, &machine.seconds_per_step);
  Appended(active, outcome.status, Now() - start);
}

void Driver::Impl::Appended(Active* active, const Status& status, double seconds) {
  active->pending.reset();
  shares.Charge(active->state.owner, CostOf(1, active->session->next_position()));
  // The moves of its policy wait for room; the token was appended.
  const bool waits = IsLimit(status.code());
  if (waits) NoteRefusal();
  active->generation->Appended({.taken = true, .status = waits ? OkStatus() : status}, seconds);
  if (status.ok() && active->job.work.has_value()) Checkpoint(active);
  Choose(active);
}

void Driver::Impl::Read(Active* active, const Status& status) {
  if (IsLimit(status.code())) {
    NoteRefusal();
  } else if (!status.ok()) {
    return Finish(active, FinishReason::kError, status);
  }
  NoteProgress(active);
  if (active->session->prompt_left() > 0) return;
  ForkToIdenticalPrompts(active);
  Begin(active);
}

void Driver::Impl::Refused(Active* active, const Status& status) {
  const bool reads = active->state.phase == Phase::kReading;
  const bool is_context_full = status.code() == StatusCode::kContextFull;
  if (IsLimit(status.code()) && !is_context_full) return NoteRefusal();
  if (reads) {
    return Finish(active, is_context_full ? FinishReason::kCap : FinishReason::kError, status);
  }
  active->pending.reset();
  active->generation->Appended({.taken = false, .status = status});
  Choose(active);
}

void Driver::Impl::Begin(Active* active) {
  GenerateOptions options = std::move(active->job.generate);
  active->job.generate = {.max_tokens = options.max_tokens};
  active->progress.in_thought = options.opens_in_thinking;
  options.on_text = [active](std::string_view text, TextPart part) {
    std::vector<JobPiece>& pieces = active->update.pieces;
    if (pieces.empty() || pieces.back().part != part) pieces.push_back({.part = part});
    pieces.back().text += text;
    if (!active->update.tokens.empty()) active->update.tokens.back().text += text;
    JobProgress& progress = active->progress;
    progress.in_thought = part == TextPart::kThought;
    if (progress.in_thought) progress.thought_tokens = progress.generated_tokens;
    active->in_thought = part == TextPart::kThought;
    active->has_news = true;
    return true;
  };
  const auto text_size = [active, start = options.thinking_start,
                          end = options.thinking_end](Token token) {
    return ShownText(active->job.sampler->model(), token, start, end).size();
  };
  for (const Token token : options.so_far.tokens) active->text_end += text_size(token);
  options.on_token = [this, active, text_size](Token token) {
    const double now = Now();
    if (active->first_token == 0) {
      active->first_token = now;
      counted.first_token.Add(now - active->state.arrival);
    } else {
      counted.between_tokens.Add(now - active->last_token);
    }
    active->last_token = now;
    active->progress.decode_begin = active->first_token;
    ++active->progress.generated_tokens;
    ++counted.generated_tokens;
    if (active->job.work.has_value()) Note(active, token);
    if (active->job.tells_tokens) {
      active->update.tokens.push_back({.token = token, .seconds = now - active->first_token});
      active->has_news = true;
    }
    if (active->job.logprobs.has_value()) {
      const size_t begin = std::exchange(active->text_end, active->text_end + text_size(token));
      NoteLogprobs(active, token, begin);
    }
  };
  active->in_thought = options.opens_in_thinking;
  active->answer = options.so_far;
  if (active->answer.tokens.empty()) active->answer.begin = active->session->next_position();
  active->saved_tokens = active->answer.tokens.size();
  active->generation = std::make_unique<Generation>(active->session.get(),
                                                    active->job.sampler.get(), std::move(options));
  if (active->ends_thought) active->generation->EndThought();
  active->state.phase = Phase::kDecoding;
  Choose(active);
}

void Driver::Impl::NoteLogprobs(Active* active, Token token, size_t text_begin) {
  const Job& job = active->job;
  Logprobs logprobs = job.logprob_source == Job::LogprobSource::kSampler
                          ? job.sampler->LastDraw(*job.logprobs)
                          : LogprobsOf(active->session->logits(), token, *job.logprobs);
  active->update.logprobs.push_back(
      {.of = std::move(logprobs), .begin = text_begin, .end = active->text_end});
  active->has_news = true;
}

void Driver::Impl::NoteProgress(Active* active) {
  if (!active->job.tells_progress) return;
  const auto total = static_cast<int>(active->prompt_tokens);
  const int processed = total - static_cast<int>(active->session->prompt_left());
  const bool is_first = processed == active->cached_tokens;
  active->update.progress.push_back({.total = total,
                                     .cached = active->cached_tokens,
                                     .processed = processed,
                                     .seconds = is_first ? 0 : Now() - active->begun});
  active->has_news = true;
}

void Driver::Impl::Choose(Active* active) {
  active->pending = active->generation->Next();
  if (!active->pending.has_value()) Finish(active, FinishReason::kStop, OkStatus());
}

void Driver::Impl::Note(Active* active, Token token) {
  active->answer.tokens.push_back(token);
  if (active->in_thought) ++active->thought_tokens;
}

void Driver::Impl::Checkpoint(Active* active) {
  const SessionWork& work = *active->job.work;
  const size_t num_tokens = active->answer.tokens.size();
  if (work.checkpoint_every == 0 ||
      num_tokens < active->saved_tokens + static_cast<size_t>(work.checkpoint_every)) {
    return;
  }
  active->saved_tokens = num_tokens;
  SessionRecord record = work.record;
  record.answer = active->answer;
  record.sampler = SavedState(*active->job.sampler);
  record.thought_tokens += active->thought_tokens;
  // If saving fails, the next checkpoint is tried in its turn.
  Result<SavedSession> saved = SessionShelf::Save(active->session.get(), work, std::move(record));
  if (!saved.ok()) return;
  // It replaces a saved file that the keeper has not taken yet.
  if (active->update.saved.has_value()) std::remove(active->update.saved->file.c_str());
  active->update.saved = *std::move(saved);
  active->has_news = true;
}

void Driver::Impl::Rest(Active* active, const GenerateResult& result, JobEnd* end) {
  const SessionWork& work = *active->job.work;
  end->generated_tokens = static_cast<int>(result.answer.tokens.size());
  end->thought_tokens += work.record.thought_tokens;
  if (end->finish == FinishReason::kError || end->finish == FinishReason::kCap) return;
  // An answer without a token is none, whatever cut it off.
  const bool is_over = end->finish != FinishReason::kCancelled;
  if (!is_over && result.answer.tokens.empty()) return;
  SessionRecord record = work.record;
  record.answer = result.answer;
  record.thought_tokens = end->thought_tokens;
  record.is_over = is_over;
  if (is_over) {
    record.sampler.clear();
    record.text = result.text;
    record.thought_bytes = result.thought_bytes;
    record.finish = end->finish;
    record.said = AnswerSaid(*work.prompt, result, work.num_calls);
  } else {
    record.sampler = SavedState(*active->job.sampler);
  }
  end->session = SessionEnd{.num_tokens = active->session->next_position()};
  Result<SavedSession> saved = SessionShelf::Save(active->session.get(), work, std::move(record));
  if (saved.ok()) {
    if (active->update.saved.has_value()) std::remove(active->update.saved->file.c_str());
    active->update.saved = *std::move(saved);
  } else {
    end->session->error = saved.status().Text();
  }
}

void Driver::Impl::Count(const JobEnd& end) {
  counted.prompt_seconds += end.prompt_seconds;
  counted.decode_seconds += end.decode_seconds;
  counted.decoded_tokens += static_cast<uint64_t>(std::max(0, end.generated_tokens - 1));
  const auto tokens = static_cast<uint64_t>(end.prompt_tokens + end.generated_tokens);
  counted.most_tokens = std::max(counted.most_tokens, tokens);
}

// The generation knows its own reason; `reason` and `error` hold where something else ended it.
void Driver::Impl::Finish(Active* active, FinishReason reason, const Status& error) {
  JobEnd end = {.finish = reason, .error = error, .num_parks = active->state.num_parks};
  const double now = Now();
  const double arrival = active->state.arrival;
  if (active->generation != nullptr) {
    const GenerateResult result = active->generation->End();
    if (error.ok()) {
      end.finish = result.finish_reason;
      end.stop_string = result.stop_string;
      end.error = result.error;
    }
    end.generated_tokens = result.generated_tokens;
    end.thought_tokens = result.thought_tokens;
    end.decode_steps = result.decode_steps;
    Blend(result.generated_tokens, &mean_generated);
    if (active->job.work.has_value()) Rest(active, result, &end);
  }
  if (active->session != nullptr) {
    const auto read = static_cast<int>(active->session->tokens().size());
    end.prompt_tokens = read - end.decode_steps;
    end.cached_tokens = active->cached_tokens;
    end.logits_hash = active->session->logits_hash();
    end.queue_seconds = active->begun - arrival;
    const double first = active->first_token > 0 ? active->first_token : now;
    end.first_token_seconds = first - arrival;
    end.prompt_seconds = first - active->begun;
    end.decode_seconds = now - first;
  }
  Count(end);
  KeepPrefix(active, end);
  if (active->job.work.has_value()) {
    const SessionWork& work = *active->job.work;
    end.trouble = active->trouble;
    if (active->generation != nullptr) end.prompt_tokens = active->answer.begin;
    end.cached_tokens = std::min(static_cast<int>(work.num_kept), end.prompt_tokens);
    const bool is_untouched = active->session == nullptr && end.trouble == SessionTrouble::kNone;
    if (is_untouched) end.resting = work.resting;
  }
  ++counted.ended[std::string(FinishReasonName(end.finish))];
  counted.whole.Add(now - arrival);
  const bool rests = end.session.has_value() && end.session->error.empty();
  if (rests && shelf.Keep(active->job.id, active->job.session, *engine, std::move(active->session)))
    end.resting = active->job.id;
  active->update.end = std::move(end);
  news.push_back(std::move(active->update));
  std::erase_if(actives, [&](const auto& other) { return other.get() == active; });
  machine.t0_bytes = t0_cap;
  machine.start_refused = false;
}

}  // namespace ebb::server

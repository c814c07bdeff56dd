#include "src/server/engine/job_run.h"

#include <algorithm>
#include <cstdio>

#include "src/server/engine/session_shelf.h"

namespace ebb::server {
namespace {

// kMemorySeconds is the least time between two memory reports of a job. Reports must not delay
// steps: the engine's thread looks up each sampled token in every layer and head.
constexpr double kMemorySeconds = 0.25;
// kMostTiersMeanwhile and kMostTiersAtEnd are how many tokens a memory report samples at most,
// while the answer is generated and at its end.
constexpr size_t kMostTiersMeanwhile = 2048;
constexpr size_t kMostTiersAtEnd = 16384;

}  // namespace

JobRun::JobRun(Job job, const EngineClock* clock, Figures* figures)
    : clock_(clock),
      figures_(figures),
      job_(std::move(job)),
      prompt_tokens_(job_.prompt.size()),
      waiting_since_(clock->Now()) {
  state_.id = update_.id = job_.id;
  state_.owner = job_.owner;
  state_.priority = job_.priority;
  state_.arrival = waiting_since_;
  if (const auto seconds = job_.deadline_seconds) state_.deadline = state_.arrival + *seconds;
  state_.prompt_left = prompt_tokens_;
  state_.stepping = job_.session.lossless.has_value() ? Stepping::kAlone : Stepping::kTogether;
}

JobState JobRun::StateNow() const {
  JobState state = state_;
  const bool waits = state.phase == Phase::kWaiting || state.phase == Phase::kParked;
  if (waits) state.waited += clock_->Now() - waiting_since_;
  if (HasBegunPrompt()) state.prompt_left = session_->prompt_left();
  const int most = job_.generate.max_tokens;
  const auto expected = static_cast<size_t>(figures_->tokens_per_answer);
  state.tokens_left = most < 0 ? expected : std::min(expected, static_cast<size_t>(most));
  return state;
}

JobView JobRun::View() const {
  JobView view = ViewOf(job_, state_, progress_, session_.get(), clock_->Now());
  view.prompt_tokens = prompt_tokens_;
  return view;
}

std::optional<TokenFates> JobRun::Fates() const {
  if (session_ == nullptr) return std::nullopt;
  return FatesOf(id(), progress_, prompt_tokens_, *session_);
}

void JobRun::SetNeeds(const JobState& needs) {
  state_.start_bytes = needs.start_bytes;
  state_.least_bytes = needs.least_bytes;
  state_.t1_bytes = needs.t1_bytes;
  state_.t2_bytes = needs.t2_bytes;
  state_.is_elastic = needs.is_elastic;
  state_.can_park = needs.can_park;
  state_.share = needs.share;
  state_.most_share = needs.most_share;
}

void JobRun::Accept() {
  update_.accepted = true;
  has_update_ = true;
}

void JobRun::SetSession(std::unique_ptr<Session> session) {
  session_ = std::move(session);
  if (session_ == nullptr) return;
  selection_before_ = session_->accounting().selection;
  session_->Predict(job_.prediction);
  guesses_before_ = session_->speculation_report();
}

void JobRun::Start(std::unique_ptr<Session> session) {
  SetSession(std::move(session));
  state_.phase = Phase::kReading;
  begun_ = clock_->Now();
  state_.waited = begun_ - waiting_since_;
  figures_->queue.Add(begun_ - state_.arrival);
}

void JobRun::Park() {
  state_.was_reading = state_.phase == Phase::kReading;
  state_.phase = Phase::kParked;
  waiting_since_ = clock_->Now();
  ++state_.num_parks;
  ++figures_->parks;
}

void JobRun::Resume() {
  state_.phase = state_.was_reading ? Phase::kReading : Phase::kDecoding;
  state_.waited += clock_->Now() - waiting_since_;
  ++figures_->resumes;
}

void JobRun::ReportProgress() {
  if (!job_.reports_progress) return;
  const auto total = static_cast<int>(prompt_tokens_);
  const int processed = total - static_cast<int>(session_->prompt_left());
  const bool is_first = processed == cached_tokens_;
  update_.progress.push_back({.total = total,
                              .cached = cached_tokens_,
                              .processed = processed,
                              .seconds = is_first ? 0 : clock_->Now() - begun_});
  has_update_ = true;
}

void JobRun::ReportMemory() {
  if (!job_.reports_memory || session_ == nullptr) return;
  const double now = clock_->Now();
  if (memory_reported_ > 0 && now - memory_reported_ < kMemorySeconds) return;
  memory_reported_ = now;
  update_.memory = MemoryOf(*session_, kMostTiersMeanwhile);
  has_update_ = true;
}

size_t JobRun::TextSize(Token token) const {
  return ShownText(job_.sampler->model(), token, thinking_start_, thinking_end_).size();
}

GenerateOptions JobRun::AnswerOptions() {
  GenerateOptions options = std::move(job_.generate);
  job_.generate = {.max_tokens = options.max_tokens};
  thinking_start_ = options.thinking_start;
  thinking_end_ = options.thinking_end;
  options.on_text = [this](std::string_view text, TextPart part) {
    NoteText(text, part);
    return true;
  };
  options.on_token = [this](Token token) { NoteToken(token); };
  return options;
}

void JobRun::BeginAnswer() {
  GenerateOptions options = AnswerOptions();
  progress_.in_thought = options.opens_in_thinking;
  answer_ = options.so_far;
  for (const Token token : answer_.tokens) text_end_ += TextSize(token);
  if (answer_.tokens.empty()) answer_.begin = session_->next_position();
  saved_tokens_ = answer_.tokens.size();
  if (job_.reports_memory) {
    update_.preceding.emplace(session_->tokens().begin(), session_->tokens().end());
    has_update_ = true;
  }
  generation_ =
      std::make_unique<Generation>(session_.get(), job_.sampler.get(), std::move(options));
  if (ends_thought_) generation_->EndThought();
  state_.phase = Phase::kDecoding;
}

void JobRun::NoteText(std::string_view text, TextPart part) {
  std::vector<JobPiece>& pieces = update_.pieces;
  if (pieces.empty() || pieces.back().part != part) pieces.push_back({.part = part});
  pieces.back().text += text;
  if (!update_.tokens.empty()) update_.tokens.back().text += text;
  progress_.in_thought = part == TextPart::kThought;
  if (progress_.in_thought) progress_.thought_tokens = progress_.generated_tokens;
  has_update_ = true;
}

void JobRun::NoteToken(Token token) {
  const double now = clock_->Now();
  if (first_token_ == 0) {
    first_token_ = now;
    figures_->first_token.Add(now - state_.arrival);
  } else {
    figures_->between_tokens.Add(now - last_token_);
  }
  last_token_ = now;
  progress_.decode_begin = first_token_;
  ++progress_.generated_tokens;
  ++figures_->generated_tokens;
  if (job_.work.has_value()) {
    answer_.tokens.push_back(token);
    if (progress_.in_thought) ++thought_tokens_;
  }
  if (job_.reports_tokens) {
    update_.tokens.push_back(
        {.token = token, .seconds = now - first_token_, .guessed = session_->HasComputed(token)});
    has_update_ = true;
  }
  if (job_.logprobs.has_value()) NoteLogprobs(token);
}

void JobRun::NoteLogprobs(Token token) {
  const size_t begin = std::exchange(text_end_, text_end_ + TextSize(token));
  Logprobs logprobs = job_.logprob_source == Job::LogprobSource::kSampler
                          ? job_.sampler->LastDraw(*job_.logprobs)
                          : LogprobsOf(session_->logits(), token, *job_.logprobs);
  update_.logprobs.push_back({.of = std::move(logprobs), .begin = begin, .end = text_end_});
  has_update_ = true;
}

bool JobRun::Choose() {
  pending_ = generation_->Next();
  return pending_.has_value();
}

StepOutcome JobRun::DecodeAlone() {
  return session_->Decode(*pending_, MakeGuess(), most_guesses());
}

void JobRun::Appended(const StepOutcome& outcome, double seconds) {
  pending_.reset();
  // The token was appended, and only the policy's moves found no room; they are retried, so this is
  // no error.
  const bool waits = outcome.taken && IsLimit(outcome.status.code());
  generation_->Appended(waits ? StepOutcome{.taken = true, .status = OkStatus()} : outcome,
                        seconds);
  if (outcome.taken && outcome.ok() && job_.work.has_value()) SaveCheckpoint();
}

void JobRun::EndThought() {
  ends_thought_ = true;
  if (generation_ != nullptr) generation_->EndThought();
}

Result<SavedSession> JobRun::Save(SessionRecord record) const {
  return SessionShelf::Save(session_.get(), *job_.work, std::move(record));
}

// Adds the saved session to the update. If the update has an older one that was not sent, removes
// that one's file.
void JobRun::Send(SavedSession saved) {
  if (update_.saved.has_value()) std::remove(update_.saved->file.c_str());
  update_.saved = std::move(saved);
  has_update_ = true;
}

void JobRun::SaveCheckpoint() {
  const SessionWork& work = *job_.work;
  const size_t num_tokens = answer_.tokens.size();
  if (work.checkpoint_every == 0 ||
      num_tokens < saved_tokens_ + static_cast<size_t>(work.checkpoint_every)) {
    return;
  }
  saved_tokens_ = num_tokens;
  SessionRecord record = work.record;
  record.answer = answer_;
  record.sampler = SavedState(*job_.sampler);
  record.thought_tokens += thought_tokens_;
  // A failed checkpoint is no error: the next one is tried when it is due.
  if (auto saved = Save(std::move(record)); saved.ok()) Send(*std::move(saved));
}

void JobRun::SaveAtEnd(const GenerateResult& result, JobEnd* end) {
  const SessionWork& work = *job_.work;
  end->generated_tokens = static_cast<int>(result.answer.tokens.size());
  end->thought_tokens += work.record.thought_tokens;
  if (end->finish == FinishReason::kError || end->finish == FinishReason::kCap) return;
  // Does nothing if the answer was cut off before its first token.
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
    record.said = AnswerSaid(*work.prompt, result, work.call_seed);
  } else {
    record.sampler = SavedState(*job_.sampler);
  }
  end->session = SessionEnd{.num_tokens = session_->next_position()};
  if (auto saved = Save(std::move(record)); saved.ok()) {
    Send(*std::move(saved));
  } else {
    end->session->error = saved.status().Text();
  }
}

JobEnd JobRun::End(FinishReason reason, const Status& error) {
  JobEnd end = {.finish = reason, .error = error, .num_parks = state_.num_parks};
  const double now = clock_->Now();
  if (generation_ != nullptr) {
    const GenerateResult result = generation_->End();
    if (error.ok()) {
      end.finish = result.finish_reason;
      end.stop_string = result.stop_string;
      end.error = result.error;
    }
    end.generated_tokens = result.generated_tokens;
    end.thought_tokens = result.thought_tokens;
    end.decode_steps = result.decode_steps;
    Blend(result.generated_tokens, &figures_->tokens_per_answer);
    if (job_.work.has_value()) SaveAtEnd(result, &end);
  }
  if (session_ != nullptr) {
    const auto read = static_cast<int>(session_->tokens().size());
    end.prompt_tokens = read - end.decode_steps;
    end.cached_tokens = cached_tokens_;
    end.logits_hash = session_->logits_hash();
    end.guesses = Since(guesses_before_, session_->speculation_report());
    if (job_.reports_memory) update_.memory = MemoryOf(*session_, kMostTiersAtEnd);
    end.queue_seconds = begun_ - state_.arrival;
    const double first = first_token_ > 0 ? first_token_ : now;
    end.first_token_seconds = first - state_.arrival;
    end.prompt_seconds = first - begun_;
    end.decode_seconds = now - first;
  }
  CountEnd(end);
  figures_->whole.Add(now - state_.arrival);
  if (job_.work.has_value()) {
    end.trouble = trouble_;
    if (generation_ != nullptr) end.prompt_tokens = answer_.begin;
    end.cached_tokens = std::min(static_cast<int>(job_.work->num_kept), end.prompt_tokens);
    const bool is_untouched = session_ == nullptr && trouble_ == SessionTrouble::kNone;
    if (is_untouched) end.resting = job_.work->resting;
  }
  return end;
}

void JobRun::CountEnd(const JobEnd& end) {
  figures_->prompt_seconds += end.prompt_seconds;
  figures_->decode_seconds += end.decode_seconds;
  figures_->decoded_tokens += static_cast<uint64_t>(std::max(0, end.generated_tokens - 1));
  const uint64_t tokens =
      static_cast<uint64_t>(end.prompt_tokens) + static_cast<uint64_t>(end.generated_tokens);
  figures_->most_tokens = std::max(figures_->most_tokens, tokens);
  ++figures_->ended[std::string(FinishReasonName(end.finish))];
  if (session_ != nullptr) CountReading();
}

void JobRun::CountReading() {
  AddSince(selection_before_, session_->accounting().selection, &figures_->selection);
  const SpeculationReport guesses = Since(guesses_before_, session_->speculation_report());
  const auto add = [&](Speculation source, int64_t drafted, int64_t accepted) {
    if (drafted == 0) return;
    Guesses& total = figures_->guesses[std::string(SpeculationName(source))];
    total.drafted += static_cast<uint64_t>(drafted);
    total.accepted += static_cast<uint64_t>(accepted);
  };
  add(Speculation::kLookup, guesses.drafted - guesses.drafted_by_source,
      guesses.accepted - guesses.accepted_by_source);
  add(guesses.draft_source, guesses.drafted_by_source, guesses.accepted_by_source);
}

std::unique_ptr<Session> JobRun::TakeSession() {
  generation_.reset();  // the generation has a pointer to the session
  return std::move(session_);
}

JobUpdate JobRun::TakeUpdate() {
  has_update_ = false;
  return std::exchange(update_, {.id = id()});
}

}  // namespace ebb::server

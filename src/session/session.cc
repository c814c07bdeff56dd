#include <algorithm>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "src/session/prompt_reading.h"
#include "src/session/session_impl.h"

namespace ebb {

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Session::~Session() = default;

Status Session::Impl::CheckNoPrompt() const {
  if (!prompt.has_value()) return OkStatus();
  const size_t left = prompt->tokens.size() - prompt->reading.num_read();
  return InvalidArgument("the session is reading a prompt, of which " + std::to_string(left) +
                         " tokens are left");
}

Status Session::Impl::BeginPrompt(std::vector<Token> tokens, size_t num_taken, SessionBody* from) {
  EBB_RETURN_IF_ERROR(CheckPrompt(tokens));
  if (num_taken > 0) {
    EBB_RETURN_IF_ERROR(body->AdoptPrefix(from, static_cast<Position>(num_taken)));
  }
  // A vector that is moved keeps its elements where they are.
  const PromptReading reading(body.get(), tokens, num_taken);
  prompt.emplace(PendingPrompt{std::move(tokens), reading});
  return OkStatus();
}

Status Session::BeginPrompt(std::vector<Token> tokens) try {
  return impl_->BeginPrompt(std::move(tokens), /*num_taken=*/0, /*from=*/nullptr);
} catch (const std::bad_alloc&) {
  return OutOfMemory("no memory for a prompt");
}

size_t Session::prompt_left() const {
  const std::optional<PendingPrompt>& prompt = impl_->prompt;
  return prompt.has_value() ? prompt->tokens.size() - prompt->reading.num_read() : 0;
}

StepOutcome Session::Prefill(std::span<const Token> tokens, const PrefillOptions& options) {
  if (Status wrong = impl_->CheckPrompt(tokens); !wrong.ok()) {
    return {.taken = false, .status = std::move(wrong)};
  }
  PromptReading reading(impl_->body.get(), tokens);
  Status status = impl_->Read(&reading, options);
  return {.taken = reading.done(), .status = std::move(status)};
}

Status Session::Impl::CheckPrompt(std::span<const Token> tokens) {
  EBB_RETURN_IF_ERROR(CheckNoPrompt());
  return PromptReading::Check(body.get(), tokens);
}

Status Session::Impl::Read(PromptReading* reading_in, const PrefillOptions& options) {
  PromptReading& reading = *reading_in;
  ShownLogits& shown = logits;
  while (!reading.done()) {
    if (options.cancel != nullptr && *options.cancel) return Cancelled("reading was cancelled");
    const Position first = body->sequence().next();
    EBB_ASSIGN_OR_RETURN(SequenceStep entry, reading.Next());
    if (options.on_logits) entry.logits = SequenceStep::Logits::kAll;
    const StepResult result = RunStep(core.get(), {.entries = {&entry, 1}});
    if (!result.taken()) return result.status();
    reading.Took(entry);
    if (!options.on_logits) shown.Set(result.logits(0));
    if (options.on_logits) {
      for (size_t t = 0; t < entry.tokens.size(); ++t) {
        shown.Show(result.logits(0, t));
        options.on_logits(first + static_cast<Position>(t), shown.values);
      }
    }
    if (reading.done()) {
      // The hash does not tell how a prompt was cut into steps.
      if (!options.on_logits) shown.AddToHash();
      reading.End();
    }
    EBB_RETURN_IF_ERROR(result.status());
    if (options.progress) options.progress(reading.num_read());
  }
  return OkStatus();
}

StepOutcome Session::Decode(Token token, const Guess& guess, int most_guesses) {
  if (Status wrong = impl_->CheckNoPrompt(); !wrong.ok()) {
    return {.taken = false, .status = std::move(wrong)};
  }
  return impl_->body->Decode(token, guess, most_guesses, &impl_->logits);
}

Result<std::unique_ptr<Session>> Session::Fork() try {
  EBB_RETURN_IF_ERROR(impl_->CheckNoPrompt());
  SessionBody& body = *impl_->body;
  EBB_RETURN_IF_ERROR(body.CheckUnbroken());
  body.DiscardLookahead();
  EBB_RETURN_IF_ERROR(body.CheckUnbroken());
  EBB_ASSIGN_OR_RETURN(std::unique_ptr<Session> fork, Internals::Open(impl_->core, impl_->options));
  fork->impl_->logits.values = impl_->logits.values;
  fork->impl_->logits.hash = impl_->logits.hash;
  EBB_RETURN_IF_ERROR(fork->impl_->body->ForkFrom(&body));
  return fork;
} catch (const std::bad_alloc&) {
  return OutOfMemory("no memory to fork a session");
}

Status Session::SetT0Share(double share) {
  if (!(share >= 0 && share <= 1)) {
    return InvalidArgument("a share of T0 of " + std::to_string(share) + "; expected 0 to 1");
  }
  return impl_->body->SetT0Share(share);
}

Status Session::SetT0Floor(uint64_t num_bytes) {
  EBB_RETURN_IF_ERROR(impl_->body->sequence().cache().SetT0Floor(num_bytes));
  impl_->options.t0_floor_bytes = num_bytes;
  return OkStatus();
}

Status Session::Park() { return impl_->body->Park(); }

Status Session::TruncateTo(Position end) {
  SessionBody& body = *impl_->body;
  EBB_RETURN_IF_ERROR(body.CheckUnbroken());
  if (end < 0 || end > next_position()) {
    return InvalidArgument("cannot roll back to position " + std::to_string(end) +
                           ": the sequence has " + std::to_string(next_position()) + " tokens");
  }
  body.DiscardLookahead();
  EBB_RETURN_IF_ERROR(body.sequence().CheckTruncateTo(end));
  impl_->prompt.reset();
  body.TruncateTo(end);
  impl_->logits.values.clear();
  return body.CheckUnbroken();
}

Position Session::NearestTruncation(Position end) const {
  const Position most = std::clamp(end, 0, next_position());
  return impl_->body->sequence().NearestTruncation(most);
}

bool Session::CanTruncateTo(Position end) const {
  return end >= 0 && end <= next_position() && impl_->body->sequence().CheckTruncateTo(end).ok();
}

std::span<const float> Session::logits() const { return impl_->logits.values; }
uint64_t Session::logits_hash() const { return impl_->logits.hash; }
Position Session::next_position() const { return static_cast<Position>(tokens().size()); }
std::span<const Token> Session::tokens() const {
  const std::span<const Token> all = impl_->body->sequence().tokens();
  return all.first(all.size() - impl_->body->num_verified_ahead());
}
std::span<const Token> Session::drafted() const {
  return impl_->body->sequence().tokens().last(impl_->body->num_verified_ahead());
}
int Session::context() const { return impl_->body->sequence().options().context; }
const Policy& Session::policy() const { return impl_->body->sequence().policy(); }
CacheAccounting Session::accounting() const { return impl_->body->accounting(); }
size_t Session::page_bytes(Tier tier) const { return impl_->body->page_bytes(tier); }
const LosslessReport* Session::lossless_report() const { return impl_->body->lossless_report(); }
Result<size_t> Session::CountPolicyBytes() const {
  StateWriter count(StateWriter::Keep::kCount);
  EBB_RETURN_IF_ERROR(impl_->body->sequence().settler().SaveState(&count));
  return count.num_bytes();
}
const Ledger* Session::ledger() const { return impl_->body->sequence().ledger(); }
const StepReport& Session::last_step() const { return impl_->body->sequence().report(); }
const StepSignals& Session::last_signals() const {
  return impl_->body->sequence().signals().step();
}
std::span<const Position> Session::visible_positions(int group) const {
  const SequenceCache& cache = impl_->body->sequence().cache();
  const std::span<const Position> positions = cache.positions(group);
  const int window = cache.layout().WindowOf(group);
  if (window == 0) return positions;
  // Rows before the window are kept for going back.
  const auto first = std::ranges::upper_bound(positions, impl_->body->sequence().next() - window);
  return positions.subspan(first - positions.begin());
}

}  // namespace ebb

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

std::vector<SequenceCache*> Session::Impl::caches() const {
  std::vector<SequenceCache*> all = {&sequence->cache()};
  if (&store() != sequence.get()) all.push_back(&store().cache());
  return all;
}

Status Session::Impl::CheckUnbroken() const {
  EBB_RETURN_IF_ERROR(sequence->health().CheckUnbroken());
  return store().health().CheckUnbroken();
}

Status Session::Impl::DiscardLookahead() {
  EBB_RETURN_IF_ERROR(CheckUnbroken());
  if (speculator != nullptr) speculator->DiscardLookahead();
  if (lookup != nullptr) lookup->Discard();
  return CheckUnbroken();
}

Status Session::Impl::CheckNoPrompt() const {
  if (!prompt.has_value()) return OkStatus();
  const size_t left = prompt->tokens.size() - prompt->reading.num_read();
  return InvalidArgument("the session is reading a prompt, of which " + std::to_string(left) +
                         " tokens are left");
}

Status Session::Impl::BeginPrompt(std::vector<Token> tokens, size_t num_taken, Sequence* from) {
  EBB_RETURN_IF_ERROR(CheckPrompt(tokens));
  if (num_taken > 0) {
    EBB_RETURN_IF_ERROR(sequence->prompt().AdoptPrefix(from, static_cast<Position>(num_taken)));
  }
  // A vector that is moved keeps its elements in place, so the reading may refer to `tokens` before
  // the move.
  const PromptReading reading(sequence.get(), speculator.get(), tokens, num_taken);
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
  std::optional<PromptReading> reading;
  try {
    if (Status wrong = impl_->CheckPrompt(tokens); !wrong.ok()) {
      return {.taken = false, .status = std::move(wrong)};
    }
    reading.emplace(impl_->sequence.get(), impl_->speculator.get(), tokens);
  } catch (const std::bad_alloc&) {
    return {.taken = false, .status = OutOfMemory("no memory for a prompt")};
  }
  Status status = impl_->Read(&*reading, options);
  return {.taken = reading->done(), .status = std::move(status)};
}

Status Session::Impl::CheckPrompt(std::span<const Token> tokens) {
  EBB_RETURN_IF_ERROR(CheckNoPrompt());
  EBB_RETURN_IF_ERROR(CheckUnbroken());
  if (tokens.empty()) return InvalidArgument("nothing to read: the prompt has no tokens");
  EBB_RETURN_IF_ERROR(sequence->CheckTokens(tokens));
  EBB_RETURN_IF_ERROR(DiscardLookahead());
  // A prompt that does not fit into the context is refused before any of it is read.
  if (!sequence->RotatesKeys()) EBB_RETURN_IF_ERROR(sequence->CheckRoom(tokens.size()));
  return speculator == nullptr ? sequence->CheckPrompt(tokens.size())
                               : speculator->CheckPrompt(tokens.size());
}

Status Session::Impl::Read(PromptReading* reading_in, const PrefillOptions& options) {
  PromptReading& reading = *reading_in;
  ShownLogits& shown = logits;
  while (!reading.done()) {
    if (options.cancel != nullptr && *options.cancel) return Cancelled("reading was cancelled");
    const Position first = sequence->next();
    EBB_ASSIGN_OR_RETURN(SequenceStep entry, reading.Next());
    if (options.on_logits) entry.logits = SequenceStep::Logits::kAll;
    const StepResult result = RunStep(core.get(), {.entries = {&entry, 1}});
    if (!result.taken()) return result.status();
    reading.AddRead(entry);
    if (lookup != nullptr) lookup->FollowStep();
    if (!options.on_logits) shown.Set(result.logits(0));
    if (options.on_logits) {
      for (size_t t = 0; t < entry.tokens.size(); ++t) {
        shown.Show(result.logits(0, t));
        options.on_logits(first + static_cast<Position>(t), shown.values);
      }
    }
    if (reading.done()) {
      // The hash must not depend on how the prompt was cut into steps, so it includes only the last
      // logits.
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
  Impl& s = *impl_;
  if (s.speculator != nullptr) return s.speculator->Decode(token, guess, most_guesses, &s.logits);
  if (s.lookup != nullptr) return s.lookup->Decode(token, guess, most_guesses, &s.logits);
  const SequenceStep step = {.sequence = s.sequence.get(), .tokens = {&token, 1}};
  const StepResult result = RunStep(s.core.get(), {.entries = {&step, 1}});
  if (result.taken()) s.logits.Show(result.logits(0));
  return result.outcome();
}

Result<std::unique_ptr<Session>> Session::Fork() try {
  EBB_RETURN_IF_ERROR(impl_->CheckNoPrompt());
  EBB_RETURN_IF_ERROR(impl_->DiscardLookahead());
  EBB_ASSIGN_OR_RETURN(std::unique_ptr<Session> fork,
                       Internals::Open(impl_->core, impl_->sequence->options()));
  Impl& other = *fork->impl_;
  other.logits.values = impl_->logits.values;
  other.logits.hash = impl_->logits.hash;
  EBB_RETURN_IF_ERROR(other.sequence->ForkFrom(impl_->sequence.get()));
  if (other.speculator != nullptr) {
    EBB_RETURN_IF_ERROR(other.speculator->ForkFrom(*impl_->speculator));
  }
  if (other.lookup != nullptr && impl_->lookup != nullptr) other.lookup->ForkFrom(*impl_->lookup);
  return fork;
} catch (const std::bad_alloc&) {
  return OutOfMemory("no memory to fork a session");
}

Status Session::SetT0Share(double share) {
  if (!(share >= 0 && share <= 1)) {
    return InvalidArgument("a share of T0 of " + std::to_string(share) + "; expected 0 to 1");
  }
  if (impl_->speculator != nullptr) {
    EBB_RETURN_IF_ERROR(impl_->speculator->CheckT0ShareMayChange());
  }
  if (impl_->lookup != nullptr) impl_->lookup->Discard();
  return impl_->sequence->SetT0Share(share);
}

Status Session::SetT0Floor(uint64_t num_bytes) { return impl_->sequence->SetT0Floor(num_bytes); }

Status Session::Park() {
  if (impl_->speculator != nullptr) {
    EBB_RETURN_IF_ERROR(impl_->speculator->CheckMayPark());
    impl_->speculator->DiscardLookahead();
  }
  if (impl_->lookup != nullptr) impl_->lookup->Rest();
  return impl_->sequence->Park();
}

Status Session::TruncateTo(Position end) {
  Impl& s = *impl_;
  EBB_RETURN_IF_ERROR(s.CheckUnbroken());
  if (end < 0 || end > next_position()) {
    return InvalidArgument("cannot roll back to position " + std::to_string(end) +
                           ": the sequence has " + std::to_string(next_position()) + " tokens");
  }
  EBB_RETURN_IF_ERROR(s.DiscardLookahead());
  EBB_RETURN_IF_ERROR(s.sequence->roll_back().Check(end, next_position()));
  s.prompt.reset();
  if (s.speculator != nullptr) {
    s.speculator->TruncateTo(end);
  } else {
    s.sequence->TruncateTo(end);
  }
  if (s.lookup != nullptr) s.lookup->TruncateTo(end);
  s.logits.values.clear();
  return s.CheckUnbroken();
}

Position Session::NearestTruncation(Position end) const {
  const Position most = std::clamp(end, 0, next_position());
  return impl_->sequence->roll_back().NearestUpTo(most, impl_->sequence->next());
}

bool Session::CanTruncateTo(Position end) const {
  return end >= 0 && end <= next_position() &&
         impl_->sequence->roll_back().Check(end, impl_->sequence->next()).ok();
}

std::span<const float> Session::logits() const { return impl_->logits.values; }
uint64_t Session::logits_hash() const { return impl_->logits.hash; }
Position Session::next_position() const { return static_cast<Position>(tokens().size()); }
std::span<const Token> Session::tokens() const {
  const std::span<const Token> all = impl_->sequence->tokens();
  return all.first(all.size() - impl_->num_verified_ahead());
}
bool Session::TakesGuesses() const {
  return impl_->speculator != nullptr || (impl_->lookup != nullptr && impl_->lookup->has_drafter());
}
bool Session::HasComputed(Token token) const {
  return impl_->lookup != nullptr && impl_->lookup->HasComputed(token);
}
std::span<const Token> Session::drafted() const {
  return impl_->sequence->tokens().last(impl_->num_verified_ahead());
}
int Session::context() const { return impl_->sequence->options().context; }
const Policy& Session::policy() const { return impl_->sequence->policy(); }
CacheAccounting Session::accounting() const {
  if (impl_->speculator != nullptr) return impl_->speculator->accounting();
  CacheAccounting sum = impl_->sequence->accounting();
  if (impl_->lookup != nullptr) sum.table_bytes += impl_->lookup->memory_bytes();
  return sum;
}
size_t Session::page_bytes(Tier tier) const {
  if (impl_->speculator == nullptr) return impl_->sequence->cache().page_bytes(tier);
  return accounting().tiers[static_cast<size_t>(tier)].page_bytes;
}
const LosslessReport* Session::lossless_report() const {
  return impl_->speculator == nullptr ? nullptr : &impl_->speculator->report();
}
void Session::Predict(std::span<const Token> tokens) {
  if (impl_->lookup != nullptr) impl_->lookup->Predict(tokens);
}
void Session::ForgetGuesses() {
  if (impl_->lookup != nullptr) impl_->lookup->Rest();
}
SpeculationReport Session::speculation_report() const {
  if (impl_->lookup != nullptr) return impl_->lookup->report();
  const LosslessReport* const lossless = lossless_report();
  if (lossless == nullptr) return {};
  return {.drafted = lossless->drafted,
          .accepted = lossless->accepted,
          .verify_steps = lossless->verify_steps};
}
const std::string& Session::speculation_obstacle() const { return impl_->speculation_obstacle; }
Result<size_t> Session::CountPolicyBytes() const {
  StateWriter count(StateWriter::Keep::kCount);
  EBB_RETURN_IF_ERROR(impl_->sequence->settler().SaveState(&count));
  return count.num_bytes();
}
const Ledger* Session::ledger() const { return impl_->sequence->ledger(); }
std::span<const Explanation> Session::explanations() const {
  return impl_->sequence->explanations();
}
std::vector<Explanation> Session::Explain(Position position) const {
  return impl_->sequence->Explain(position);
}
const StepReport& Session::last_step() const { return impl_->sequence->report(); }
const StepSignals& Session::last_signals() const { return impl_->sequence->signals().step(); }
std::span<const Position> Session::visible_positions(int group) const {
  const SequenceCache& cache = impl_->sequence->cache();
  const std::span<const Position> positions = cache.positions(group);
  const int window = cache.layout().WindowOf(group);
  if (window == 0) return positions;
  // The cache keeps rows before the window for truncation, but attention does not see them.
  const auto first = std::ranges::upper_bound(positions, impl_->sequence->next() - window);
  return positions.subspan(first - positions.begin());
}

}  // namespace ebb

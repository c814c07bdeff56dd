#include <xxhash.h>

#include <algorithm>
#include <new>
#include <string>
#include <vector>

#include "src/engine/engine_impl.h"
#include "src/engine/graph_op.h"

namespace ebb {
namespace {

// What the drafting sequence evicted lies in the store. Where that has a T1, its newest rows, which
// are on their way there, count as staging.
void AddStore(const CacheAccounting& store, bool has_t1, CacheAccounting* sum) {
  constexpr auto kT0 = static_cast<size_t>(Tier::kT0), kT1 = static_cast<size_t>(Tier::kT1);
  sum->tiers[kT1] = store.tiers[kT1];
  sum->staging_bytes += store.staging_bytes;
  if (has_t1) {
    sum->newest = store.tiers[kT0];
    sum->staging_bytes += store.tiers[kT0].page_bytes;
  } else {
    sum->tiers[kT0].rows += store.tiers[kT0].rows;
    sum->tiers[kT0].row_bytes += store.tiers[kT0].row_bytes;
    sum->tiers[kT0].page_bytes += store.tiers[kT0].page_bytes;
  }
  sum->table_bytes += store.table_bytes;
  sum->num_tables += store.num_tables;
  sum->rows_evicted = 0;
  sum->moves.rows_down += store.moves.rows_down;
  sum->moves.bytes_down += store.moves.bytes_down;
  sum->moves.seconds += store.moves.seconds;
  sum->moves.seconds_down += store.moves.seconds_down;
}

}  // namespace

Session::Impl::Impl(Engine::Impl* engine_in, const SessionOptions& options_in, Policy policy_in,
                    int context_in, const CacheStores& stores)
    : engine(engine_in),
      options(options_in),
      context(context_in),
      policy(std::move(policy_in)),
      cache(engine->model->shape(), engine->format, policy.granularity, stores),
      signals(engine->model->shape(), policy.granularity,
              Union(PolicyDriver::Needs(policy), options.extra_signals)),
      ledger(options.ledger == SessionOptions::Record::kYes
                 ? std::make_unique<Ledger>(cache.num_groups(), cache.streams_per_group())
                 : nullptr),
      driver(&policy, &cache, &signals, &engine->stores, &options, ledger.get(),
             engine->runner.get()) {}

bool Session::Impl::HasRoom(size_t num_tokens) const {
  return rope.Next(next()) + num_tokens <= static_cast<size_t>(context);
}

Status Session::Impl::CheckRoom(size_t num_tokens) const {
  if (HasRoom(num_tokens)) return OkStatus();
  return ResourceExhausted("the context of " + std::to_string(context) +
                           " tokens is full: " + std::to_string(rope.Next(next())) +
                           " are taken, " + std::to_string(num_tokens) + " more asked for");
}

Status Session::Impl::CheckRoomAfterTurning(size_t num_tokens) const {
  if (!TurnsKeys()) return CheckRoom(num_tokens);
  if (cache.max_rows() + num_tokens <= static_cast<size_t>(context)) return OkStatus();
  return ResourceExhausted("the context of " + std::to_string(context) + " tokens is full: " +
                           std::to_string(cache.max_rows()) + " rows survive, " +
                           std::to_string(num_tokens) + " more tokens asked for");
}

bool Session::Impl::TurnsKeys() const { return ebb::TurnsKeys(options, policy); }

// Turning the new rows too, which nobody has written yet, does no harm and keeps the order simple.
Status Session::Impl::TurnKeysIfFull(size_t num_tokens) {
  if (HasRoom(num_tokens)) return OkStatus();
  return TurnKeys(static_cast<Position>(cache.max_rows()), num_tokens);
}

Status Session::Impl::CloseGaps() { return TurnKeys(rope.Next(next()), 0); }

// What fails half-way leaves keys at places that nobody knows of.
Status Session::Impl::TurnKeys(Position end, size_t num_tokens) {
  try {
    for (int group = 0; group < cache.num_groups() && broken.ok(); ++group) {
      broken = engine->runner->TurnKeys(&cache, group, rope, end, next(), &first_keys);
      if (broken.ok()) rope.Turned(cache, group, end);
    }
    if (!broken.ok()) {
      broken = Status(broken.code(), broken.message() + "; this sequence cannot go on");
    }
  } catch (const std::bad_alloc&) {
    EndWithoutMemory("to rotate keys anew");
  }
  EBB_RETURN_IF_ERROR(broken);
  rope.Continue(end, next() + static_cast<Position>(num_tokens));
  // Queries of earlier steps stand at places that the keys have left.
  signals.Forget();
  return OkStatus();
}

size_t Session::Impl::LargestChunk(size_t num_tokens) const {
  auto chunk = std::min<size_t>(num_tokens, engine->options.prefill_chunk);
  // A draft hides nothing from the sequence that computes.
  if (policy.placement != nullptr && lossless == nullptr) {
    chunk = std::min<size_t>(chunk, policy.placement->LongestStep());
  }
  // Compressed rows are read one query at a time; where another sequence computes, not at all.
  if (lossless == nullptr && cache.HasCompressedRows())
    chunk = std::min<size_t>(chunk, kMaxFoldTokens);
  if (!TurnsKeys()) return chunk;
  const auto used = static_cast<size_t>(rope.Next(next()));
  const size_t total = context;
  const size_t room =
      std::max(total - std::min(total, used), total - std::min(total, cache.max_rows()));
  return room == 0 ? chunk : std::min(chunk, room);
}

Status Session::Impl::CheckPrompt(size_t num_tokens) const try {
  if (policy.placement == nullptr) return OkStatus();
  std::vector<TokenKind> all = kinds;
  all.resize(all.size() + num_tokens, TokenKind::kGiven);
  PlacementInput facts = Facts(StepKind::kPrefill);
  facts.kinds = all;
  facts.next_position += static_cast<Position>(num_tokens);
  if (first_generated < 0) facts.first_generated = facts.next_position;
  facts.tokens_to_come = 0;
  const bool needs_room = driver.HasTiers() && cache.RoomForTokens() < num_tokens;
  const Status fits = needs_room ? driver.Check(facts, num_tokens) : policy.placement->Check(facts);
  return fits.ok() || lossless == nullptr ? fits : OfDraft(fits);
} catch (const std::bad_alloc&) {
  return ResourceExhausted("no memory for a prompt of " + std::to_string(num_tokens) + " tokens");
}

Result<size_t> Session::Impl::PieceOf(size_t chunk) {
  if (!driver.HasTiers()) return chunk;
  if (cache.RoomForTokens() < chunk && !tokens.empty()) {
    tokens_to_come = chunk;
    EBB_RETURN_IF_ERROR(engine->MakeRoom(this, StepKind::kPrefill));
  }
  // What still exceeds T0's cap waits for the next step; a single token would be multiplied by
  // other kernels than several are.
  const size_t piece = std::min(chunk, std::max<size_t>(cache.RoomForTokens(), 1));
  return piece + 1 == chunk && piece > 2 ? piece - 1 : piece;
}

Status Session::Impl::CheckTokens(std::span<const Token> new_tokens) const {
  const int vocab_size = engine->model->shape().vocab_size;
  for (const Token token : new_tokens) {
    if (token < 0 || token >= vocab_size) {
      return InvalidArgument("token " + std::to_string(token) + " is not in the vocabulary of " +
                             std::to_string(vocab_size));
    }
  }
  return OkStatus();
}

void Session::Impl::ShowLogits(std::span<const float> of_last_token) {
  logits.assign(of_last_token.begin(), of_last_token.end());
  HashLogits();
}

void Session::Impl::HashLogits() {
  logits_hash = XXH3_64bits_withSeed(logits.data(), logits.size() * sizeof(float), logits_hash);
}

PlacementInput Session::Impl::Facts(StepKind kind, int new_tokens) const {
  return {.kinds = kinds,
          .first_generated = first_generated < 0 ? next() : first_generated,
          .next_position = next(),
          .decode_steps = decode_steps,
          .new_tokens = new_tokens,
          .step_kind = kind,
          .tokens_to_come = kind == StepKind::kPrefill ? tokens_to_come : 0};
}

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Session::~Session() = default;

Status Session::Prefill(std::span<const Token> tokens, const PrefillOptions& options) {
  Impl& s = *impl_;
  EBB_RETURN_IF_ERROR(s.CheckUnbroken());
  if (tokens.empty()) return InvalidArgument("nothing to read: the prompt has no tokens");
  EBB_RETURN_IF_ERROR(s.CheckTokens(tokens));
  if (s.lossless != nullptr) {
    s.lossless->DropAhead();
    EBB_RETURN_IF_ERROR(s.CheckUnbroken());
  }
  // A text that cannot fit as a whole is refused as a whole.
  if (!s.TurnsKeys()) {
    EBB_RETURN_IF_ERROR(s.CheckRoom(tokens.size()));
  }
  EBB_RETURN_IF_ERROR(s.CheckPrompt(tokens.size()));
  const auto outputs =
      options.on_logits ? Engine::Impl::Outputs::kAll : Engine::Impl::Outputs::kLast;
  size_t chunk_begin = 0, chunk_end = 0;
  for (size_t done = 0; done < tokens.size();) {
    if (options.cancel != nullptr && *options.cancel) return Cancelled("reading was cancelled");
    const Position first = s.next();
    if (done == chunk_end) {
      chunk_begin = done;
      chunk_end = done + s.LargestChunk(tokens.size() - done);
    }
    EBB_ASSIGN_OR_RETURN(const size_t piece, s.PieceOf(chunk_end - done));
    const auto part = tokens.subspan(done, piece);
    s.tokens_to_come = chunk_end - done - piece;
    if (s.tokens_to_come == 0 && chunk_end < tokens.size()) {
      s.tokens_to_come = s.LargestChunk(tokens.size() - chunk_end);
    }
    Engine::Impl::Part step = {.session = &s,
                               .tokens = part,
                               .chunk_first = first - static_cast<Position>(done - chunk_begin),
                               .chunk_tokens = chunk_end - chunk_begin};
    if (s.lossless != nullptr) {
      step.session = &s.lossless->store();
      step.draft = &s;
    }
    const Status status = s.engine->Step(StepKind::kPrefill, {&step, 1}, outputs);
    if (s.next() == first) return status;
    const GraphRunner& runner = *s.engine->runner;
    if (!options.on_logits) s.logits.assign(runner.logits(0).begin(), runner.logits(0).end());
    if (options.on_logits) {
      for (size_t t = 0; t < part.size(); ++t) {
        s.ShowLogits(runner.logits(t));
        options.on_logits(first + static_cast<Position>(t), s.logits);
      }
    }
    EBB_RETURN_IF_ERROR(status);
    done += part.size();
    if (options.progress) options.progress(done);
  }
  // How a prompt was cut into steps is nobody's business.
  if (!options.on_logits) s.HashLogits();
  if (!s.first_prefill_over) {
    s.first_prefill_over = true;
    s.driver.EndFirstPrefill();
  }
  return OkStatus();
}

Status Session::Decode(Token token, const Guess& guess, int most_guesses) {
  if (impl_->lossless != nullptr) return impl_->lossless->Decode(token, guess, most_guesses);
  const Engine::Impl::Part step = {.session = impl_.get(), .tokens = {&token, 1}};
  return impl_->engine->StepAndShow(StepKind::kDecode, {&step, 1});
}

Status Session::Impl::CheckUnbroken() const {
  return broken.ok() && lossless != nullptr ? lossless->store().broken : broken;
}

void Session::Impl::DropRows(Position end) try {
  if (!broken.ok()) return;
  driver.TruncateTo(end);
  cache.TruncateTo(end);
  rope.TruncateTo(cache, end);
  first_keys.TruncateTo(end);
} catch (const std::bad_alloc&) {
  EndWithoutMemory("to roll back");
}

void Session::Impl::EndWithoutMemory(const char* purpose) {
  // Whether or not there is memory to say more.
  broken = Status(StatusCode::kResourceExhausted, "no memory");
  broken = ResourceExhausted(std::string("no memory ") + purpose + "; this sequence cannot go on");
}

void Session::Impl::TruncateTo(Position end) {
  if (end < next()) refused.reset();
  signals.Forget();
  DropRows(end);
  tokens.resize(end);
  kinds.resize(end);
  if (first_generated >= end) first_generated = -1;
  decode_steps = std::count(kinds.begin(), kinds.end(), TokenKind::kGenerated);
}

Status Session::TruncateTo(Position end) {
  Impl& s = *impl_;
  EBB_RETURN_IF_ERROR(s.CheckUnbroken());
  if (end < 0 || end > next_position()) {
    return InvalidArgument("cannot roll back to position " + std::to_string(end) +
                           ": the sequence has " + std::to_string(next_position()) + " tokens");
  }
  if (s.lossless != nullptr) {
    s.lossless->DropAhead();
    s.lossless->TruncateTo(end);
  } else {
    s.TruncateTo(end);
  }
  s.logits.clear();
  return s.CheckUnbroken();
}

std::span<const float> Session::logits() const { return impl_->logits; }
uint64_t Session::logits_hash() const { return impl_->logits_hash; }
Position Session::next_position() const { return static_cast<Position>(impl_->num_asked_for()); }
std::span<const Token> Session::tokens() const {
  return std::span(impl_->tokens).first(impl_->num_asked_for());
}
int Session::context() const { return impl_->context; }
const Policy& Session::policy() const { return impl_->policy; }
CacheAccounting Session::accounting() const {
  CacheAccounting sum = impl_->cache.accounting();
  sum.table_bytes += impl_->first_keys.memory_bytes();
  if (impl_->lossless != nullptr) {
    const SequenceCache& store = impl_->lossless->store().cache;
    AddStore(store.accounting(), store.HasTiers(), &sum);
    sum.table_bytes += impl_->lossless->lookup_bytes();
  }
  if (impl_->ledger != nullptr) sum.ledger_bytes = impl_->ledger->memory_bytes();
  return sum;
}
const LosslessReport* Session::lossless_report() const {
  return impl_->lossless == nullptr ? nullptr : &impl_->lossless->report();
}
std::span<const Token> Session::drafted() const {
  return std::span(impl_->tokens).subspan(impl_->num_asked_for());
}
Result<size_t> Session::CountPolicyBytes() const {
  StateWriter count(StateWriter::Keep::kCount);
  EBB_RETURN_IF_ERROR(impl_->driver.SaveState(&count));
  return count.num_bytes();
}
const Ledger* Session::ledger() const { return impl_->ledger.get(); }
const StepReport& Session::last_step() const { return impl_->report; }
const StepSignals& Session::last_signals() const { return impl_->signals.step(); }

std::span<const Position> Session::visible_positions(int group) const {
  return impl_->cache.positions(group);
}

}  // namespace ebb

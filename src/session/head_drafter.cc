#include "src/session/head_drafter.h"

#include <algorithm>
#include <utility>

#include "src/model/loaded/decoder_graph.h"
#include "src/session/session_impl.h"

namespace ebb {
namespace {

// kMostUnread is how many tokens wait for the head, which then reads them all, so that prompts
// leave few hidden rows in memory.
constexpr Position kMostUnread = 64;
Position SizeOf(std::span<const Token> text) { return static_cast<Position>(text.size()); }

// Returns how many floats the model's hidden row of a token has.
size_t FloatsOfRow(const LoadedModel& head) {
  const size_t num_parts = RowsReadBy(head.hparams).size();
  const Model* const target = head.target.get();
  return num_parts * (target != nullptr ? target->shape() : head.shape).embed_dim;
}

}  // namespace

void HeadRows::Append(Position first, std::span<const float> rows) {
  TruncateTo(first);
  if (first != end()) {
    rows_.clear();
    begin_ = first;
  }
  rows_.insert(rows_.end(), rows.begin(), rows.end());
}

void HeadRows::AppendStep(const StepSignals& step, std::span<const int> blocks) {
  std::vector<std::span<const float>> parts;  // of each row
  for (const int block : blocks) {
    const auto found = std::ranges::find(step.hidden_layers, block);
    if (found == step.hidden_layers.end()) return;
    parts.push_back(step.hidden[found - step.hidden_layers.begin()]);
  }
  if (parts.size() == 1) return Append(step.first_position, parts.front());
  const auto num_tokens = static_cast<size_t>(step.num_tokens);
  const size_t floats = parts.front().size() / num_tokens;
  std::vector<float> rows;
  rows.reserve(num_tokens * floats_);
  for (size_t token = 0; token < num_tokens; ++token) {
    for (const std::span<const float> part : parts) {
      const auto from = part.subspan(token * floats, floats);
      rows.insert(rows.end(), from.begin(), from.end());
    }
  }
  Append(step.first_position, rows);
}

void HeadRows::TruncateTo(Position end) {
  rows_.resize(std::min(rows_.size(), static_cast<size_t>(std::max(end - begin_, 0)) * floats_));
}

void HeadRows::DropBefore(Position begin) {
  const Position dropped = std::min(begin, end()) - begin_;
  if (dropped <= 0) return;
  rows_.erase(rows_.begin(), rows_.begin() + static_cast<ptrdiff_t>(dropped * floats_));
  begin_ += dropped;
}

std::vector<float> HeadRows::Copy(Position first, size_t num_rows) const {
  std::vector<float> copy(num_rows * floats_);
  const Position from = std::max(first, begin_);
  const Position to = std::min(first + static_cast<Position>(num_rows), end());
  if (from >= to) return copy;
  std::copy_n(rows_.begin() + static_cast<ptrdiff_t>((from - begin_) * floats_),
              static_cast<size_t>(to - from) * floats_,
              copy.begin() + static_cast<ptrdiff_t>((from - first) * floats_));
  return copy;
}

HeadDrafter::HeadDrafter(std::unique_ptr<Session> head)
    : head_(std::move(head)),
      hparams_(Internals::Of(*head_).core->model->loaded().hparams),
      encodes_(hparams_.draft_source == Speculation::kEagle3),
      rows_(FloatsOfRow(Internals::Of(*head_).core->model->loaded())) {}

void HeadDrafter::Follow(std::span<const Token> text, const StepSignals& step) {
  rows_.AppendStep(step, RowsReadBy(hparams_));
  if (SizeOf(text) - std::max(next(), rows_.begin()) < kMostUnread) return;
  if (!Read(text)) rows_.DropBefore(SizeOf(text) - kKeptRows);
}

void HeadDrafter::Rest() {
  rows_.Clear();
  if (!head_->tokens().empty()) TruncateHead(0);
}

void HeadDrafter::ForkFrom(const Drafter& other) {
  const auto& from = static_cast<const HeadDrafter&>(other);
  Result<std::unique_ptr<Session>> fork = from.head_->Fork();
  if (!fork.ok()) return;  // the head reads the text from here on
  head_ = *std::move(fork);
  rows_ = from.rows_;
  first_ = from.first_;
  num_read_ = from.num_read_;
}

void HeadDrafter::TruncateHead(size_t num_tokens) {
  const Position end = head_->NearestTruncation(static_cast<Position>(num_tokens));
  if (!head_->TruncateTo(end).ok()) return;
  num_read_ = std::min(num_read_, static_cast<size_t>(end));
}

void HeadDrafter::DropOthers(std::span<const Token> text) {
  const std::span<const Token> known = head_->tokens().first(num_read_);
  const std::span<const Token> own = text.subspan(std::min<size_t>(first_, text.size()));
  const auto same = static_cast<size_t>(std::ranges::mismatch(known, own).in1 - known.begin());
  if (head_->tokens().size() > same) TruncateHead(same);
  const Position rows_begin = rows_.end() > rows_.begin() ? rows_.begin() : SizeOf(text);
  // An MTP layer reads the first token with a row of zeros. EAGLE-3 begins with the second.
  const Position begin = rows_begin + (encodes_ ? 1 : 0);
  if (num_read_ > 0 && next() >= begin) return;
  TruncateHead(0);
  first_ = begin;
}

std::vector<float> HeadDrafter::RowsFor(Position first, size_t num_tokens) {
  const bool is_block = hparams_.block_tokens > 0;
  std::vector<float> rows = rows_.Copy(is_block ? first : first - 1, num_tokens);
  if (!encodes_) return rows;
  const auto encoded = Internals::Of(*head_).core->runner->EncodeFeatures(rows);
  if (!encoded.ok()) return {};
  rows.assign(encoded->begin(), encoded->end());
  return rows;
}

bool HeadDrafter::Read(std::span<const Token> text) {
  DropOthers(text);
  const auto most = static_cast<size_t>(Internals::Of(*head_).core->options.prefill_chunk);
  while (next() < SizeOf(text)) {
    const auto left = static_cast<size_t>(SizeOf(text) - next());
    const std::span<const Token> tokens =
        text.subspan(static_cast<size_t>(next()), std::min(left, most));
    if (!Step(tokens, RowsFor(next(), tokens.size()), Logits::kNone)) return false;
    num_read_ += tokens.size();
  }
  rows_.DropBefore(SizeOf(text) - kKeptRows);
  return true;
}

std::span<const float> HeadDrafter::Begin(std::span<const Token> text, Token token) {
  if (hparams_.block_tokens > 0) {
    const bool is_ready = Read(text) && next() <= SizeOf(text) && StepBlock(token);
    return is_ready ? NextOfBlock() : std::span<const float>();
  }
  DropOthers(text);
  if (SizeOf(text) - next() >= kMostUnread && !Read(text)) return {};
  if (next() > SizeOf(text)) return {};
  std::vector<Token> tokens(text.begin() + next(), text.end());
  tokens.push_back(token);
  if (!Step(tokens, RowsFor(next(), tokens.size()), Logits::kWanted)) return {};
  num_read_ += tokens.size();
  rows_.DropBefore(SizeOf(text) - kKeptRows);
  // Guesses may move a window on; the head goes back to this token.
  Sequence& sequence = Internals::SequenceOf(*head_);
  sequence.roll_back().Keep(sequence.next(), {}, /*keeps_windows=*/true, /*lasts=*/false);
  return logits_;
}

bool HeadDrafter::StepBlock(Token token) {
  std::vector<Token> block(static_cast<size_t>(hparams_.block_tokens), hparams_.mask_token);
  block.front() = token;
  Sequence& sequence = Internals::SequenceOf(*head_);
  sequence.roll_back().Keep(sequence.next(), {}, /*keeps_windows=*/true, /*lasts=*/false);
  const SequenceStep entry = {.sequence = &sequence,
                              .tokens = block,
                              .logits = SequenceStep::Logits::kAll,
                              .sees_whole_step = true,
                              .reads_all_rows = true};
  block_ = RunStep(sequence.core().get(), {.entries = {&entry, 1}});
  num_taken_of_block_ = 0;
  if (!block_.taken()) return false;
  TruncateHead(num_read_);
  return true;
}

std::span<const float> HeadDrafter::NextOfBlock() {
  if (static_cast<int>(++num_taken_of_block_) >= hparams_.block_tokens) return {};
  return block_.logits(0, num_taken_of_block_);
}

std::span<const float> HeadDrafter::Append(Token guess) {
  if (hparams_.block_tokens > 0) return NextOfBlock();
  if (!Step({&guess, 1}, last_, Logits::kWanted)) return {};
  return logits_;
}

bool HeadDrafter::Step(std::span<const Token> tokens, std::span<const float> rows, Logits logits) {
  if (rows.empty()) return false;
  Sequence& sequence = Internals::SequenceOf(*head_);
  const SequenceStep entry = {.sequence = &sequence,
                              .kind = tokens.size() > 1 ? StepKind::kPrefill : StepKind::kDecode,
                              .tokens = tokens,
                              .hidden_rows = rows,
                              .injects = hparams_.block_tokens > 0};
  const StepResult result = RunStep(
      sequence.core().get(), {.entries = {&entry, 1}, .deferred_logits = logits == Logits::kNone});
  // The status may say that logits are not finite, as those of tokens are that a head never
  // guesses.
  if (!result.taken()) return false;
  if (logits == Logits::kNone) return true;
  const std::span<const float> own = sequence.signals().step().hidden.front();
  last_.assign(own.end() - static_cast<ptrdiff_t>(own.size() / tokens.size()), own.end());
  logits_ = result.logits(0);
  return true;
}

size_t HeadDrafter::memory_bytes() const {
  return rows_.memory_bytes() + head_->page_bytes(Tier::kT0);
}

}  // namespace ebb

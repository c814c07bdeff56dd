#include "src/session/assistant_drafter.h"

#include <array>
#include <new>

#include "src/model/loaded/decoder_graph.h"

namespace ebb {
namespace {

constexpr std::array kRows = {kHeadRows};

}  // namespace

AssistantDrafter::AssistantDrafter(GraphRunner* runner, Sequence* sequence)
    : runner_(*runner),
      sequence_(*sequence),
      rows_(static_cast<size_t>(sequence->core()->model->shape().embed_dim)),
      signals_(sequence->core()->model->shape(), sequence->policy().granularity,
               {.hidden_layers = {kHeadRows}}) {}

void AssistantDrafter::Follow(std::span<const Token> text, const StepSignals& step) {
  rows_.AppendStep(step, kRows);
  rows_.DropBefore(static_cast<Position>(text.size()) - kKeptRows);
}

std::span<const float> AssistantDrafter::Begin(std::span<const Token> text, Token token) {
  position_ = static_cast<Position>(text.size());
  if (rows_.end() != position_ || rows_.begin() == rows_.end()) return {};
  last_ = rows_.Copy(position_ - 1, 1);
  return Step(token);
}

std::span<const float> AssistantDrafter::Step(Token token) try {
  StepWork work = {.tokens = {token},
                   .num_fold_tokens = 1,
                   .rope_positions = {sequence_.rope().Next(position_)},
                   .output_rows = {0}};
  work.sequences.push_back({.sequence = &sequence_,
                            .tokens = work.tokens,
                            .signals = &signals_,
                            .hidden_rows = last_,
                            .cache = &sequence_.cache(),
                            .first = position_});
  signals_.Begin(sequence_.cache(), StepKind::kDecode, position_, 1);
  if (!runner_.Run(work, nullptr).ok()) return {};
  const std::span<const float> own = signals_.step().hidden.front();
  last_.assign(own.begin(), own.end());
  return runner_.logits(0);
} catch (const std::bad_alloc&) {
  return {};
}

}  // namespace ebb

#include "src/policy/scorers/segments.h"

#include <algorithm>
#include <cassert>

namespace ebb {
namespace {

constexpr size_t kFewestToCompare = 3;

}  // namespace

int Segments::Take(StepKind kind) {
  if (all_.empty() || all_.back().kind != kind || all_.back().num_tokens == tau_ ||
      static_cast<size_t>(num_closed_) == all_.size()) {
    all_.push_back({.kind = kind});
  }
  ++all_.back().num_tokens;
  ++num_tokens_;
  return static_cast<int>(all_.size()) - 1;
}

void Segments::AddSignal(float density) {
  assert(!all_.empty());
  all_.back().signal_sum += density;
  ++all_.back().num_signals;
}

bool Segments::CloseIfFull() {
  if (all_.empty() || static_cast<size_t>(num_closed_) == all_.size()) return false;
  const Segment& last = all_.back();
  if (last.kind != StepKind::kDecode || last.num_tokens < tau_) return false;
  all_.back().type = Judge();
  num_closed_ = static_cast<int>(all_.size());
  return true;
}

void Segments::TruncateTo(Position end) {
  while (num_tokens_ > end && !all_.empty()) {
    Segment& last = all_.back();
    const int64_t begin = num_tokens_ - last.num_tokens;
    if (begin >= end) {
      all_.pop_back();
      num_tokens_ = begin;
      continue;
    }
    const int64_t left = end - begin;
    const float signal = last.Signal();
    // Rounds up, so that a segment that had a signal still has one.
    last.num_signals =
        static_cast<int>((last.num_signals * left + last.num_tokens - 1) / last.num_tokens);
    last.signal_sum = signal * static_cast<float>(last.num_signals);
    last.num_tokens = static_cast<int>(left);
    last.type = Thought::kReasoning;
    num_tokens_ = end;
    num_closed_ = std::min(num_closed_, size() - 1);
  }
  num_closed_ = std::min(num_closed_, size());
}

// Returns the type of the last segment by its rank among the full segments of generated tokens,
// itself included.
Thought Segments::Judge() const {
  size_t num_full = 0;
  size_t num_sparser = 0;
  const float signal = all_.back().Signal();
  for (const Segment& segment : all_) {
    if (segment.kind != StepKind::kDecode || segment.num_tokens < tau_) continue;
    ++num_full;
    num_sparser += segment.Signal() < signal ? 1 : 0;
  }
  if (num_full < kFewestToCompare) return Thought::kReasoning;
  if (3 * num_sparser < num_full) return Thought::kTransition;
  return 3 * num_sparser >= 2 * num_full ? Thought::kExecution : Thought::kReasoning;
}

void Segments::Save(StateWriter* to) const {
  to->Number<int32_t>(num_closed_);
  to->Number<uint64_t>(all_.size());
  for (const Segment& segment : all_) {
    to->Number<uint8_t>(segment.kind == StepKind::kDecode ? 1 : 0);
    to->Number<uint8_t>(static_cast<uint8_t>(segment.type));
    to->Number<int32_t>(segment.num_tokens);
    to->Number<float>(segment.signal_sum);
    to->Number<int32_t>(segment.num_signals);
  }
}

Status Segments::Load(StateReader* from) {
  num_closed_ = from->Number<int32_t>();
  num_tokens_ = 0;
  all_.resize(from->Length(14));
  for (Segment& segment : all_) {
    segment.kind = from->Number<uint8_t>() != 0 ? StepKind::kDecode : StepKind::kPrefill;
    const auto type = from->Number<uint8_t>();
    if (type > static_cast<uint8_t>(Thought::kTransition)) from->Fail("a segment of no type");
    segment.type = static_cast<Thought>(type);
    segment.num_tokens = from->Number<int32_t>();
    segment.signal_sum = from->Number<float>();
    segment.num_signals = from->Number<int32_t>();
    if (segment.num_tokens < 1 || segment.num_tokens > tau_) from->Fail("a segment of no length");
    if (segment.num_signals < 0 || segment.num_signals > segment.num_tokens) {
      from->Fail("more signals than tokens");
    }
    num_tokens_ += segment.num_tokens;
  }
  if (num_closed_ < 0 || static_cast<size_t>(num_closed_) > all_.size()) {
    from->Fail("more closed segments than there are");
  }
  if (!from->ok()) {
    all_.clear();
    num_closed_ = 0;
    num_tokens_ = 0;
  }
  return from->status();
}

}  // namespace ebb

// Records the history of each token's tiers as a compact log. The log is a list of records, each a
// head = payload << 2 | kind:
//   kAppend: `payload` tokens are appended, and a new step begins;
//   kMove: rows of group `payload` move; a count follows, then for each token (positions since the
//          last token) << 2 | tier;
//   kForget: every token at position `payload` and later is removed.
// Numbers have 7 bits per byte, lowest first; the top bit is set on all bytes but the last.
#include "ebb/report.h"

#include <algorithm>
#include <cassert>
#include <new>
#include <numeric>
#include <utility>

namespace ebb {
namespace {

enum RecordKind : uint64_t { kAppend = 0, kMove = 1, kForget = 2 };

constexpr int kKindBits = 2;
constexpr uint64_t kKindMask = (1 << kKindBits) - 1;

void PutNumber(uint64_t number, std::vector<uint8_t>* log) {
  for (; number >= 0x80; number >>= 7) log->push_back(static_cast<uint8_t>(number | 0x80));
  log->push_back(static_cast<uint8_t>(number));
}

void PutHead(uint64_t payload, RecordKind kind, std::vector<uint8_t>* log) {
  PutNumber(payload << kKindBits | kind, log);
}

// Appends a whole record or nothing: if memory runs out, the partial record, which could not be
// read back, is removed.
template <typename Put>
void PutRecord(std::vector<uint8_t>* log, const Put& put) {
  const size_t before = log->size();
  try {
    put();
  } catch (const std::bad_alloc&) {
    log->resize(before);
    throw;
  }
}

uint64_t TakeNumber(std::span<const uint8_t>* log) {
  uint64_t number = 0;
  for (int shift = 0;; shift += 7) {
    const uint8_t byte = log->front();
    *log = log->subspan(1);
    number |= uint64_t{byte & 0x7Fu} << shift;
    if (byte < 0x80) return number;
  }
}

size_t Index(Tier tier) { return static_cast<size_t>(tier); }

}  // namespace

// Replay reads the log from its beginning and tracks the tiers of the tokens as they were.
class Ledger::Replay {
 public:
  explicit Replay(const Ledger& ledger) : log_(ledger.log_) {}

  // Reads the next record and appends its events; returns false at the end.
  bool Next(std::vector<LedgerEvent>* events) {
    if (log_.empty()) return false;
    const uint64_t head = TakeNumber(&log_);
    const uint64_t payload = head >> kKindBits;
    switch (head & kKindMask) {
      case kAppend:
        ++step_;
        for (uint64_t i = 0; i < payload; ++i) {
          events->push_back(
              {.kind = LedgerEvent::Kind::kAppended, .step = step_, .position = next_++});
        }
        break;
      case kMove:
        TakeMoves(static_cast<int>(payload), events);
        break;
      case kForget:
        next_ = static_cast<Position>(payload);
        events->push_back(
            {.kind = LedgerEvent::Kind::kForgotten, .step = step_, .position = next_});
        break;
      default:
        assert(false);
    }
    return true;
  }
  [[nodiscard]] int64_t step() const { return step_; }

 private:
  void TakeMoves(int group, std::vector<LedgerEvent>* events) {
    Position position = 0;
    for (uint64_t left = TakeNumber(&log_); left > 0; --left) {
      const uint64_t move = TakeNumber(&log_);
      position += static_cast<Position>(move >> kKindBits);
      events->push_back({.kind = LedgerEvent::Kind::kMoved,
                         .step = step_,
                         .group = group,
                         .position = position,
                         .to = static_cast<Tier>(move & kKindMask)});
    }
  }

  std::span<const uint8_t> log_;
  int64_t step_ = -1;
  Position next_ = 0;
};

Ledger::Ledger(std::vector<int> rows_per_token)
    : rows_per_token_(std::move(rows_per_token)),
      rows_of_all_(std::accumulate(rows_per_token_.begin(), rows_per_token_.end(), int64_t{0})),
      tiers_(rows_per_token_.size()) {}

void Ledger::ReserveTokens(size_t num_tokens) {
  for (std::vector<Tier>& tiers : tiers_) {
    const size_t wanted = tiers.size() + num_tokens;
    if (wanted > tiers.capacity()) tiers.reserve(wanted + wanted / 2);
  }
}

void Ledger::Append(int num_tokens) {
  PutRecord(&log_, [&] { PutHead(static_cast<uint64_t>(num_tokens), kAppend, &log_); });
  ++num_steps_;
  ++num_changes_;
  next_ += num_tokens;
  for (std::vector<Tier>& tiers : tiers_) tiers.resize(next_, Tier::kT0);
  rows_[Index(Tier::kT0)] += num_tokens * rows_of_all_;
}

void Ledger::Move(int group, std::span<const Change> changes) {
  std::vector<Tier>& tiers = tiers_[group];
  const auto changes_tier = [&](const Change& c) { return tiers[c.position] != c.to; };
  const auto count = std::ranges::count_if(changes, changes_tier);
  if (count == 0) return;
  PutRecord(&log_, [&] {
    PutHead(static_cast<uint64_t>(group), kMove, &log_);
    PutNumber(static_cast<uint64_t>(count), &log_);
    Position last = 0;
    for (const Change& change : changes) {
      if (!changes_tier(change)) continue;
      const auto distance = static_cast<uint64_t>(change.position - last);
      PutNumber(distance << kKindBits | Index(change.to), &log_);
      last = change.position;
    }
  });
  for (const Change& change : changes) {
    Tier& tier = tiers[change.position];
    if (tier == change.to) continue;
    rows_[Index(tier)] -= rows_per_token_[group];
    rows_[Index(change.to)] += rows_per_token_[group];
    tier = change.to;
  }
  ++num_changes_;
}

void Ledger::Reconcile(int group, std::span<const Position> positions,
                       std::span<const Tier> tiers) {
  changes_.clear();
  size_t row = 0;
  for (Position position = 0; position < next_; ++position) {
    while (row < positions.size() && positions[row] < position) ++row;
    const bool alive = row < positions.size() && positions[row] == position;
    const Tier now = alive ? tiers[row] : Tier::kT3;
    if (tiers_[group][position] != now) changes_.push_back({position, now});
  }
  Move(group, changes_);
}

void Ledger::TruncateTo(Position end) {
  if (end >= next_) return;
  PutRecord(&log_, [&] { PutHead(static_cast<uint64_t>(end), kForget, &log_); });
  for (size_t group = 0; group < tiers_.size(); ++group) {
    std::vector<Tier>& tiers = tiers_[group];
    for (Position p = end; p < next_; ++p) rows_[Index(tiers[p])] -= rows_per_token_[group];
    tiers.resize(end);
  }
  next_ = end;
  ++num_changes_;
}

Tier Ledger::CommonTier(Position position) const {
  if (tiers_.size() == 1) return tiers_.front()[position];
  std::array<int, kNumTiers> groups = {};
  for (const std::vector<Tier>& tiers : tiers_) ++groups[Index(tiers[position])];
  return static_cast<Tier>(std::ranges::max_element(groups) - groups.begin());
}

size_t Ledger::memory_bytes() const {
  size_t bytes = sizeof(Ledger) + log_.capacity() + changes_.capacity() * sizeof(Change) +
                 tiers_.capacity() * sizeof(tiers_.front());
  for (const std::vector<Tier>& tiers : tiers_) bytes += tiers.capacity() * sizeof(Tier);
  return bytes;
}

void Ledger::ForEach(const std::function<void(const LedgerEvent&)>& visit) const {
  Replay replay(*this);
  std::vector<LedgerEvent> events;
  while (replay.Next(&events)) {
    for (const LedgerEvent& event : events) visit(event);
    events.clear();
  }
}

std::vector<LedgerEvent> Ledger::History(int group, Position position) const {
  std::vector<LedgerEvent> history;
  ForEach([&](const LedgerEvent& event) {
    if (event.kind == LedgerEvent::Kind::kForgotten) {
      if (event.position <= position) history.clear();
    } else if (event.position == position && (event.group < 0 || event.group == group)) {
      history.push_back(event);
    }
  });
  return history;
}

std::vector<Ledger::RowsPerTier> Ledger::RowsByStep() const {
  Ledger past(rows_per_token_);
  std::vector<RowsPerTier> rows(num_steps_);
  Replay replay(*this);
  std::vector<LedgerEvent> events;
  while (replay.Next(&events)) {
    for (const LedgerEvent& event : events) {
      const Change change = {event.position, event.to};
      if (event.kind == LedgerEvent::Kind::kMoved) past.Move(event.group, {&change, 1});
      if (event.kind == LedgerEvent::Kind::kForgotten) past.TruncateTo(event.position);
    }
    if (!events.empty() && events.front().kind == LedgerEvent::Kind::kAppended) {
      past.Append(static_cast<int>(events.size()));
    }
    events.clear();
    if (replay.step() >= 0) rows[replay.step()] = past.rows_;
  }
  return rows;
}

}  // namespace ebb

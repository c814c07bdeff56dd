#include "src/model/sampling/thread_sets.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace ebb {
namespace {

using Op = GrammarInstruction::Kind;

constexpr uint32_t kEmptyList = 0;
constexpr uint32_t kOutermost = 1;              // the list of a thread that returns from "root"
constexpr uint32_t kIsNew = uint32_t{1} << 31;  // `calls` is an index in new_calls_
constexpr int64_t kBehindChars = int64_t{1} << 32;

uint64_t Mixed(uint64_t x) {
  x *= 0x9E3779B97F4A7C15U;
  return x ^ (x >> 32);
}
uint64_t Joined(uint32_t high, uint32_t low) { return (uint64_t{high} << 32) | low; }

uint64_t HashOf(std::span<const ThreadSets::Thread> threads) {
  uint64_t hash = threads.size();
  for (const auto& thread : threads) hash = Mixed(hash ^ Joined(thread.at, thread.calls));
  return hash;
}

}  // namespace

void ThreadSets::Marks::Clear() {
  size_ = 0;
  ++round_;
}

std::pair<uint32_t, bool> ThreadSets::Marks::Insert(uint64_t key, uint32_t value) {
  if (2 * size_ >= slots_.size()) Grow();
  for (size_t i = Mixed(key);; ++i) {
    Slot& slot = slots_[i & (slots_.size() - 1)];
    if (slot.round == round_ && slot.key != key) continue;
    const bool is_new = slot.round != round_;
    if (is_new) {
      slot = {key, value, round_};
      ++size_;
    }
    return {slot.value, is_new};
  }
}

void ThreadSets::Marks::Grow() {
  std::vector<Slot> old(2 * slots_.size());
  old.swap(slots_);
  size_ = 0;
  for (const Slot& slot : old) {
    if (slot.round == round_) Insert(slot.key, slot.value);
  }
}

ThreadSets::ThreadSets(std::shared_ptr<const GrammarProgram> program)
    : program_(std::move(program)) {
  AppendList({});
  constexpr Thread kNowhere = {~uint32_t{0}, ~uint32_t{0}};
  AppendList({&kNowhere, 1});
}

bool ThreadSets::Spend(size_t steps) {
  budget_ -= std::min(budget_, steps);
  return budget_ > 0;
}

std::span<const ThreadSets::Thread> ThreadSets::threads(Set set) const {
  return std::span(pool_).subspan(lists_[set].begin, lists_[set].count);
}

bool ThreadSets::MayEnd(Set set) const {
  // SortSet() puts ends first.
  return lists_[set].count > 0 && pool_[lists_[set].begin].at == 0;
}

ThreadSets::Set ThreadSets::Start() { return Closed({{program_->root, kOutermost}}); }

// Returns the threads from the first one on that accepts `character` or a later character;
// SortSet() has put ends first, then characters in their order, then the rest.
std::span<const ThreadSets::Thread> ThreadSets::ThreadsFrom(Set set, int64_t character) const {
  const auto all = threads(set);
  const auto place = [&](const Thread& thread) {
    const GrammarInstruction& one = InstructionOf(thread);
    return one.kind == Op::kEnd ? -1 : one.kind == Op::kChar ? int64_t{one.value} : kBehindChars;
  };
  const auto first = std::ranges::lower_bound(all, character, {}, place);
  return all.subspan(static_cast<size_t>(first - all.begin()));
}

ThreadSets::Set ThreadSets::Next(Set set, uint32_t char_class) {
  const uint64_t key = Joined(set, char_class);
  if (const auto found = transitions_.find(key); found != transitions_.end()) return found->second;
  const char32_t c = program_->bounds[char_class];
  std::vector<Thread> next;
  for (const Thread& thread : ThreadsFrom(set, c)) {
    const GrammarInstruction& one = InstructionOf(thread);
    if (one.kind != Op::kChar || one.value != c) break;
    next.push_back({thread.at + 1, thread.calls});
  }
  const CharSet* last = nullptr;
  bool takes = false;
  for (const Thread& thread : ThreadsFrom(set, kBehindChars)) {
    const GrammarInstruction& one = InstructionOf(thread);
    if (one.kind != Op::kSet) break;
    const CharSet* const chars = &program_->sets[one.value];
    if (chars != last && !Spend(1)) return kDead;
    if (chars != last) takes = chars->Contains(c);
    last = chars;
    if (takes) next.push_back({thread.at + 1, thread.calls});
  }
  const Set result = Closed(std::move(next));
  if (!is_budget_spent()) transitions_.emplace(key, result);
  return result;
}

ThreadSets::Set ThreadSets::NextByToken(Set set, Token token) {
  std::vector<Thread> next;
  const auto id = static_cast<uint32_t>(token);
  for (const Thread& thread : threads(set)) {
    const GrammarInstruction& one = InstructionOf(thread);
    const bool takes = (one.kind == Op::kToken && one.value == id) ||
                       (one.kind == Op::kNotToken && one.value != id);
    if (takes) next.push_back({thread.at + 1, thread.calls});
  }
  return Closed(std::move(next));
}

ThreadSets::Set ThreadSets::Union(Set a, Set b) {
  std::vector<Thread> both(threads(a).begin(), threads(a).end());
  both.insert(both.end(), threads(b).begin(), threads(b).end());
  return StoreSet(std::move(both));
}

bool ThreadSets::TakesAny(Set set, char32_t first, char32_t last) {
  const auto chars = ThreadsFrom(set, first);
  if (chars.empty()) return false;
  const GrammarInstruction& next = InstructionOf(chars[0]);
  if (next.kind == Op::kChar && next.value <= last) return true;
  const CharSet* seen = nullptr;
  for (const Thread& thread : ThreadsFrom(set, kBehindChars)) {
    const GrammarInstruction& one = InstructionOf(thread);
    if (one.kind != Op::kSet) break;
    const CharSet* const others = &program_->sets[one.value];
    if (std::exchange(seen, others) == others) continue;
    if (!Spend(1)) return false;
    if (others->Meets(first, last)) return true;
  }
  return false;
}

// Follows jumps, calls and returns until each thread is at an instruction that accepts a character
// or a token.
ThreadSets::Set ThreadSets::Closed(std::vector<Thread> threads) {
  if (threads.empty()) return kDead;
  seen_.Clear();
  call_of_.Clear();
  new_calls_.clear();
  queue_.clear();
  for (const Thread& thread : threads) Push(thread.at, thread.calls);
  threads.clear();
  while (!queue_.empty()) {
    if (!Spend(1)) return kDead;
    const Thread thread = queue_.back();
    queue_.pop_back();
    const GrammarInstruction& one = program_->code[thread.at];
    switch (one.kind) {
      case Op::kFork:
        Push(one.value, thread.calls);
        Push(thread.at + 1, thread.calls);
        break;
      case Op::kCall:
        Call(thread);
        break;
      case Op::kEnd:
        if (thread.calls == kOutermost) {
          threads.push_back({0, kEmptyList});
        } else {
          Return(thread.calls);
        }
        break;
      default:
        threads.push_back(thread);
    }
  }
  StoreNewCalls(threads);
  for (Thread& thread : threads) thread = WithStoredCalls(thread);
  return StoreSet(std::move(threads));
}

void ThreadSets::Push(uint32_t at, uint32_t calls) {
  const Thread thread = {program_->Settled(at), calls};
  if (seen_.Insert(Joined(thread.at, calls), 0).second) queue_.push_back(thread);
}

void ThreadSets::Call(const Thread& thread) {
  const uint32_t target = program_->code[thread.at].value;
  const uint32_t behind = program_->Settled(thread.at + 1);
  // After the last call of a rule nothing is left to do, so the call returns directly to the
  // caller's list (tail call). Lists that would refer to themselves at their end thus need no
  // memory.
  if (behind == 0) return Push(target, thread.calls);
  const auto [index, is_new] = call_of_.Insert(target, static_cast<uint32_t>(new_calls_.size()));
  if (is_new) new_calls_.emplace_back();
  NewCall& call = new_calls_[index];
  call.returns.push_back({behind, thread.calls});
  if (call.has_ended) Push(behind, thread.calls);
  if (is_new) Push(target, kIsNew | index);
}

void ThreadSets::Return(uint32_t calls) {
  const bool is_new = (calls & kIsNew) != 0;
  if (is_new) new_calls_[calls & ~kIsNew].has_ended = true;
  const std::span<const Thread> returns =
      is_new ? std::span<const Thread>(new_calls_[calls & ~kIsNew].returns) : threads(calls);
  if (!Spend(returns.size())) return;
  for (const Thread& thread : returns) Push(thread.at, thread.calls);
}

ThreadSets::Thread ThreadSets::WithStoredCalls(Thread thread) const {
  if ((thread.calls & kIsNew) != 0) thread.calls = new_calls_[thread.calls & ~kIsNew].list;
  return thread;
}

void ThreadSets::StoreNewCalls(std::span<const Thread> threads) {
  std::vector<uint32_t> order;
  bool has_circle = false;
  for (const Thread& thread : threads) {
    if ((thread.calls & kIsNew) == 0) continue;
    if (OrderNewCalls(thread.calls & ~kIsNew, &order)) has_circle = true;
  }
  // Calls that depend on each other, such as those of a left-recursive rule, cannot be compared
  // with stored ones, so they are stored without a look-up.
  std::vector<Thread> returns;
  for (const uint32_t index : order) {
    if (has_circle) new_calls_[index].list = AppendList(new_calls_[index].returns);
  }
  for (const uint32_t index : order) {
    NewCall& call = new_calls_[index];
    returns.clear();
    for (const Thread& thread : call.returns) returns.push_back(WithStoredCalls(thread));
    std::ranges::sort(returns);
    if (!has_circle) returns.erase(std::unique(returns.begin(), returns.end()), returns.end());
    if (has_circle) {
      std::ranges::copy(returns, pool_.begin() + static_cast<ptrdiff_t>(lists_[call.list].begin));
    } else {
      call.list = StoreList(returns);
    }
  }
}

bool ThreadSets::OrderNewCalls(uint32_t root, std::vector<uint32_t>* order) {
  bool has_circle = false;
  std::vector<std::pair<uint32_t, size_t>> path;  // calls, and the next return of each
  const auto enter = [&](uint32_t index) {
    NewCall& call = new_calls_[index];
    if (call.state == NewCall::State::kOpen) has_circle = true;
    if (call.state != NewCall::State::kUnseen) return;
    call.state = NewCall::State::kOpen;
    path.emplace_back(index, 0);
  };
  enter(root);
  while (!path.empty()) {
    auto& [index, next] = path.back();
    NewCall& call = new_calls_[index];
    if (next == call.returns.size()) {
      call.state = NewCall::State::kDone;
      order->push_back(index);
      path.pop_back();
      continue;
    }
    const uint32_t calls = call.returns[next++].calls;
    if ((calls & kIsNew) != 0) enter(calls & ~kIsNew);
  }
  return has_circle;
}

// Sorts threads: ends come first, then characters in their order, then sets of characters, then
// tokens.
void ThreadSets::SortSet(std::vector<Thread>* threads) const {
  const auto key = [&](const Thread& thread) {
    const GrammarInstruction& one = InstructionOf(thread);
    return std::tuple(one.kind, one.value, thread.at, thread.calls);
  };
  std::ranges::sort(*threads, {}, key);
  threads->erase(std::unique(threads->begin(), threads->end()), threads->end());
}

ThreadSets::Set ThreadSets::StoreSet(std::vector<Thread> threads) {
  SortSet(&threads);
  return StoreList(threads);
}

uint32_t ThreadSets::StoreList(std::span<const Thread> sorted) {
  if (sorted.empty()) return kEmptyList;
  const auto [begin, end] = lists_by_hash_.equal_range(HashOf(sorted));
  for (auto found = begin; found != end; ++found) {
    if (std::ranges::equal(threads(found->second), sorted)) return found->second;
  }
  const uint32_t list = AppendList(sorted);
  lists_by_hash_.emplace(HashOf(sorted), list);
  return list;
}

uint32_t ThreadSets::AppendList(std::span<const Thread> sorted) {
  lists_.push_back({pool_.size(), sorted.size()});
  pool_.insert(pool_.end(), sorted.begin(), sorted.end());
  return static_cast<uint32_t>(lists_.size() - 1);
}

ThreadSets::Set ThreadSets::CopyFrom(const ThreadSets& other, Set set) {
  std::vector<uint32_t> reached = {set};
  std::unordered_map<uint32_t, uint32_t> copies = {{kEmptyList, kEmptyList},
                                                   {kOutermost, kOutermost}};
  const auto first = static_cast<uint32_t>(lists_.size());
  if (!copies.emplace(set, first).second) return set;
  for (size_t i = 0; i < reached.size(); ++i) {
    for (const Thread& thread : other.threads(reached[i])) {
      const auto copy = first + static_cast<uint32_t>(reached.size());
      if (copies.emplace(thread.calls, copy).second) reached.push_back(thread.calls);
    }
  }
  std::vector<Thread> list;
  for (size_t i = 0; i < reached.size(); ++i) {
    list.clear();
    for (const Thread& thread : other.threads(reached[i])) {
      list.push_back({thread.at, copies.at(thread.calls)});
    }
    i == 0 ? SortSet(&list) : static_cast<void>(std::ranges::sort(list));
    lists_by_hash_.emplace(HashOf(list), AppendList(list));
  }
  return first;
}

}  // namespace ebb

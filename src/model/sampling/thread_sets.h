// Stores the sets of threads that run a grammar's program. A thread is at an instruction, with a
// stack of calls to which it returns. Threads share common calls as a graph (a graph-structured
// stack, as in generalized LL parsing), so that the number of threads grows with the grammar and
// the length of the answer, and not with the number of ways to parse it. Equal sets, lists of
// calls, and transitions between sets are stored once, so that a character costs one look-up where
// an answer repeats a set, as within a string.
#ifndef EBB_MODEL_SAMPLING_THREAD_SETS_H_
#define EBB_MODEL_SAMPLING_THREAD_SETS_H_

#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ebb/types.h"
#include "src/model/sampling/grammar_program.h"

namespace ebb {

class ThreadSets {
 public:
  struct Thread {
    uint32_t at = 0;     // instruction that takes a character or a token; 0: the grammar ends
    uint32_t calls = 0;  // a stored list: where this call returns to, with the calls around it
    auto operator<=>(const Thread&) const = default;
  };
  // Set identifies a stored set of grammar threads by its number. Equal sets have the same number,
  // so comparing two numbers compares the sets.
  using Set = uint32_t;
  static constexpr Set kDead = 0;

  explicit ThreadSets(std::shared_ptr<const GrammarProgram> program);

  // Returns the set at the beginning of the grammar. Like all functions that make sets, returns
  // kDead if the budget is spent.
  [[nodiscard]] Set Start();
  // Returns the set after a code point of this class.
  [[nodiscard]] Set Next(Set set, uint32_t char_class);
  // Returns the set after a token that instructions name.
  [[nodiscard]] Set NextByToken(Set set, Token token);
  [[nodiscard]] Set Union(Set a, Set b);
  // Copies a set of another object with the same program, including its calls.
  [[nodiscard]] Set CopyFrom(const ThreadSets& other, Set set);

  [[nodiscard]] std::span<const Thread> threads(Set set) const;
  [[nodiscard]] bool MayEnd(Set set) const;
  // Returns whether a thread accepts some code point from `first` to `last`.
  [[nodiscard]] bool TakesAny(Set set, char32_t first, char32_t last);
  [[nodiscard]] const GrammarInstruction& InstructionOf(const Thread& thread) const {
    return program_->code[thread.at];
  }

  // Sets the budget of the coming calls, in threads visited; each takes some tens of nanoseconds.
  void SetBudget(size_t steps) { budget_ = steps; }
  // Takes `steps` from the budget. Returns whether any is left.
  bool Spend(size_t steps);
  [[nodiscard]] size_t budget() const { return budget_; }
  [[nodiscard]] bool is_budget_spent() const { return budget_ == 0; }
  // Returns how many elements are stored, of some 16 bytes each.
  [[nodiscard]] size_t num_stored() const {
    return pool_.size() + 2 * lists_.size() + 2 * transitions_.size();
  }

 private:
  // Marks is a map that can be cleared in constant time.
  class Marks {
   public:
    void Clear();
    // Inserts a key with `value` unless it exists. Returns its value and whether it is new.
    std::pair<uint32_t, bool> Insert(uint64_t key, uint32_t value);

   private:
    struct Slot {
      uint64_t key = 0;
      uint32_t value = 0;
      uint32_t round = 0;
    };
    void Grow();
    std::vector<Slot> slots_ = std::vector<Slot>(64);
    size_t size_ = 0;
    uint32_t round_ = 1;
  };
  // NewCall is a call that began at the current character and has no stored list yet.
  struct NewCall {
    std::vector<Thread> returns;
    bool has_ended = false;
    uint32_t list = 0;
    enum class State : uint8_t { kUnseen, kOpen, kDone } state = State::kUnseen;
  };
  struct List {
    size_t begin = 0;
    size_t count = 0;
  };

  // Returns the set's threads that accept characters from `character` on, followed by those that
  // accept something else.
  [[nodiscard]] std::span<const Thread> ThreadsFrom(Set set, int64_t character) const;
  [[nodiscard]] Set Closed(std::vector<Thread> threads);
  void Push(uint32_t at, uint32_t calls);
  void Call(const Thread& thread);
  void Return(uint32_t calls);
  void StoreNewCalls(std::span<const Thread> threads);
  // Appends the new calls on which `root` depends to `order`, each after the calls on which it
  // depends. Returns whether some depend on each other.
  bool OrderNewCalls(uint32_t root, std::vector<uint32_t>* order);
  [[nodiscard]] Thread WithStoredCalls(Thread thread) const;
  [[nodiscard]] Set StoreSet(std::vector<Thread> threads);
  [[nodiscard]] uint32_t StoreList(std::span<const Thread> sorted);
  uint32_t AppendList(std::span<const Thread> sorted);
  void SortSet(std::vector<Thread>* threads) const;

  std::shared_ptr<const GrammarProgram> program_;
  size_t budget_ = 0;
  std::vector<Thread> pool_;
  std::vector<List> lists_;
  std::unordered_multimap<uint64_t, uint32_t> lists_by_hash_;
  std::unordered_map<uint64_t, Set> transitions_;  // by set and class
  // queue_ and the next members are scratch memory of Closed().
  std::vector<Thread> queue_;
  Marks seen_;
  Marks call_of_;  // by the instruction that the call begins with
  std::vector<NewCall> new_calls_;
};

}  // namespace ebb

#endif  // EBB_MODEL_SAMPLING_THREAD_SETS_H_

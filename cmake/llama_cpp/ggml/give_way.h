// Waiting that gives way: a thread looks at a word for a moment, then sleeps until it changes.
//
// A thread that waits by looking alone burns the very time slice that the thread it waits for needs
// as soon as another program shares their processors. The moment is longer than any wait on an idle
// machine, where sleeping and waking would cost 20 us, and short beside a time slice of milliseconds.
//
// No wake-up is lost: who waits counts itself asleep before the kernel compares the word once more, and
// who changes the word looks at the count after that; all in one order (seq_cst).
#ifndef EBB_GIVE_WAY_H
#define EBB_GIVE_WAY_H

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

// How often the word is read between two readings of the clock: about 2 us. (ARM's hint to a waiting
// thread takes no time.)
#if defined(__x86_64__)
#define GIVE_WAY_LOOKS 32
#else
#define GIVE_WAY_LOOKS 512
#endif
#define GIVE_WAY_LOOK_NS 50000  // within a graph

static inline int64_t give_way_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t) now.tv_sec * 1000000000 + now.tv_nsec;
}

// Sleeps unless the word's 32 bits are others by now.
static inline void give_way_sleep(const void * word, uint32_t seen) {
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

static inline void give_way_wake(const void * word) {
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

// A word that threads wait for.
struct give_way_word {
    atomic_int value;
    atomic_int asleep;  // threads that may sleep on it
};

// Waits until the value is not `seen`; sleeps once `look_ns` are over.
static inline void give_way_wait(struct give_way_word * word, int seen, int64_t look_ns) {
    int64_t end = 0;
    while (true) {
        for (int i = 0; i < GIVE_WAY_LOOKS; ++i) {
            if (atomic_load_explicit(&word->value, memory_order_acquire) != seen) { return; }
            ggml_thread_cpu_relax();
        }
        const int64_t now = give_way_now_ns();
        if (end == 0) { end = now + look_ns; }
        if (now < end) { continue; }
        atomic_fetch_add_explicit(&word->asleep, 1, memory_order_seq_cst);
        give_way_sleep(&word->value, (uint32_t) seen);
        atomic_fetch_sub_explicit(&word->asleep, 1, memory_order_seq_cst);
    }
}

// Ends the waits for this value.
static inline void give_way_raise(struct give_way_word * word) {
    atomic_fetch_add_explicit(&word->value, 1, memory_order_seq_cst);
    if (atomic_load_explicit(&word->asleep, memory_order_seq_cst) != 0) { give_way_wake(&word->value); }
}

#endif  // EBB_GIVE_WAY_H

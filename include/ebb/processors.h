// How many compute threads there is room for: what `threads == 0` means in every options struct.
// Three things limit it:
//
// - The affinity mask (`taskset`, cpusets): the hardware threads that this thread may run on.
// - SMT: hardware threads of one core share its arithmetic units and caches, so they count once.
// - The CPU quota of the process's control group or of one above it (containers, systemd): the
//   processor time that all threads together may use. It is rounded up: with a quota of 1.5
//   processors two threads do the work of 1.5, since a thread that waits for another sleeps. With a
//   quota of 1.0 a second thread would only make the first one wait.
//
// Thread safety: the functions may be called from any thread. Each call asks the system anew:
// AvailableProcessors() reads a few small files and one for each hardware thread. Neither fails; a
// limit that cannot be read is none.
#ifndef EBB_PROCESSORS_H_
#define EBB_PROCESSORS_H_

#include <vector>

namespace ebb {

struct Processors {
  int hardware_threads = 1;  // in the affinity mask
  int cores = 1;             // that these hardware threads belong to
  double quota = 0;          // in processors: 1.5 is 1.5 s of processor time a second; 0: no limit
  int threads = 1;           // min(cores, quota rounded up)
};
[[nodiscard]] Processors AvailableProcessors();

// The numbers of the hardware threads in the affinity mask, ascending; at least one.
[[nodiscard]] std::vector<int> AllowedCpus();

}  // namespace ebb

#endif  // EBB_PROCESSORS_H_

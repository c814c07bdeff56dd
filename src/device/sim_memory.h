// The memory of a simulated device: one range of addresses that the host cannot touch but in calls
// of the device. A stray access dies. Where the processor has protection keys, a call opens the
// range to its own thread alone; elsewhere to the whole process, while any thread is in a call.
//
// Thread safety: Open() and Close() may be called by several threads; the rest by one at a time.
#ifndef EBB_DEVICE_SIM_MEMORY_H_
#define EBB_DEVICE_SIM_MEMORY_H_

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>

#include "ebb/status.h"

namespace ebb {

class SimMemory {
 public:
  // `num_bytes` is rounded up to kDeviceMemoryStep. Addresses alone are taken from the system.
  // ResourceExhausted when it refuses them, as under a limit on addresses or data.
  static Result<std::unique_ptr<SimMemory>> Create(size_t num_bytes);
  ~SimMemory();
  SimMemory(const SimMemory&) = delete;
  SimMemory& operator=(const SimMemory&) = delete;

  // A multiple of kDeviceMemoryStep. ResourceExhausted when no free range is as long.
  Result<std::byte*> Allocate(size_t num_bytes);
  Status Free(std::byte* memory, size_t num_bytes);
  [[nodiscard]] size_t used_bytes() const { return used_bytes_; }

  // Opens the memory to this thread; returns what Close() is to be given.
  int Open();
  void Close(int before);

 private:
  SimMemory() = default;
  // False, with errno set, where the system does not let the memory be opened.
  bool Protect();

  std::byte* reserved_ = nullptr;  // with a step more than `size_`, for alignment
  std::byte* base_ = nullptr;
  size_t size_ = 0;
  size_t used_bytes_ = 0;
  std::map<size_t, size_t> free_;  // offset: length; neighbours are joined
  int key_ = -1;                   // a protection key; -1: none
  std::mutex mutex_;
  int num_open_ = 0;  // calls under way, where there is no key
};

}  // namespace ebb

#endif  // EBB_DEVICE_SIM_MEMORY_H_

// The bytes of a simulated device's copies, and when they arrive: at the latest moment that a wait
// allows, at once, or from a thread per direction after random delays.
//
// Thread safety: Add() and Arrive() may be called by several threads.
#ifndef EBB_DEVICE_SIM_COPIES_H_
#define EBB_DEVICE_SIM_COPIES_H_

#include <array>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <random>
#include <span>
#include <thread>
#include <vector>

#include "ebb/device.h"
#include "ebb/status.h"
#include "src/device/device.h"
#include "src/device/sim_memory.h"

namespace ebb {

class SimCopies {
 public:
  // REQUIRES: the memory outlives the copies.
  SimCopies(SimMemory* memory, CopyArrival arrival);
  ~SimCopies();
  SimCopies(const SimCopies&) = delete;
  SimCopies& operator=(const SimCopies&) = delete;

  enum class Outcome : uint8_t { kArrives, kFails };
  // Copy `number` of a direction, after all lower ones of it.
  void Add(DeviceQueue queue, uint64_t number, std::span<const CopyPart> parts, Outcome outcome);
  // The direction's later copies begin after the event, which is of the other direction.
  void AddWait(DeviceQueue queue, const DeviceEvent& event);
  // Returns once all copies of the direction up to `number` have ended: whether the last of them
  // went well.
  Status Arrive(DeviceQueue queue, uint64_t number);

 private:
  static constexpr int kDirections = 2;
  struct Pending {
    uint64_t number = 0;
    std::vector<CopyPart> parts;
    Outcome outcome = Outcome::kArrives;
    uint64_t after = 0;  // a copy of the other direction
  };
  static size_t Index(DeviceQueue queue) { return static_cast<size_t>(queue); }
  // Whether all copies of the direction up to `number` have ended.
  [[nodiscard]] bool IsOver(size_t direction, uint64_t number) const {
    return pending_[direction].empty() || pending_[direction].front().number > number;
  }
  void CopyBytes(const Pending& copy);
  // REQUIRES: mutex_ is held.
  void ArriveNow(size_t direction, uint64_t number);
  void End(size_t direction, const Pending& copy);
  void RunThread(size_t direction, uint32_t seed);

  SimMemory* const memory_;
  const CopyArrival arrival_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ends_ = false;
  std::array<std::deque<Pending>, kDirections> pending_;
  std::array<uint64_t, kDirections> after_ = {};                // for the next copy
  std::array<std::map<uint64_t, size_t>, kDirections> failed_;  // number: bytes
  std::array<std::thread, kDirections> threads_;
};

}  // namespace ebb

#endif  // EBB_DEVICE_SIM_COPIES_H_

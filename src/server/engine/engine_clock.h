// EngineClock measures the seconds since the driver began, for all components on the engine's
// thread.
#ifndef EBB_SERVER_ENGINE_ENGINE_CLOCK_H_
#define EBB_SERVER_ENGINE_ENGINE_CLOCK_H_

#include <chrono>

namespace ebb::server {

class EngineClock {
 public:
  using Steady = std::chrono::steady_clock;

  [[nodiscard]] double Now() const {
    return std::chrono::duration<double>(Steady::now() - origin_).count();
  }
  [[nodiscard]] Steady::time_point At(double seconds) const {
    return origin_ +
           std::chrono::duration_cast<Steady::duration>(std::chrono::duration<double>(seconds));
  }

 private:
  const Steady::time_point origin_ = Steady::now();
};

}  // namespace ebb::server

#endif  // EBB_SERVER_ENGINE_ENGINE_CLOCK_H_

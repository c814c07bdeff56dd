// Tells the user once each that rows are rounded from now on, that rows are evicted for good, and
// that the disk slows the steps down, with the option that caused it.
#ifndef EBB_APPS_TIER_NOTICES_H_
#define EBB_APPS_TIER_NOTICES_H_

#include <functional>
#include <string>
#include <string_view>

#include "apps/common/options/options.h"
#include "ebb/engine.h"

namespace ebb::cli {

// TierNotices announces, once each, that rows were compressed, that rows were evicted, and that
// T1's file slows the steps down.
class TierNotices {
 public:
  // Holds on to `options`, with which the session was opened; they must outlive the notices.
  explicit TierNotices(const CliOptions& options) : options_(&options) {}

  struct Announcement {
    std::string_view about;  // "t2", "t3", "t1_disk"
    std::string sentence;
  };
  using Say = std::function<void(const Announcement&)>;
  // Checks the report of a step and passes new announcements to `say`. Call it after every step.
  void OnStep(const StepReport& step, const Say& say);

  // kDiskBoundShare and kDiskBoundSteps define when T1 is announced as bound by the disk: waiting
  // for its file took more than this share of the time of so many decode steps.
  static constexpr double kDiskBoundShare = 0.5;
  static constexpr int kDiskBoundSteps = 32;

 private:
  void LookAtWaits(const StepReport& step, const Say& say);
  [[nodiscard]] std::string CauseOf(std::string_view option) const;

  const CliOptions* options_;
  bool said_t2_ = false;
  bool said_t3_ = false;
  bool said_disk_ = false;
  int steps_ = 0;  // of the present window
  double wait_seconds_ = 0;
  double step_seconds_ = 0;
};

// Returns the announcement as a sentence, or with --json as a line of JSON.
[[nodiscard]] std::string AnnouncementText(const TierNotices::Announcement& announcement,
                                           const CliOptions& options);
// Writes the announcement as a line to stderr, unless --quiet was given. Errors: with --json, a
// stderr that cannot be written, since a program reads it.
[[nodiscard]] Status Announce(const TierNotices::Announcement& announcement,
                              const CliOptions& options);

}  // namespace ebb::cli

#endif  // EBB_APPS_TIER_NOTICES_H_

// Says once what a user should know of the tiers: that rows are rounded from now on, that rows are
// gone for good, that the disk holds the steps up; each with the option that made it so.
#ifndef EBB_APPS_TERMINAL_TIER_NOTICES_H_
#define EBB_APPS_TERMINAL_TIER_NOTICES_H_

#include <functional>
#include <string>
#include <string_view>

#include "apps/common/options/options.h"
#include "ebb/engine.h"

namespace ebb::cli {

class TierNotices {
 public:
  // `options` as the session was opened with them, which outlive the notices.
  explicit TierNotices(const CliOptions& options) : options_(&options) {}

  struct Announcement {
    std::string_view about;  // "t2", "t3", "t1_disk"
    std::string sentence;
  };
  using Say = std::function<void(const Announcement&)>;
  // After every step.
  void OnStep(const StepReport& step, const Say& say);

  // T1 holds the steps up when waiting for its file takes more than this share of so many steps.
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

// For people, or as a line of JSON with --json.
[[nodiscard]] std::string AnnouncementText(const TierNotices::Announcement& announcement,
                                           const CliOptions& options);

}  // namespace ebb::cli

#endif  // EBB_APPS_TERMINAL_TIER_NOTICES_H_

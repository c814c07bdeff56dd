#include "apps/common/tier_notices.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "apps/common/terminal/output.h"
#include "apps/common/terminal/say.h"

namespace ebb::cli {
namespace {

std::string Percent(double share) { return fmt::format("{:g}%", share * 100); }

}  // namespace

// Returns the option that caused a notice; says so if --memory chose it instead of the user.
std::string TierNotices::CauseOf(std::string_view option) const {
  if (options_->fit.chosen) return fmt::format("{}, chosen for --memory", option);
  return std::string(option);
}

void TierNotices::OnStep(const StepReport& step, const Say& say) {
  if (options_->session.lossless.has_value()) return;  // nothing is lost, and T1 is read as meant
  const PolicySpec& policy = options_->session.policy;
  const auto& engine_tiers = options_->engine.tiers;
  if (!said_t2_ && step.moves.rows_compressed > 0 && policy.tiers.has_value()) {
    said_t2_ = true;
    const std::string_view type = CompressedTypeName(*engine_tiers->t2_type);
    const std::string rows =
        CompressesOldRows(policy.tiers) ? std::string("old") : Percent(policy.tiers->t2_share);
    const std::string option = fmt::format("--t2 {}:{}", rows, type);
    say({"t2", fmt::format("the first rows went to T2 and are rounded to {} from now on ({})", type,
                           CauseOf(option))});
  }
  // With the full cache, rows are evicted only from the model's own sliding windows, which is no
  // loss to announce.
  const bool is_full = policy.name == "full" && !policy.tiers.has_value();
  if (!said_t3_ && step.rows_evicted > 0 && !is_full) {
    said_t3_ = true;
    std::string option = fmt::format("--policy {}", policy.name);
    if (policy.tiers.has_value() && !EvictsByItself(policy)) {
      // Without --evict, rows are evicted because the caps of the tiers have no room for them.
      const double share = policy.tiers->evict_share;
      option = CauseOf(share > 0 ? fmt::format("--evict {}", Percent(share))
                                 : std::string("the caps of --t0 and --t1"));
    } else if (policy.budget.unit != Budget::Unit::kNone) {
      option += fmt::format(", --budget of {}", FormatBudget(policy.budget));
    }
    say({"t3", fmt::format("the first rows were evicted, for good ({})", option)});
  }
  if (!said_disk_ && step.kind == StepKind::kDecode) LookAtWaits(step, say);
}

void TierNotices::LookAtWaits(const StepReport& step, const Say& say) {
  wait_seconds_ += step.io_wait_seconds;
  step_seconds_ += step.compute_seconds + step.policy_seconds;
  if (++steps_ < kDiskBoundSteps) return;
  const double share = step_seconds_ > 0 ? wait_seconds_ / step_seconds_ : 0;
  steps_ = 0;
  wait_seconds_ = step_seconds_ = 0;
  if (share <= kDiskBoundShare) return;
  said_disk_ = true;
  say({"t1_disk",
       fmt::format("T1 is bound by the disk: {:.0f} % of the last {} steps went into waiting for "
                   "its file ({}); a larger --t0 makes them faster",
                   share * 100, kDiskBoundSteps, CauseOf("--t1 file"))});
}

std::string AnnouncementText(const TierNotices::Announcement& announcement,
                             const CliOptions& options) {
  if (!options.json) return fmt::format("ebb: {}", announcement.sentence);
  const nlohmann::ordered_json record = {{"announcement", announcement.about},
                                         {"sentence", announcement.sentence}};
  return record.dump();
}

Status Announce(const TierNotices::Announcement& announcement, const CliOptions& options) {
  if (options.quiet) return OkStatus();
  const std::string text = AnnouncementText(announcement, options) + "\n";
  if (options.json) return WriteToStderr(text);
  SayText(text);
  return OkStatus();
}

}  // namespace ebb::cli

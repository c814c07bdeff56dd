#include "apps/bench/file.h"

#include <fmt/format.h>

#include <algorithm>

namespace ebb::cli {
namespace {

constexpr size_t kRequestBytes = size_t{1} << 20;

}  // namespace

Status FileSpeed::After(int steps, double tokens_per_s, const Engine& engine,
                        const Session& session) {
  const auto& tiers = engine.options().tiers;
  if (!tiers.has_value() || tiers->t1 != T1Place::kFile) return OkStatus();
  const TierAccounting t1 = session.accounting().tiers[static_cast<int>(Tier::kT1)];
  if (t1.page_bytes == 0) return OkStatus();
  bytes_per_step_ = t1.page_bytes;
  dead_share_ = 1 - static_cast<double>(t1.row_bytes) / static_cast<double>(t1.page_bytes);
  if (raw_ == nullptr) {
    // The engine has one layer's requests in flight at a time, so that the raw reads have as many.
    const size_t layer_bytes =
        t1.page_bytes / static_cast<size_t>(engine.model().shape().num_layers);
    EBB_ASSIGN_OR_RETURN(raw_,
                         FileReadBenchmark::Create(
                             {.folder = tiers->t1_path,
                              .bytes = t1.page_bytes,
                              .request_bytes = kRequestBytes,
                              .under_way = static_cast<int>(layer_bytes / kRequestBytes) + 1}));
  }
  double seconds_per_gb = 0;
  for (int step = 0; step < steps; ++step) {
    EBB_ASSIGN_OR_RETURN(const double gb_s, raw_->ReadOnce());
    seconds_per_gb += 1 / (gb_s * steps);
  }
  gb_s_.push_back(static_cast<double>(t1.page_bytes) * tokens_per_s * 1e-9);
  raw_gb_s_.push_back(1 / seconds_per_gb);
  shares_.push_back(gb_s_.back() / raw_gb_s_.back());
  return OkStatus();
}

Json FileSpeed::Record() const {
  if (shares_.empty()) return Json();
  return {{"bytes_per_step", bytes_per_step_},
          {"dead_share", dead_share_},
          {"read_gb_s", ToJson(SpreadOf(gb_s_))},
          {"raw_gb_s", ToJson(SpreadOf(raw_gb_s_))},
          {"share_of_raw", ToJson(SpreadOf(shares_))}};
}

std::string FileSpeed::Text() const {
  if (shares_.empty()) return "";
  return fmt::format("; T1 is read at {} GB/s, {} of raw reads", ToText(SpreadOf(gb_s_)),
                     ToText(SpreadOf(shares_)));
}

}  // namespace ebb::cli

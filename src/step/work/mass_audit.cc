#include "src/step/work/mass_audit.h"

#include <cmath>
#include <limits>
#include <numeric>

namespace ebb {
namespace {

// The interval is prime, so that samples meet every place within a page.
constexpr Position kInterval = 17;

}  // namespace

MassAudit::MassAudit(const ModelShape& shape) : shape_(shape), key_(shape.head_dim) {}

// Chooses the head by multiples of the golden ratio modulo 1, which are spread evenly, however many
// there are.
std::optional<MassAudit::Sample> MassAudit::At(Position position) const {
  if (position % kInterval != 0) return std::nullopt;
  constexpr double kGoldenRatio = 0.6180339887498949;
  double whole = 0;
  const double place = std::modf(kGoldenRatio * (position / kInterval), &whole);
  const auto head = static_cast<int>(place * shape_.num_layers * shape_.num_q_heads);
  const int layer = head / shape_.num_q_heads, query_head = head % shape_.num_q_heads;
  if (shape_.NumKvHeads(layer) == 0) return std::nullopt;
  const int per_kv_head = shape_.num_q_heads / shape_.NumKvHeads(layer);
  return Sample{
      .layer = layer, .kv_head = query_head / per_kv_head, .query_head = query_head % per_kv_head};
}

void MassAudit::Add(const Input& in) {
  const size_t dim = key_.size();
  const size_t stride = in.shape.format.RowStride();
  // `all` and `unread` are sums of exp(logit - largest).
  double largest = -std::numeric_limits<double>::infinity(), all = 0, unread = 0;
  const auto add = [&](double logit, bool is_read) {
    if (!std::isfinite(logit)) return;
    if (logit > largest) {
      const double factor = std::exp(largest - logit);
      all *= factor;
      unread *= factor;
      largest = logit;
    }
    const double mass = std::exp(logit - largest);
    all += mass;
    if (!is_read) unread += mass;
  };
  const auto logit_of = [&](const float* key) {
    const double logit = double{in.shape.scale} * std::inner_product(key, key + dim, in.q, 0.0f);
    const double cap = in.shape.soft_cap;
    return cap == 0 ? logit : cap * std::tanh(logit / cap);
  };
  add(in.sink, /*is_read=*/true);
  const size_t newest = in.rows.slots.size() - 1;
  auto range = in.chosen.begin();
  for (size_t row = 0; row < newest; ++row) {
    while (range != in.chosen.end() && range->end <= row) ++range;
    const bool is_read = range != in.chosen.end() && range->begin <= row;
    const Slot slot = in.rows.slots[row];
    in.kernel->load_row(in.shape.format.type, in.rows.pages[slot.page()] + slot.row() * stride,
                        key_.data(), static_cast<int>(dim));
    add(logit_of(key_.data()), is_read);
  }
  add(logit_of(in.newest_key), /*is_read=*/true);
  if (all <= 0) return;
  ++num_samples_;
  sum_ += unread / all;
}

}  // namespace ebb

#include "apps/lab/profile/transfers.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "ebb/benchmark.h"

namespace ebb::cli {
namespace {

constexpr int kRepetitions = 3;
constexpr int kFactor = 4;  // between two measured numbers of tokens

// Order names the tokens that the placement moves in the next step, and their new tier.
struct Order {
  int first = 0;
  int tokens = 0;
  Tier to = Tier::kT0;
};

class OrderedPlacement : public Placement {
 public:
  explicit OrderedPlacement(std::shared_ptr<const Order> order) : order_(std::move(order)) {}
  std::string Name() const override { return "ordered"; }
  bool NeedsScores() const override { return false; }
  bool Due(const PlacementInput&, size_t) const override { return order_->tokens > 0; }
  void Place(const PlacementInput& input, std::vector<Move>* moves) override {
    const size_t end = std::min<size_t>(order_->first + order_->tokens, input.positions.size());
    for (auto row = static_cast<uint32_t>(order_->first); row < end; ++row) {
      moves->push_back({row, order_->to});
    }
  }

 private:
  std::shared_ptr<const Order> order_;
};

std::vector<int> Counts(int most) {
  std::vector<int> counts;
  for (int count = 1; count < most; count *= kFactor) counts.push_back(count);
  if (most > 0) counts.push_back(most);
  return counts;
}

Result<MoveAccounting> Carry(Session* session, Order* order, const Order& now) {
  *order = now;
  const Status status = session->Decode(session->tokens().back()).status;
  order->tokens = 0;
  EBB_RETURN_IF_ERROR(status);
  return session->last_step().moves;
}

// Moves `tokens` tokens to the tier and back, kRepetitions times, and appends the median times.
Status Measure(Session* session, Order* order, int tokens, Tier tier,
               std::vector<Transfer>* transfers) {
  std::vector<double> down_seconds, up_seconds;
  MoveAccounting down, up;
  for (int i = 0; i < kRepetitions; ++i) {
    EBB_ASSIGN_OR_RETURN(down, Carry(session, order, {kTransferStay, tokens, tier}));
    EBB_ASSIGN_OR_RETURN(up, Carry(session, order, {kTransferStay, tokens, Tier::kT0}));
    down_seconds.push_back(down.seconds_down);
    up_seconds.push_back(up.seconds_up);
  }
  transfers->push_back({Tier::kT0, tier, tokens, down.bytes_down, SpreadOf(down_seconds).median});
  transfers->push_back({tier, Tier::kT0, tokens, up.bytes_up, SpreadOf(up_seconds).median});
  return OkStatus();
}

}  // namespace

Result<std::vector<Transfer>> MeasureTransfers(Engine& engine, std::span<const Token> tokens,
                                               std::span<const Tier> tiers,
                                               const std::atomic<bool>* cancel) {
  std::vector<Transfer> transfers;
  if (tokens.size() <= kTransferStay || tiers.empty()) return transfers;
  const auto order = std::make_shared<Order>();
  SessionOptions options;
  options.make_policy = [order](const PolicyContext& context) -> Result<Policy> {
    EBB_ASSIGN_OR_RETURN(Policy policy, MakePolicy({}, context));
    policy.name = "ordered moves";
    policy.placement = std::make_unique<OrderedPlacement>(order);
    return policy;
  };
  EBB_ASSIGN_OR_RETURN(const std::unique_ptr<Session> session, engine.OpenSession(options));
  EBB_RETURN_IF_ERROR(
      session->Prefill(tokens, {.cancel = cancel, .progress = {}, .on_logits = {}}).status);
  for (const Tier tier : tiers) {
    // Keeps some tokens in each tier: a tier that a move empties returns its memory to the system,
    // and getting it again would count as part of the move.
    EBB_RETURN_IF_ERROR(Carry(session.get(), order.get(), {0, kTransferStay, tier}).status());
    for (const int count : Counts(static_cast<int>(tokens.size()) - kTransferStay)) {
      if (cancel != nullptr && *cancel) return Cancelled("interrupted");
      EBB_RETURN_IF_ERROR(Measure(session.get(), order.get(), count, tier, &transfers));
    }
  }
  return transfers;
}

}  // namespace ebb::cli

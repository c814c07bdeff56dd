#include "src/sequence/checkpoint_plan.h"

#include <algorithm>

namespace ebb {
namespace {

// kLeastGap is the least distance of control tokens that end different messages; closer ones end
// the same message.
constexpr size_t kLeastGap = 4;
constexpr int kLastMessages = 2;
// kNearEnd is the distance to the end of a prompt within which a checkpoint also serves the same
// prompt again.
constexpr size_t kNearEnd = 16;
// kMostPlanned counts the end of the first message, the beginnings of the last ones, and the
// position near the end.
constexpr size_t kMostPlanned = kLastMessages + 2;

}  // namespace

CheckpointPlan PlanCheckpoints(std::span<const Token> prompt, size_t num_read, size_t chunk,
                               const std::function<bool(Token)>& is_control) {
  CheckpointPlan plan;
  std::vector<size_t>& planned = plan.positions;
  const size_t size = prompt.size();
  const size_t first = num_read + 2;
  if (size < first + 2) return plan;
  const auto add = [&](size_t position) {
    // The end of a chunk is a checkpoint anyway, and is not planned.
    const size_t in_chunk = position % chunk;
    if (in_chunk == 1 || in_chunk + 1 == chunk) --position;
    if (position >= first && position % chunk != 0) planned.push_back(position);
  };
  size_t last = size, after = size;
  int num_messages = 0;
  for (size_t i = size - 2; i >= first && num_messages < kLastMessages; --i) {
    if (!is_control(prompt[i]) || (after != size && after - i < kLeastGap)) continue;
    add(i);
    if (after == size) last = i;
    after = i;
    ++num_messages;
  }
  if (last == size || size - last > kNearEnd) add(size - 2);
  size_t end_of_first = 0;
  for (size_t i = 2 * kLeastGap; i < after; ++i) {
    if (end_of_first > 0 && i - end_of_first >= kLeastGap) break;
    if (is_control(prompt[i])) end_of_first = i;
  }
  const size_t num_others = planned.size();
  if (end_of_first > 0) add(end_of_first);
  if (planned.size() > num_others) plan.first_message_end = planned.back();
  std::ranges::sort(planned);
  // Between two checkpoints there must be at least two tokens, since a single token would be
  // computed by other kernels; the later checkpoint is dropped.
  const auto too_close = [](size_t a, size_t b) { return b - a < 2; };
  planned.erase(std::unique(planned.begin(), planned.end(), too_close), planned.end());
  return plan;
}

size_t MostCheckpointsIn(size_t num_tokens, size_t chunk) {
  return std::min(num_tokens, (num_tokens + chunk - 1) / chunk + kMostPlanned);
}

}  // namespace ebb

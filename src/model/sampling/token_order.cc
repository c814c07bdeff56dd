#include "src/model/sampling/token_order.h"

#include <algorithm>
#include <mutex>

#include "src/model/loaded/loaded_model.h"

namespace ebb {

TokenOrder::TokenOrder(const Model& model) {
  const int vocab_size = model.shape().vocab_size;
  is_end_.resize(vocab_size);
  for (Token token = 0; token < vocab_size; ++token) {
    texts_.push_back(model.TokenText(token, Model::ControlTokens::kShow));
    is_end_[token] = model.EndsGeneration(token);
    if (is_end_[token]) {
      ends_.push_back(token);
    } else if (!texts_.back().empty()) {
      entries_.push_back({.token = token});
    }
  }
  std::ranges::sort(entries_, {}, [&](const Entry& entry) { return TextOf(entry.token); });
  for (size_t i = 1; i < entries_.size(); ++i) {
    const std::string_view before = TextOf(entries_[i - 1].token), text = TextOf(entries_[i].token);
    entries_[i].shared =
        static_cast<uint32_t>(std::ranges::mismatch(before, text).in1 - before.begin());
  }
}

std::shared_ptr<const TokenOrder> TokenOrder::Of(const Model& model) {
  const LoadedModel& loaded = model.loaded();
  std::call_once(loaded.token_order_once,
                 [&] { loaded.token_order = std::make_shared<const TokenOrder>(model); });
  return loaded.token_order;
}

}  // namespace ebb

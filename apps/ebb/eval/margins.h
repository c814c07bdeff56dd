// How far the front of one policy lies above another's (Dynamic Memory Sparsification, 5.1).
#ifndef EBB_APPS_EVAL_MARGINS_H_
#define EBB_APPS_EVAL_MARGINS_H_

#include <string>

#include <nlohmann/json.hpp>

namespace ebb::cli {

// For each series of the records of a summary, that is, settings which differ in their budget or
// evicted share alone: {"series", "over", "kv_reads", "peak_tokens"}, the mean accuracy that its
// front has above that of the series `over`, by rows read and by the most rows held; null where the
// two have no costs in common. `over` is the first series of the control `random`, where there is
// one, else the first series. Empty where there are not two of them with two settings each.
[[nodiscard]] nlohmann::ordered_json FrontMargins(const nlohmann::ordered_json& summary);

// A table of them as Markdown; empty for none.
[[nodiscard]] std::string MarginTable(const nlohmann::ordered_json& margins);

}  // namespace ebb::cli

#endif  // EBB_APPS_EVAL_MARGINS_H_

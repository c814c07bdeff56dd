// How settings are named in what people read.
#ifndef EBB_APPS_EVAL_NAMES_H_
#define EBB_APPS_EVAL_NAMES_H_

#include <string>

#include <nlohmann/json.hpp>

namespace ebb::cli {

// Whether another record of the summary differs from this one in its options alone: only then are
// they part of a name.
[[nodiscard]] bool NeedsOptions(const nlohmann::ordered_json& record,
                                const nlohmann::ordered_json& summary);

}  // namespace ebb::cli

#endif  // EBB_APPS_EVAL_NAMES_H_

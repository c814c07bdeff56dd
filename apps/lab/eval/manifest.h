// grid.json: everything that determines the answers of a run, except the machine.
#ifndef EBB_APPS_LAB_EVAL_MANIFEST_H_
#define EBB_APPS_LAB_EVAL_MANIFEST_H_

#include <nlohmann/json.hpp>
#include <string>

#include "ebb/status.h"

namespace ebb::cli {

// Reads grid.json, with the values that older versions used where they wrote none. Errors:
// NotFound, Corrupt.
[[nodiscard]] Result<nlohmann::ordered_json> ReadManifest(const std::string& path);

// Returns the first key in which two manifests differ; empty: none. Keys that follow from the
// model's fingerprint may be missing in one of them, and the task's path may differ.
[[nodiscard]] std::string DifferingKey(const nlohmann::ordered_json& a,
                                       const nlohmann::ordered_json& b);

}  // namespace ebb::cli

#endif  // EBB_APPS_LAB_EVAL_MANIFEST_H_

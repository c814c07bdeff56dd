// Reads and compares grid.json, which holds everything that determines the answers of a run, except
// the machine.
#ifndef EBB_APPS_LAB_EVAL_MANIFEST_H_
#define EBB_APPS_LAB_EVAL_MANIFEST_H_

#include <nlohmann/json.hpp>
#include <string>

#include "ebb/status.h"

namespace ebb::cli {

// Reads grid.json, the description of a run; adds the values that older versions used but did not
// write. Errors: NotFound, Corrupt.
[[nodiscard]] Result<nlohmann::ordered_json> ReadManifest(const std::string& path);

// Returns the first key in which two manifests differ, or an empty text. Ignores the path of the
// task's file, and keys that follow from the model's fingerprint if one manifest lacks them.
[[nodiscard]] std::string DifferingKey(const nlohmann::ordered_json& a,
                                       const nlohmann::ordered_json& b);

}  // namespace ebb::cli

#endif  // EBB_APPS_LAB_EVAL_MANIFEST_H_

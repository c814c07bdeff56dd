// The lines of results.jsonl and times.jsonl: how they are written, and which are accepted when
// they are read again.
#ifndef EBB_APPS_EVAL_LINES_H_
#define EBB_APPS_EVAL_LINES_H_

#include <cstddef>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "ebb/lab/eval.h"
#include "ebb/status.h"

namespace ebb::cli {

[[nodiscard]] nlohmann::ordered_json ResultLine(const EvalAnswer& answer,
                                                const EvalSetting& setting,
                                                const EvalQuestion& problem);
[[nodiscard]] nlohmann::ordered_json TimeLine(const EvalAnswer& answer);

// The size of a folder's grid.
struct GridSize {
  size_t settings = 0;
  size_t problems = 0;
};
// Errors: Corrupt, naming file, line and field, for a line that is no answer to the grid, or no
// time.
[[nodiscard]] Status CheckResultLines(const std::vector<nlohmann::ordered_json>& lines,
                                      const GridSize& grid, const std::string& path);
[[nodiscard]] Status CheckTimeLines(const std::vector<nlohmann::ordered_json>& lines,
                                    const std::string& path);

}  // namespace ebb::cli

#endif  // EBB_APPS_EVAL_LINES_H_

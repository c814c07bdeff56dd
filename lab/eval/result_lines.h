// Writes the lines of results.jsonl and times.jsonl, and checks lines that are read again.
#ifndef EBB_LAB_EVAL_RESULT_LINES_H_
#define EBB_LAB_EVAL_RESULT_LINES_H_

#include <cstddef>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "ebb/lab/eval.h"
#include "ebb/status.h"

namespace ebb {

[[nodiscard]] nlohmann::ordered_json ResultLine(const EvalAnswer& answer,
                                                const EvalSetting& setting,
                                                const EvalQuestion& problem);
[[nodiscard]] nlohmann::ordered_json TimeLine(const EvalAnswer& answer);

// GridSize is how many settings and problems a run's grid has.
struct GridSize {
  size_t settings = 0;
  size_t problems = 0;
};
// Checks that every line is an answer to a setting and a problem of the grid. Errors: Corrupt,
// naming the file, line and field.
[[nodiscard]] Status CheckResultLines(const std::vector<nlohmann::ordered_json>& lines,
                                      const GridSize& grid, const std::string& path);
// Checks that every line is the time of an answer. Errors: Corrupt, naming the file, line and
// field.
[[nodiscard]] Status CheckTimeLines(const std::vector<nlohmann::ordered_json>& lines,
                                    const std::string& path);

}  // namespace ebb

#endif  // EBB_LAB_EVAL_RESULT_LINES_H_

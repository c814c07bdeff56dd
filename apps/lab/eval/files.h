// The folder of an evaluation: what was asked, one line per answer in the order of the grid, and
// times apart, so that the same run gives the same bytes.
#ifndef EBB_APPS_EVAL_FILES_H_
#define EBB_APPS_EVAL_FILES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "ebb/status.h"

namespace ebb::cli {

inline constexpr std::string_view kGridFile = "grid.json";
inline constexpr std::string_view kResultsFile = "results.jsonl";
inline constexpr std::string_view kTimesFile = "times.jsonl";

// A file of JSON lines that a kill at any moment leaves whole but for its last line, and a full
// disk without half a line.
class LineFile {
 public:
  // Keeps the whole lines that are there, and other processes out. Errors: IoError; Corrupt (a
  // whole line that is no JSON, with its number); InvalidArgument (another process has it open).
  static Result<std::unique_ptr<LineFile>> Open(const std::string& path);
  ~LineFile();
  LineFile(const LineFile&) = delete;
  LineFile& operator=(const LineFile&) = delete;

  [[nodiscard]] const std::vector<nlohmann::ordered_json>& lines() const { return lines_; }
  // Forgets all but the first `count`.
  Status Truncate(size_t count);
  Status Append(const nlohmann::ordered_json& line);

 private:
  LineFile() = default;
  std::string path_;
  int file_ = -1;
  std::vector<nlohmann::ordered_json> lines_;
  std::vector<int64_t> ends_;  // bytes up to the end of each line
};

// Replaces a file at once: the old content or the new one. Errors: IoError.
[[nodiscard]] Status WriteFile(const std::string& path, std::string_view content);

// The JSON in a file. Errors: NotFound, Corrupt.
[[nodiscard]] Result<nlohmann::ordered_json> ReadJson(const std::string& path);

}  // namespace ebb::cli

#endif  // EBB_APPS_EVAL_FILES_H_

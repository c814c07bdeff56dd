// Reads and writes the files in the folder of an evaluation: the manifest, one line for each answer
// in the order of the grid, and the times. Times have a file of their own, so that repeating a run
// gives the other files the same bytes.
//
// SPDX-License-Identifier: MIT
#ifndef EBB_LAB_RUN_FILES_H_
#define EBB_LAB_RUN_FILES_H_

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "ebb/status.h"

namespace [[gnu::visibility("default")]] ebb {

inline constexpr std::string_view kGridFile = "grid.json";
inline constexpr std::string_view kResultsFile = "results.jsonl";
inline constexpr std::string_view kTimesFile = "times.jsonl";

// LineFile is a file of JSON lines. If the process is killed, at most the last line is incomplete;
// if the disk is full, Append() removes the incomplete line.
class LineFile {
 public:
  // Opens or creates the file, keeps its complete lines, removes an incomplete last line, and locks
  // the file against other processes. Errors: IoError; Corrupt (a complete line that is not JSON,
  // with its number); InvalidArgument (another process has the file open).
  static Result<std::unique_ptr<LineFile>> Open(const std::string& path);
  ~LineFile();
  LineFile(const LineFile&) = delete;
  LineFile& operator=(const LineFile&) = delete;

  [[nodiscard]] const std::vector<nlohmann::ordered_json>& lines() const { return lines_; }
  // Keeps the first `count` lines and removes the rest.
  Status Truncate(size_t count);
  Status Append(const nlohmann::ordered_json& line);

 private:
  LineFile() = default;
  std::string path_;
  int file_ = -1;
  std::vector<nlohmann::ordered_json> lines_;
  std::vector<int64_t> ends_;  // [lines]: where each line ends
};

// Returns a line of JSON without its end; bytes that are not UTF-8 become U+FFFD.
[[nodiscard]] std::string LineText(const nlohmann::ordered_json& line);

// Replaces a file atomically, so that it holds either the old or the new content after a crash.
// Errors: IoError.
[[nodiscard]] Status WriteFile(const std::string& path, std::string_view content);

// Returns the JSON in a file. Errors: NotFound, Corrupt.
[[nodiscard]] Result<nlohmann::ordered_json> ReadJson(const std::string& path);

}  // namespace ebb

#endif  // EBB_LAB_RUN_FILES_H_

// TaskRecord is one line of a task's file.
#ifndef EBB_LAB_TASKS_TASK_RECORD_H_
#define EBB_LAB_TASKS_TASK_RECORD_H_

#include <initializer_list>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "ebb/status.h"

namespace ebb {

class TaskRecord {
 public:
  // Parses a line. `where` is the beginning of error messages, such as "FILE, line 3".
  [[nodiscard]] static Result<TaskRecord> Parse(std::string_view line, std::string where);

  [[nodiscard]] bool Has(std::string_view field) const { return json_.contains(field); }
  [[nodiscard]] const nlohmann::json& json() const { return json_; }

  // Returns the first of these fields that exists, as a text without white space around it; numbers
  // are written out. Fails if none exists, or if the field is no text or empty.
  [[nodiscard]] Result<std::string> Text(std::initializer_list<std::string_view> fields) const;

  [[nodiscard]] Status Error(std::string_view what) const;

 private:
  TaskRecord(nlohmann::json json, std::string where)
      : json_(std::move(json)), where_(std::move(where)) {}

  nlohmann::json json_;
  std::string where_;
};

}  // namespace ebb

#endif  // EBB_LAB_TASKS_TASK_RECORD_H_

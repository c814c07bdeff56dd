#include "lab/tasks/task_record.h"

#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace ebb {
namespace {

std::string_view Trim(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
}

}  // namespace

Result<TaskRecord> TaskRecord::Parse(std::string_view line, std::string where) {
  nlohmann::json json;
  try {
    json = nlohmann::json::parse(line);
  } catch (const nlohmann::json::exception&) {
    return InvalidArgument(fmt::format("{}: malformed JSON", where));
  }
  if (!json.is_object()) return InvalidArgument(fmt::format("{}: expected an object", where));
  return TaskRecord(std::move(json), std::move(where));
}

Result<std::string> TaskRecord::Text(std::initializer_list<std::string_view> fields) const {
  for (const std::string_view field : fields) {
    const auto found = json_.find(field);
    if (found == json_.end()) continue;
    std::string text;
    if (found->is_string()) {
      text = Trim(found->get_ref<const std::string&>());
    } else if (found->is_number()) {
      text = found->dump();
    } else {
      return Error(fmt::format("the field \"{}\" is no text", field));
    }
    if (text.empty()) return Error(fmt::format("the field \"{}\" is empty", field));
    return text;
  }
  return Error(fmt::format("missing field \"{}\"", fmt::join(fields, "\" or \"")));
}

Status TaskRecord::Error(std::string_view what) const {
  return InvalidArgument(fmt::format("{}: {}", where_, what));
}

}  // namespace ebb

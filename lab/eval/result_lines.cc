#include "lab/eval/result_lines.h"

#include <algorithm>
#include <array>
#include <span>
#include <string_view>

#include <fmt/format.h>

namespace ebb {
namespace {

using Json = nlohmann::ordered_json;

enum class Kind { kIndex, kNumber, kText, kTruth };
struct Field {
  const char* name;
  Kind kind;
};
// kResultFields are the fields of an answer that the Python module ebb.runs needs.
constexpr std::array kResultFields = {
    Field{"setting", Kind::kIndex},        Field{"problem", Kind::kIndex},
    Field{"policy", Kind::kText},          Field{"budget", Kind::kText},
    Field{"tiers", Kind::kText},           Field{"options", Kind::kText},
    Field{"seed", Kind::kIndex},           Field{"correct", Kind::kTruth},
    Field{"outcome", Kind::kText},         Field{"extracted", Kind::kText},
    Field{"finish_reason", Kind::kText},   Field{"generated_tokens", Kind::kNumber},
    Field{"peak_kv_bytes", Kind::kNumber}, Field{"peak_tokens", Kind::kNumber},
    Field{"kv_reads", Kind::kNumber},
};
constexpr std::array kTimeFields = {Field{"seconds", Kind::kNumber}};
bool Is(const Json& value, Kind kind) {
  switch (kind) {
    case Kind::kIndex:
      return value.is_number_unsigned();
    case Kind::kNumber:
      return value.is_number();
    case Kind::kText:
      return value.is_string();
    case Kind::kTruth:
      return value.is_boolean();
  }
  return false;
}

Status CheckFields(const Json& line, std::span<const Field> fields, const std::string& where) {
  for (const Field& field : fields) {
    if (line.contains(field.name) && Is(line[field.name], field.kind)) continue;
    return Corrupt(fmt::format("{}: \"{}\" is missing, or no such value", where, field.name));
  }
  return OkStatus();
}

std::string Place(const std::string& path, size_t index) {
  return fmt::format("{}, line {}", path, index + 1);
}

}  // namespace

Json ResultLine(const EvalAnswer& answer, const EvalSetting& setting, const EvalQuestion& problem) {
  Json line = {{"setting", answer.setting},
               {"problem", answer.problem},
               {"id", problem.id},
               {"policy", setting.policy},
               {"budget", setting.budget},
               {"tiers", setting.tiers},
               {"options", setting.options},
               {"seed", setting.seed},
               {"correct", answer.judgement.verdict == Verdict::kRight},
               {"outcome", VerdictName(answer.judgement.verdict)},
               {"extracted", answer.judgement.extraction.answer},
               {"rule", ExtractionRuleName(answer.judgement.extraction.rule)},
               {"prompt_tokens", answer.prompt_tokens},
               {"generated_tokens", answer.generated_tokens},
               {"finish_reason", answer.finish_reason},
               {"peak_kv_bytes", answer.peak_kv_bytes},
               {"peak_tokens", answer.peak_tokens},
               {"kv_reads", answer.kv_reads},
               {"rows_evicted", answer.rows_evicted},
               {"text", answer.text}};
  if (answer.lossless.has_value()) {
    const LosslessReport& report = *answer.lossless;
    line["drafted"] = report.drafted;
    line["accepted"] = report.accepted;
    line["verify_steps"] = report.verify_steps;
    line["bytes_read_per_token"] =
        static_cast<double>(report.bytes_read) / std::max<double>(answer.decode_steps, 1);
  }
  if (!answer.error.empty()) line["error"] = answer.error;
  return line;
}

Json TimeLine(const EvalAnswer& answer) {
  return {{"setting", answer.setting}, {"problem", answer.problem}, {"seconds", answer.seconds}};
}

Status CheckResultLines(const std::vector<Json>& lines, const GridSize& grid,
                        const std::string& path) {
  for (size_t i = 0; i < lines.size(); ++i) {
    const Json& line = lines[i];
    EBB_RETURN_IF_ERROR(CheckFields(line, kResultFields, Place(path, i)));
    if (line["setting"] < grid.settings && line["problem"] < grid.problems) continue;
    return Corrupt(fmt::format("{}: no answer to this run's grid", Place(path, i)));
  }
  return OkStatus();
}

Status CheckTimeLines(const std::vector<Json>& lines, const std::string& path) {
  for (size_t i = 0; i < lines.size(); ++i) {
    EBB_RETURN_IF_ERROR(CheckFields(lines[i], kTimeFields, Place(path, i)));
  }
  return OkStatus();
}

}  // namespace ebb

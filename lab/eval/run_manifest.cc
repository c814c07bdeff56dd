#include "lab/eval/run_manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <fstream>
#include <string_view>

#include "commit.h"
#include "ebb/version.h"
#include "lab/eval/setting_description.h"

namespace ebb {
namespace {

using Json = nlohmann::ordered_json;

// Returns the limit of the longest answer, in tokens: the task's own limits if the request has 0.
int LongestAnswer(const EvalQuestions& task) {
  int most = 0;
  for (const EvalQuestion& question : task.questions) most = std::max(most, question.max_tokens);
  return most;
}

// Returns the device's name for the manifest, empty for the processor. Logits differ in their last
// bits between devices, and between kinds of attention on one.
std::string DeviceOf(const DeviceSpec& device) {
  if (device.attention == DeviceAttention::kAuto) return device.name;
  return fmt::format("{}:attention={}", device.name, DeviceAttentionName(device.attention));
}

std::string ProcessorName() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown processor";
}

std::string DateNow() {
  const std::time_t now = std::time(nullptr);
  std::tm utc = {};
  gmtime_r(&now, &utc);
  std::array<char, 32> text = {};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text.data();
}

}  // namespace

Json MakeManifest(const Model& model, const EvalQuestions& task,
                  std::span<const EvalSetting> settings, const EvalRunOptions& run,
                  const std::string& instructions) {
  const EvaluationOptions& evaluation = run.evaluation;
  const bool re_rotates = run.session.past_context == PastContext::kReRotate;
  Json manifest = {{"format", 3},
                   {"task", run.task.task},
                   {"problems", task.questions.size()},
                   {"task_fingerprint", fmt::format("{:016x}", task.fingerprint)},
                   {"seed", run.task.seed},
                   {"model", model.description()},
                   {"model_fingerprint", model.fingerprint()},
                   {"model_compression", model.trained_compression()},
                   {"model_window", model.eviction_window()},
                   {"model_shift", model.eviction_shift()},
                   {"weights", run.model.weights == WeightMode::kDequantize ? "f32" : "file"},
                   {"rope_scaling", static_cast<int>(run.model.rope_scaling)},
                   {"rope_factor", run.model.rope_factor},
                   {"context", run.session.context},
                   {"past_context", re_rotates ? "rerotate" : "refuse"},
                   {"kv_cap_bytes", run.engine.kv_cap_bytes},
                   {"kv_type", RowTypeName(run.engine.kv_type)},
                   {"device", DeviceOf(run.engine.device)},
                   {"prompt_preset", run.task.prompt_preset},
                   {"prompt_style", evaluation.prompt_style == PromptStyle::kChat ? "chat" : "raw"},
                   {"prompts_fingerprint", fmt::format("{:016x}", task.prompts_fingerprint)},
                   {"judge", kJudgeNumber},
                   {"judge_code", run.task.judge_name},
                   {"temperature", evaluation.sampling.temperature},
                   {"top_k", evaluation.sampling.top_k},
                   {"top_p", evaluation.sampling.top_p},
                   {"min_p", evaluation.sampling.min_p},
                   {"tokens", run.task.max_tokens},
                   {"answer_tokens", LongestAnswer(task)},
                   {"shard", fmt::format("{}/{}", evaluation.shard, evaluation.num_shards)},
                   {"batch", evaluation.batch},
                   {"made_by",
                    {{{"version", EBB_VERSION},
                      {"commit", EBB_COMMIT},
                      {"cpu", ProcessorName()},
                      {"instructions", instructions},
                      {"threads", evaluation.workers},
                      {"date", DateNow()}}}},
                   {"settings", Json::array()}};
  if (run.task.answer_rules.has_value()) {
    manifest["answer_rules"] = AnswerRulesName(*run.task.answer_rules);
  }
  for (const EvalSetting& setting : settings) {
    manifest["settings"].push_back(DescribeSetting(setting));
  }
  return manifest;
}

std::string DifferingKey(const Json& a, const Json& b) {
  for (const auto& [one, other] : {std::pair(&a, &b), std::pair(&b, &a)}) {
    for (const auto& [key, value] : one->items()) {
      if (key == "task" || key == "made_by") continue;
      if (!other->contains(key) || (*other)[key] != value) return key;
    }
  }
  return "";
}

Status AddMachine(const Json& here, bool any_version,
                  const std::function<void(const std::string&)>& note, Json* there) {
  const Json now = here["made_by"].at(0);
  Json* const machines = there->contains("made_by") ? &(*there)["made_by"] : nullptr;
  if (machines == nullptr || !machines->is_array() || machines->empty() ||
      !machines->back().is_object()) {
    return Corrupt("made_by: expected the machines that computed the answers");
  }
  const Json before = machines->back();
  const auto text = [](const Json& machine, const char* key) {
    return machine.contains(key) && machine[key].is_string() ? machine[key].get<std::string>() : "";
  };
  const auto differs = [&](const char* key) { return text(before, key) != text(now, key); };
  const auto both = [&](const char* key) {
    return fmt::format("{} {}, here it is {}", key, text(before, key), text(now, key));
  };
  if (differs("version") && !any_version) {
    return InvalidArgument("the answers so far are of " + both("version") +
                           ", which may answer otherwise; to continue all the same ask for any "
                           "version");
  }
  bool is_new = differs("version");
  for (const char* key : {"commit", "cpu", "instructions"}) {
    if (!differs(key)) continue;
    is_new = true;
    if (note) {
      note("the answers so far are of " + both(key) + ": the same setting may round otherwise");
    }
  }
  if (is_new) machines->push_back(now);
  return OkStatus();
}

}  // namespace ebb

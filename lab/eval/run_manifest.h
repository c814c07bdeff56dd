// Makes and compares grid.json, which describes a run: everything that determines its answers, and
// as "made_by" the programs and machines that computed them.
#ifndef EBB_LAB_EVAL_RUN_MANIFEST_H_
#define EBB_LAB_EVAL_RUN_MANIFEST_H_

#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "ebb/lab/eval_run.h"
#include "ebb/model.h"
#include "ebb/status.h"

namespace ebb {

// Returns the manifest of a run that this program begins now. `instructions` names the kernels that
// compute, as Engine::attention_name() does.
[[nodiscard]] nlohmann::ordered_json MakeManifest(const Model& model, const EvalQuestions& task,
                                                  std::span<const EvalSetting> settings,
                                                  const EvalRunOptions& run,
                                                  const std::string& instructions);

// Returns the first key other than "made_by" in which two manifests differ, or an empty text.
// Ignores the path of the task's file, since task_fingerprint identifies its content.
[[nodiscard]] std::string DifferingKey(const nlohmann::ordered_json& a,
                                       const nlohmann::ordered_json& b);

// Appends to the "made_by" of `there`, a run's manifest, the machine of `here`, unless the last
// one is of the same version, commit, processor and instructions. Passes to `note` a sentence about
// a processor or a commit that differs. Errors: InvalidArgument (another version, unless
// `any_version`).
[[nodiscard]] Status AddMachine(const nlohmann::ordered_json& here, bool any_version,
                                const std::function<void(const std::string&)>& note,
                                nlohmann::ordered_json* there);

}  // namespace ebb

#endif  // EBB_LAB_EVAL_RUN_MANIFEST_H_

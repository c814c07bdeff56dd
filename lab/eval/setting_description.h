// Describes the settings of an evaluation: as JSON, and as the short labels of tables.
#ifndef EBB_LAB_EVAL_SETTING_DESCRIPTION_H_
#define EBB_LAB_EVAL_SETTING_DESCRIPTION_H_

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "ebb/lab/eval_run.h"
#include "ebb/model.h"
#include "ebb/status.h"

namespace ebb {

// Returns the labels and the seed of a setting, and as "fields" every option that can change its
// results or their costs. Two settings are the same if and only if these fields are equal.
[[nodiscard]] nlohmann::ordered_json DescribeSetting(const EvalSetting& setting);

// SettingsOfRun holds the settings of a run, each once and with its labels.
struct SettingsOfRun {
  std::vector<EvalSetting> settings;
  std::string instructions;  // Engine::attention_name() of the first setting's engine
};
// Opens a session of each setting, so that a wrong policy or budget is found before anything is
// written; fills in the labels and removes repeated settings. Labels name the options of an engine
// or a session only if these differ from the run's own, which `run` holds. Errors: a setting that
// no session opens with; those of CheckBatch().
[[nodiscard]] Result<SettingsOfRun> PrepareSettings(const std::shared_ptr<const Model>& model,
                                                    std::vector<EvalSetting> settings,
                                                    const EvalRunOptions& run);

}  // namespace ebb

#endif  // EBB_LAB_EVAL_SETTING_DESCRIPTION_H_

// Holds the parts that the sequences of an engine share: the model, the memory and files of the
// tiers, the graphs and their threads. It lives as long as the engine or any of its sessions.
#ifndef EBB_SEQUENCE_ENGINE_CORE_H_
#define EBB_SEQUENCE_ENGINE_CORE_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "ebb/engine.h"
#include "src/attention/attention.h"
#include "src/sequence/batch_guesses.h"
#include "src/sequence/prompt_pace.h"
#include "src/sequence/tier_stores.h"
#include "src/step/graph_runner.h"

namespace ebb {

struct EngineCore {
  std::shared_ptr<const Model> model;
  EngineOptions options;  // threads resolved
  const AttentionKernel* kernel = nullptr;
  PageFormat format;
  TierStores stores;
  std::unique_ptr<GraphRunner> runner;
  DeviceReport device_report;
  PromptPace prompt_pace;
  BatchTimes batch_times;
  DraftRecord drafts;
  // Does what must precede the first step: computes the key metrics. Null: nothing, or done.
  std::function<Status()> before_first_step;
  // Says whether steps of several tokens have the bits of steps of one, once that was checked.
  std::optional<bool> columns_are_same;
  // Runs the sessions of EngineOptions::draft_model or, without one, of the model's MTP layer;
  // null: there is neither.
  std::unique_ptr<Engine> draft;
  std::string mtp_obstacle;  // why the layer that the model has could not be run; empty: it runs
};

}  // namespace ebb

#endif  // EBB_SEQUENCE_ENGINE_CORE_H_

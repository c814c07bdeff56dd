// From a size of memory to tiers: what a process may take, and the gentlest setting (ebb/fit.h)
// that stays within it.
//
//   EBB_ASSIGN_OR_RETURN(const MemoryPlan plan, PlanMemory(*model, request, engine, session));
//   engine.tiers = session.policy.tiers = plan.setting.tiers;
#ifndef EBB_MEMORY_PLAN_H_
#define EBB_MEMORY_PLAN_H_

#include <cstdint>

#include "ebb/engine.h"
#include "ebb/fit.h"
#include "ebb/model.h"
#include "ebb/status.h"

namespace ebb {

// FitModelOf() with program_bytes as this process has them, which has just loaded the model. They
// are rounded so that another run of the same program gives the same number.
[[nodiscard]] FitModel MeasureFitModel(const Model& model);

// What these options ask for: one sequence of the session's whole context, `prompt_tokens` of which
// are given.
[[nodiscard]] FitRequest FitRequestOf(const Model& model, const EngineOptions& engine,
                                      const SessionOptions& session, int prompt_tokens);

struct MemoryRequest {
  // That the process may take, the weights among them; above 0. Beside a device of ggml's: of its
  // memory, while the host's is what the machine has.
  uint64_t memory_bytes = 0;
  // Tokens that are given, and that may follow; -1: as many as the context holds. Where both
  // together stay below the context, that is all that must fit.
  int prompt_tokens = 0;
  int max_tokens = -1;
  bool prompts_at_any_time = false;  // as in FitRequest
};

struct MemoryPlan {
  FitSetting setting;      // "as asked for" where the options have tiers
  bool is_chosen = false;  // rather than asked for
  int context = 0;         // tokens that were planned for
  FitBytes bytes;
  FitLimits limits;
};

// Checks that the options' tiers fit, or chooses the gentlest setting that does; what lies on a
// disk has the room that T1's folder has. Errors: ResourceExhausted (nothing fits, with the least
// memory that is needed; the tiers do not fit, with the figures); InvalidArgument, by the name of a
// field: a lossless session, a budget beside memory_bytes.
[[nodiscard]] Result<MemoryPlan> PlanMemory(const Model& model, const MemoryRequest& request,
                                            const EngineOptions& engine,
                                            const SessionOptions& session);

}  // namespace ebb

#endif  // EBB_MEMORY_PLAN_H_

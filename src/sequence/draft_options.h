// Divides the caps of an engine between its model and the draft that guesses for it.
#ifndef EBB_SEQUENCE_DRAFT_OPTIONS_H_
#define EBB_SEQUENCE_DRAFT_OPTIONS_H_

#include "ebb/engine.h"

namespace ebb {

// Returns the options of the engine of `draft`, which guesses for an engine of `model` with
// *options. A draft model takes its part of the caps from *options. An MTP layer, which nobody may
// have asked for, leaves them whole: its caps, for as many tokens, come on top.
[[nodiscard]] EngineOptions TakeDraftOptions(const Model& model, const Model& draft,
                                             EngineOptions* options);

}  // namespace ebb

#endif  // EBB_SEQUENCE_DRAFT_OPTIONS_H_

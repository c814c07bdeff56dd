// Which tensors a model is made of, under which names.
#ifndef EBB_MODEL_LAYOUT_H_
#define EBB_MODEL_LAYOUT_H_

#include <array>
#include <cstddef>
#include <string>

#include "ebb/status.h"
#include "src/model/gguf_file.h"
#include "src/model/loaded_model.h"
#include "src/model/weights.h"

namespace ebb {

// Declares every weight of the model and enters it into `model`, whose family and hparams are set.
// Errors: those of WeightLoader; a tensor of the file that the family has no place for.
Status DeclareWeights(const GgufFile& file, WeightLoader& loader, LoadedModel* model);
// The tensors of a layer from which EvictionLayout::kAdapter has its logits: the norm, the matrix.
[[nodiscard]] std::array<std::string, 2> MarkTensorNames(int layer);
// Declares these of every layer. REQUIRES: DeclareWeights() was called.
Status DeclareMarks(WeightLoader& loader, LoadedModel* model);
// Once the weights have data: the matrix that no file holds.
void FillKeptChannels(const LoadedModel& model);
// An upper bound on the declarations.
[[nodiscard]] size_t MaxDeclarations(const Hyperparameters& hparams);

}  // namespace ebb

#endif  // EBB_MODEL_LAYOUT_H_

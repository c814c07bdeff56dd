// Measures how fast this machine decodes with a model.
#ifndef EBB_APPS_FIT_MEASURE_H_
#define EBB_APPS_FIT_MEASURE_H_

#include <memory>
#include <vector>

#include "apps/common/options/options.h"
#include "ebb/fit.h"
#include "ebb/model.h"

namespace ebb::cli {

// Measures the model and sets the members of *speeds from which TokensPerSecond() predicts: the
// time of a step of `requests` sequences with hardly any rows, and the rates of attention to rows
// in full precision and of each of `types`.
[[nodiscard]] Status MeasureDecoding(const std::shared_ptr<const Model>& model,
                                     const CliOptions& options, int requests,
                                     const std::vector<CompressedType>& types, FitSpeeds* speeds);

}  // namespace ebb::cli

#endif  // EBB_APPS_FIT_MEASURE_H_

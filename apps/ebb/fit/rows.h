// Computes the rows of `ebb fit`: what a setting takes, and whether this machine holds it.
#ifndef EBB_APPS_FIT_ROWS_H_
#define EBB_APPS_FIT_ROWS_H_

#include <memory>
#include <optional>
#include <vector>

#include "apps/common/options/options.h"
#include "ebb/fit.h"
#include "ebb/model.h"
#include "ebb/status.h"

namespace ebb::cli {

// Machine holds the limits and the speeds that decide what fits.
struct Machine {
  FitLimits limits;
  FitSpeeds speeds;
  int threads = 0;
};

// FitQuestion is a model and a request, whose tiers the rows replace.
struct FitQuestion {
  FitModel model;
  FitRequest request;
  // Differs from `request` if a model's marks evict rows: it counts as many as the model was
  // trained to mark.
  std::optional<FitRequest> as_trained = {};
  uint64_t download_bytes = 0;  // of a model that is not here
};

// FitRow is a setting with its bytes and what follows from them.
struct FitRow {
  FitSetting setting;
  Result<FitBytes> bytes = FitBytes();
  std::optional<FitBytes> as_trained = {};  // the bytes of FitQuestion::as_trained
  Status fits;
  int largest_context = 0;
  int most_requests = 0;
  double tokens_per_s = 0;
};

// Returns the question of these options about a model of which the sizes alone are known; context:
// unless --context is given.
[[nodiscard]] FitQuestion QuestionOf(FitModel sizes, const CliOptions& options, int threads,
                                     int context);

// Returns the limits of memory and disk: --memory, or the free amounts.
[[nodiscard]] Result<FitLimits> FindLimits(const CliOptions& options);
// Measures the machine, and with --measure the model. A disk that cannot be measured leaves figures
// out instead of an error.
[[nodiscard]] Result<Machine> MeasureMachine(const std::shared_ptr<const Model>& model,
                                             const CliOptions& options);

[[nodiscard]] FitRow Judge(const FitQuestion& question, const Machine& machine, FitSetting setting);

// Returns the bytes of the rows of all tiers.
[[nodiscard]] uint64_t RowsBytes(const FitBytes& bytes);

// Returns how the full cache runs if weights stay in the file for lack of memory; nothing if all
// weights fit, or if the rest does not fit either way.
[[nodiscard]] std::optional<MappedWeights> MappedOf(const std::vector<FitRow>& rows,
                                                    const FitRequest& request,
                                                    const Machine& machine);

}  // namespace ebb::cli

#endif  // EBB_APPS_FIT_ROWS_H_

// Writes the answers of `ebb fit` for people, in 80 columns.
#ifndef EBB_APPS_FIT_TEXT_H_
#define EBB_APPS_FIT_TEXT_H_

#include <string>
#include <string_view>
#include <vector>

#include "apps/common/options/options.h"
#include "apps/ebb/fit/rows.h"
#include "ebb/fit.h"

namespace ebb::cli {

inline constexpr int kFitColumns = 80;

// Returns the options that select the setting in their shortest form, such as "--kv-type q4"; empty
// for the full cache. kv_type_given: --kv-type was given, so that the setting cannot use it.
[[nodiscard]] std::string ShortSetting(const FitSetting& setting, bool kv_type_given);

// Returns a command that runs the model as it was counted: `ebb chat`, `ebb serve` for several
// requests, `ebb run` for one prompt. It has the options that were given, and `setting`, options
// such as "--kv-type q4", unless a given --memory lets the command choose that setting itself.
// `context` is the context that was counted, which the command names if names_context.
[[nodiscard]] std::string CommandFor(const CliOptions& options, std::string_view setting,
                                     int context, bool names_context);

// Returns ", after a download of 5.0 GB"; empty for 0 bytes.
[[nodiscard]] std::string DownloadText(uint64_t bytes);

// Returns the table of the rows, what was measured, and a command that fits.
[[nodiscard]] std::string FitText(const CliOptions& options, std::string_view model,
                                  const FitQuestion& question, const Machine& machine,
                                  const std::vector<FitRow>& rows,
                                  const Result<FitSetting>& gentlest);

}  // namespace ebb::cli

#endif  // EBB_APPS_FIT_TEXT_H_

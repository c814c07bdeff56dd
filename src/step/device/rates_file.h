// The rates file keeps the speeds that were measured on devices, so that a program chooses the same
// ways of reading T1, and computes the same bits, each time it runs. It is JSON with a member for
// each device and use.
//
// The file is a cache: if it cannot be read or parsed, the rates are measured again and the file is
// replaced.
#ifndef EBB_STEP_DEVICE_RATES_FILE_H_
#define EBB_STEP_DEVICE_RATES_FILE_H_

#include <optional>
#include <string>

#include "ebb/status.h"
#include "src/device/step_costs.h"

namespace ebb {

// Returns the rates that were kept under `name`, which names the device and all else that they
// depend on; nullopt: the file has none.
[[nodiscard]] std::optional<DeviceRates> FindRates(const std::string& path,
                                                   const std::string& name);
// Writes rates to the file under `name`, and keeps the rates of other names. Makes the folder if
// needed. Errors: the errors of FileReplacement.
Status KeepRates(const std::string& path, const std::string& name, const DeviceRates& rates);

}  // namespace ebb

#endif  // EBB_STEP_DEVICE_RATES_FILE_H_

// A file in which what was measured of devices is kept, so that a program chooses the same ways of
// reading T1, and has the same bits, each time that it runs. JSON, a member a device and use.
//
// It is a cache: one that cannot be read, or is no such file, is as good as none, and is replaced
// by the next that is kept.
#ifndef EBB_STEP_DEVICE_RATES_FILE_H_
#define EBB_STEP_DEVICE_RATES_FILE_H_

#include <optional>
#include <string>

#include "ebb/status.h"
#include "src/device/step_costs.h"

namespace ebb {

// Returns the rates under `name`, which names the device and all else that they depend on; nullopt:
// there are none.
[[nodiscard]] std::optional<DeviceRates> FindRates(const std::string& path,
                                                   const std::string& name);
// Writes rates to the file, beside rates of other names. Makes the folder if needed. Errors: those
// of FileReplacement.
Status KeepRates(const std::string& path, const std::string& name, const DeviceRates& rates);

}  // namespace ebb

#endif  // EBB_STEP_DEVICE_RATES_FILE_H_

// Declares the functions of `ebb device list` and `ebb device test`.
#ifndef EBB_APPS_EBB_DEVICE_COMMANDS_H_
#define EBB_APPS_EBB_DEVICE_COMMANDS_H_

#include "apps/common/commands.h"

namespace ebb::cli {

ExitCode RunDeviceList(const CliOptions& options);
ExitCode RunDeviceTest(const CliOptions& options);

}  // namespace ebb::cli

#endif  // EBB_APPS_EBB_DEVICE_COMMANDS_H_

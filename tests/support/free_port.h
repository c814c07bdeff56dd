// A port of this machine for a server of another program.
#ifndef EBB_TESTS_SUPPORT_FREE_PORT_H_
#define EBB_TESTS_SUPPORT_FREE_PORT_H_

#include <cstdint>

namespace ebb {

// One that nobody listens on: below those that the system gives to clients, whose connections would
// take it before a server does.
[[nodiscard]] uint16_t FreePort();

}  // namespace ebb

#endif  // EBB_TESTS_SUPPORT_FREE_PORT_H_

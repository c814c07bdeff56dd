#ifndef EBB_TESTS_SUPPORT_SLOWDOWN_H_
#define EBB_TESTS_SUPPORT_SLOWDOWN_H_

#include "src/base/sanitizers.h"

namespace ebb {

// What tests that bound a time multiply it by.
inline constexpr int kSlowdown = kAddressSanitizer || kThreadSanitizer ? 10 : 1;

}  // namespace ebb

#endif  // EBB_TESTS_SUPPORT_SLOWDOWN_H_

#ifndef EBB_TESTS_SUPPORT_EXPECT_OK_H_
#define EBB_TESTS_SUPPORT_EXPECT_OK_H_

#include <gtest/gtest.h>

#include "ebb/status.h"

namespace ebb {

inline void ExpectOk(const Status& status) { EXPECT_TRUE(status.ok()) << status.ToString(); }

}  // namespace ebb

#endif  // EBB_TESTS_SUPPORT_EXPECT_OK_H_

#ifndef EBB_TESTS_SUPPORT_EXPECT_OK_H_
#define EBB_TESTS_SUPPORT_EXPECT_OK_H_

#include <gtest/gtest.h>

#include "ebb/status.h"

namespace ebb {

inline void ExpectOk(const Status& status) { EXPECT_TRUE(status.ok()) << status.ToString(); }

// A step, which has taken its tokens and moved what its policy decided.
template <typename Outcome>
requires requires(const Outcome& outcome) { outcome.taken; }
void ExpectOk(const Outcome& outcome) {
  EXPECT_TRUE(outcome.taken);
  ExpectOk(outcome.status);
}

}  // namespace ebb

#endif  // EBB_TESTS_SUPPORT_EXPECT_OK_H_

#ifndef EBB_POLICY_BUDGETS_FOR_TEST_H_
#define EBB_POLICY_BUDGETS_FOR_TEST_H_

#include "ebb/policy.h"

namespace ebb {

constexpr Budget Rows(double n) { return {Budget::Unit::kRows, n}; }
constexpr Budget Percent(double p) { return {Budget::Unit::kPercent, p}; }

}  // namespace ebb

#endif  // EBB_POLICY_BUDGETS_FOR_TEST_H_

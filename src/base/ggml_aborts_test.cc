#include "src/base/ggml_aborts.h"

#include <ggml.h>
#include <gtest/gtest.h>

namespace ebb {
namespace {

void FailInGgml() { GGML_ABORT("a failed assertion"); }

TEST(GgmlAborts, ThrowInScopesThatMayNest) {
  const GgmlAbortScope outer;
  {
    const GgmlAbortScope inner;
    EXPECT_THROW(FailInGgml(), GgmlAbort);
  }
  try {
    FailInGgml();
    FAIL() << "the process should have ended";
  } catch (const GgmlAbort& failure) {
    EXPECT_NE(std::string(failure.what()).find("a failed assertion"), std::string::npos);
  }
}

TEST(GgmlAbortsDeathTest, EndTheProcessOutside) {
  { const GgmlAbortScope scope; }
  EXPECT_DEATH(FailInGgml(), "a failed assertion");
}

}  // namespace
}  // namespace ebb

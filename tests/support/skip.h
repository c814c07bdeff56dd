// Tests that need something of the machine: without it they are skipped, unless EBB_REQUIRE says
// that it must be there ("direct_io,default_model"), so that a test cannot vanish where it is
// counted on.
#ifndef EBB_TESTS_SUPPORT_SKIP_H_
#define EBB_TESTS_SUPPORT_SKIP_H_

#include <gtest/gtest.h>

#include <string_view>

namespace ebb {

// Whether the list in EBB_REQUIRE names it.
[[nodiscard]] bool IsRequired(std::string_view feature);

}  // namespace ebb

// EBB_SKIP_WITHOUT("direct_io") << why;
#define EBB_SKIP_WITHOUT(feature)                                                  \
  return ::testing::internal::AssertHelper(                                        \
             ::ebb::IsRequired(feature) ? ::testing::TestPartResult::kFatalFailure \
                                        : ::testing::TestPartResult::kSkip,        \
             __FILE__, __LINE__, "without " feature) = ::testing::Message()

#endif  // EBB_TESTS_SUPPORT_SKIP_H_

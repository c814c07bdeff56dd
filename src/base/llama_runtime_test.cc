#include "src/base/llama_runtime.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ebb {
namespace {

using ::testing::HasSubstr;

TEST(CheckProcessor, TakesTheMachineThatItWasBuiltFor) { EXPECT_TRUE(CheckProcessor().ok()); }

TEST(CheckProcessor, NamesWhatIsMissing) {
  const InstructionSet sets[] = {{"AVX2", true, false},
                                 {"FMA", true, true},
                                 {"AVX512", false, false},
                                 {"AVX512_VNNI", true, false}};
  const Status status = CheckInstructionSets(sets);
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_THAT(status.message(), HasSubstr("with AVX2, AVX512_VNNI, which"));
  EXPECT_THAT(status.message(), HasSubstr("EBB_NATIVE=OFF"));
  EXPECT_TRUE(CheckInstructionSets(std::span(sets).subspan(1, 2)).ok());
}

}  // namespace
}  // namespace ebb

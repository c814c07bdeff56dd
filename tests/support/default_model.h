// The model that `ebb pull` fetches, for tests of the real thing.
#ifndef EBB_TESTS_SUPPORT_DEFAULT_MODEL_H_
#define EBB_TESTS_SUPPORT_DEFAULT_MODEL_H_

#include <string>

namespace ebb {

// ${EBB_MODEL}, else the file in the user's cache folder. Empty when there is no such file; a test
// then skips and says so.
[[nodiscard]] std::string DefaultModelPath();
inline constexpr const char* kNoDefaultModel =
    "the default model is not there: run `ebb pull`, or set EBB_MODEL";

}  // namespace ebb

#endif  // EBB_TESTS_SUPPORT_DEFAULT_MODEL_H_

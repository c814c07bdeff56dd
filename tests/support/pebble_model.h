// The small reasoner that the program carries, loaded once for all tests of a suite.
#ifndef EBB_TESTS_SUPPORT_PEBBLE_MODEL_H_
#define EBB_TESTS_SUPPORT_PEBBLE_MODEL_H_

#include <gtest/gtest.h>

#include <memory>

#include "ebb/model.h"

namespace ebb {

class PebbleModelTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    auto model = Model::Load({.path = EBB_SOURCE_DIR "/training/pebble/pebble.gguf"});
    ASSERT_TRUE(model.ok()) << model.status().ToString();
    model_ = *model;
  }
  static void TearDownTestSuite() { model_.reset(); }

  inline static std::shared_ptr<const Model> model_;
};

}  // namespace ebb

#endif  // EBB_TESTS_SUPPORT_PEBBLE_MODEL_H_

// A model of one layer with random weights, for tests that need its vocabulary more than its
// logits.
#ifndef EBB_TESTS_SUPPORT_TINY_MODEL_H_
#define EBB_TESTS_SUPPORT_TINY_MODEL_H_

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "ebb/model.h"
#include "tests/support/random_gguf.h"
#include "tests/support/temp_folder.h"

namespace ebb {

class TinyModelTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    const TempFolder folder;
    const std::string path = folder.File("model.gguf");
    const Status status = WriteRandomGguf({.num_layers = 1}, path);
    ASSERT_TRUE(status.ok()) << status.ToString();
    const auto model = Model::Load({.path = path});
    ASSERT_TRUE(model.ok()) << model.status().ToString();
    model_ = *model;
  }
  static void TearDownTestSuite() { model_.reset(); }

  inline static std::shared_ptr<const Model> model_;
};

}  // namespace ebb

#endif  // EBB_TESTS_SUPPORT_TINY_MODEL_H_

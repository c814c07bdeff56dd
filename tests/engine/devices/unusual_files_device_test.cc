// Files that libllama's graph runs for a family of ebb's own, on a simulated device.
#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "tests/engine/devices/backend_fixture.h"
#include "tests/support/device/sim_backend.h"
#include "tests/support/engine/engine_logits.h"
#include "tests/support/gguf_edit.h"
#include "tests/support/logits.h"
#include "tests/support/model_variants.h"

namespace ebb {
namespace {

EBB_CPU_ONLY_FILE("it opens devices of its own");

// Expects the logits of the processor, within what the order of additions changes.
void ExpectAlikeOnADevice(const std::string& path, const std::vector<Token>& tokens) {
  const auto on_host = Model::Load({.path = path});
  const auto for_device = Model::Load({.path = path, .for_device = true});
  ASSERT_TRUE(on_host.ok() && for_device.ok()) << for_device.status().ToString();
  EngineLogitsOptions options;
  options.engine = {.threads = 1};
  const auto expected = EngineLogits(*on_host, tokens, options);
  options.engine.device = *ParseDevice(TestDevice("attention=auto"));
  const auto logits = EngineLogits(*for_device, tokens, options);
  ASSERT_TRUE(expected.ok() && logits.ok()) << logits.status().ToString();
  EXPECT_LE(LargestDifference(*logits, *expected), 1e-2 * StandardDeviation(*expected));
}

TEST(UnusualFilesOnADevice, PaddedHeadsHaveTheLogitsOfTheProcessor) {
  const RandomGgufOptions options = {.embed_dim = 128, .head_dim = 100};
  const TempFolder folder;
  ExpectOk(WriteRandomGguf(options, folder.File("model.gguf")));
  ExpectAlikeOnADevice(folder.File("model.gguf"), RandomTokens(options, 48, 5));
}

TEST(UnusualFilesOnADevice, ScalesThatNoNodeReadsAreAppliedToo) {
  const RandomGgufOptions options = {.family = "gemma3"};
  const TempFolder folder;
  ExpectOk(WriteRandomGguf(options, folder.File("plain.gguf")));
  auto file = GgufEdit::Open(folder.File("plain.gguf"));
  ASSERT_TRUE(file.ok());
  const std::string name = "blk.0.ffn_down";
  const ggml_tensor* wide = file->tensor(name + ".weight");
  std::vector<float> weights(ggml_get_data_f32(wide),
                             ggml_get_data_f32(wide) + ggml_nelements(wide));
  for (float& weight : weights) weight *= 64;
  const int64_t columns = wide->ne[0], rows = wide->ne[1];
  file->Remove(name + ".weight");
  file->Add(name + ".weight", GGML_TYPE_NVFP4, columns, rows);
  ggml_quantize_chunk(GGML_TYPE_NVFP4, weights.data(), file->tensor(name + ".weight")->data, 0,
                      rows, columns, nullptr);
  file->Add(name + ".scale", GGML_TYPE_F32, 1, 1);
  *ggml_get_data_f32(file->tensor(name + ".scale")) = 1.0f / 64;
  ExpectOk(file->Save(folder.File("model.gguf")));
  ExpectAlikeOnADevice(folder.File("model.gguf"), RandomTokens(options, 48, 5));
}

}  // namespace
}  // namespace ebb

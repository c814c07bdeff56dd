// Tiny random models with heads of each kind, in files, and engines that guess by them.
#ifndef EBB_TESTS_ENGINE_HEADS_HEAD_CASES_H_
#define EBB_TESTS_ENGINE_HEADS_HEAD_CASES_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "tests/engine/engine_fixture.h"
#include "tests/support/engine/library_models.h"
#include "tests/support/random_gguf.h"

namespace ebb {

// HeadCase is a model with a head, in files of its own. `trunk`, if it has an architecture, else
// `target` describes the model. Unless it has an MTP layer, another file guesses for it: of
// `assistant` or `dflash`, if there is one, else of `eagle3`.
struct HeadCase {
  std::string name;
  LibraryModelOptions trunk = {};
  RandomGgufOptions target = {};  // its tokenizer, and its shape for that of the head
  RandomEagle3Options eagle3 = {};
  std::optional<RandomAssistantOptions> assistant = {};
  std::optional<RandomDflashOptions> dflash = {};

  [[nodiscard]] Speculation source() const {
    if (trunk.has_mtp) return Speculation::kMtp;
    if (dflash.has_value()) return Speculation::kDflash;
    return assistant.has_value() ? Speculation::kAssistant : Speculation::kEagle3;
  }
  [[nodiscard]] std::string ModelFile(const TempFolder& folder) const {
    return folder.File(name + ".gguf");
  }
  [[nodiscard]] std::string HeadFile(const TempFolder& folder) const {
    return folder.File(name + "_head.gguf");
  }
  void Write(const TempFolder& folder) const {
    ExpectOk(trunk.architecture.empty() ? WriteRandomGguf(target, ModelFile(folder))
                                        : WriteLibraryModel(trunk, ModelFile(folder)));
    if (trunk.has_mtp) return;
    if (dflash.has_value()) return ExpectOk(WriteRandomDflash(target, *dflash, HeadFile(folder)));
    ExpectOk(assistant.has_value() ? WriteRandomAssistant(*assistant, HeadFile(folder))
                                   : WriteRandomEagle3(target, eagle3, HeadFile(folder)));
  }
  [[nodiscard]] HeadCase WithF32Weights() const {
    HeadCase wide = *this;
    wide.name += "_f32";
    wide.trunk.weight_type = wide.target.weight_type = wide.eagle3.weight_type = "f32";
    if (wide.dflash.has_value()) wide.dflash->weight_type = "f32";
    if (wide.assistant.has_value()) wide.assistant->weight_type = "f32";
    return wide;
  }
};

inline void PrintTo(const HeadCase& one, std::ostream* out) { *out << one.name; }

inline HeadCase MtpCase(std::string name, LibraryModelOptions options) {
  options.has_mtp = options.is_sharp = true;
  return {.name = std::move(name), .trunk = std::move(options)};
}

inline std::shared_ptr<const Model> LoadModel(const ModelOptions& options) {
  auto model = Model::Load(options);
  EXPECT_TRUE(model.ok()) << model.status().ToString();
  return model.ok() ? *std::move(model) : nullptr;
}

// LoadedHead holds the loaded files of a case.
struct LoadedHead {
  LoadedHead(const HeadCase& one, const TempFolder& folder) : source(one.source()) {
    one.Write(folder);
    plain = LoadModel({.path = one.ModelFile(folder)});
    guessing = LoadModel({.path = one.ModelFile(folder), .loads_mtp = one.trunk.has_mtp});
    if (one.trunk.has_mtp) return;
    head = LoadModel({.path = one.HeadFile(folder), .target = guessing});
  }
  [[nodiscard]] std::unique_ptr<Engine> MakeEngine(EngineOptions options = {.threads = 1}) const {
    options.draft_model = head;
    return MakeEngineOf(guessing, options);
  }
  // Opens a session that guesses in every step.
  [[nodiscard]] std::unique_ptr<Session> Open(Engine& engine, SessionOptions options = {}) const {
    options.speculation = source;
    options.least_guesses = options.most_guesses = std::min(options.most_guesses, 6);
    auto session = ebb::Open(engine, options);
    EXPECT_EQ(session->speculation_obstacle(), "");
    return session;
  }

  Speculation source;
  std::shared_ptr<const Model> plain, guessing, head;  // head: null if it is the model's own
};

// An MTP layer of each family that has one.
inline std::vector<HeadCase> MtpCases() {
  // Without sections of RoPE, which the layer's graph of this family does not turn by.
  const std::map<std::string, std::vector<uint32_t>> no_sections = {
      {"rope.dimension_sections", {0, 0, 0, 0}}};
  // With a sliding window in the MTP layer.
  const std::map<std::string, std::vector<uint32_t>> window = {
      {"attention.sliding_window_pattern", {0, 1, 1}}};
  const auto experts = [](std::string family, std::string type,
                          std::map<std::string, std::vector<uint32_t>> sizes) {
    std::string name = "mtp_" + family + "_" + type;
    return MtpCase(std::move(name), {.architecture = std::move(family),
                                     .has_experts = true,
                                     .weight_type = std::move(type),
                                     .sizes_by_layer = std::move(sizes)});
  };
  return {experts("glm4moe", "f32", no_sections),
          experts("glm4moe", "q8_0", no_sections),
          MtpCase("mtp_qwen35_f32", {.architecture = "qwen35"}),
          MtpCase("mtp_qwen35_q8_0", {.architecture = "qwen35", .weight_type = "q8_0"}),
          experts("qwen35moe", "q4_0", {}),
          experts("qwen3next", "f32", {}),
          experts("step35", "f32", {}),
          experts("cohere2moe", "f32", window),
          experts("mimo2", "f32", window),
          experts("hy_v3", "f32", {}),
          experts("deepseek2", "f32", {}),
          experts("nemotron_h_moe", "f32", {}),
          experts("bailingmoe3", "f32", {}),
          experts("step35", "q8_0", window)};
}

// Returns an EAGLE-3 head for a library model. REQUIRES: the model has 128 tokens and rows of
// `embed_dim` numbers.
inline HeadCase Eagle3OfLibraryModel(std::string name, LibraryModelOptions trunk, int embed_dim,
                                     std::vector<int> layers, RandomEagle3Options head = {}) {
  trunk.is_sharp = true;
  head.target_layers = std::move(layers);
  return {.name = std::move(name),
          .trunk = std::move(trunk),
          .target = {.embed_dim = embed_dim,
                     .num_q_heads = 4,
                     .num_kv_heads = 2,
                     .head_dim = 64,
                     .feed_forward_dim = 256,
                     .num_tokens = 128,
                     .context = 256,
                     .tokenizer = RandomGgufOptions::Tokenizer::kMinimal},
          .eagle3 = std::move(head)};
}

inline RandomGgufOptions Eagle3Target(std::string family = "llama") {
  return {.family = std::move(family),
          .num_layers = 4,
          .embed_dim = 128,
          .num_q_heads = 4,
          .num_kv_heads = 2,
          .head_dim = 64,
          .feed_forward_dim = 192,
          .context = 512};
}

// A head with tables of its own; with fewer tokens, another width and other norms; with the
// target's tables; of a hybrid, whose last layer it reads too, with quantised weights.
inline std::vector<HeadCase> Eagle3Cases() {
  RandomGgufOptions qwen3 = Eagle3Target("qwen3");
  qwen3.weight_type = "q8_0";
  return {{.name = "eagle3_llama", .target = Eagle3Target()},
          {.name = "eagle3_few_tokens",
           .target = Eagle3Target(),
           .eagle3 = {.target_layers = {3, 0, 2},
                      .embed_dim = 192,
                      .num_drafted = 100,
                      .norm_before_residual = true}},
          {.name = "eagle3_qwen3",
           .target = qwen3,
           .eagle3 = {.tables = RandomEagle3Options::Tables::kTargets,
                      .norm_before_fc = true,
                      .weight_type = "q8_0"}},
          Eagle3OfLibraryModel("eagle3_qwen35", {.architecture = "qwen35", .weight_type = "q8_0"},
                               256, {0, 1, 2})};
}

// DFlash heads of a dense model, with a window in a layer, and of a hybrid.
inline std::vector<HeadCase> DflashCases() {
  RandomGgufOptions qwen3 = Eagle3Target("qwen3");
  qwen3.weight_type = "q8_0";
  HeadCase hybrid = Eagle3OfLibraryModel(
      "dflash_qwen35", {.architecture = "qwen35", .weight_type = "q8_0"}, 256, {});
  hybrid.dflash = {.target_layers = {1, 0}, .block_size = 16};
  return {{.name = "dflash_llama", .target = Eagle3Target(), .dflash = {{}}},
          {.name = "dflash_qwen3",
           .target = qwen3,
           .dflash = {{.target_layers = {3, 1}, .sliding_window = 20, .weight_type = "q8_0"}}},
          hybrid};
}

// Assistants of models whose last layers have rows of their own, and read those of others.
inline std::vector<HeadCase> AssistantCases() {
  LibraryModelOptions plain = {.architecture = "gemma4", .weight_type = "q8_0", .is_sharp = true};
  LibraryModelOptions shared = Gemma4WithSharedRows();
  shared.is_sharp = true;
  return {{.name = "assistant", .trunk = plain, .assistant = {{.weight_type = "q8_0"}}},
          {.name = "assistant_shared_rows", .trunk = shared, .assistant = {{}}}};
}

}  // namespace ebb

#endif  // EBB_TESTS_ENGINE_HEADS_HEAD_CASES_H_

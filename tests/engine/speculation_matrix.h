// SpeculationMatrix decodes with each source of guesses, all tiers, greedily and sampled, in the
// ways in which a server runs a session. Texts and logits are those of plain decoding alone.
#ifndef EBB_TESTS_ENGINE_SPECULATION_MATRIX_H_
#define EBB_TESTS_ENGINE_SPECULATION_MATRIX_H_

#include <gmock/gmock.h>

#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "ebb/generate.h"
#include "ebb/sampler.h"
#include "ebb/session_file.h"
#include "tests/engine/engine_fixture.h"
#include "tests/support/engine/library_models.h"

namespace ebb {

// MatrixModel is a row of the matrix: a model, and how many tokens each text has.
struct MatrixModel {
  std::string name;
  std::function<std::shared_ptr<const Model>()> load;
  int num_tokens = 90;
};
inline void PrintTo(const MatrixModel& model, std::ostream* out) { *out << model.name; }

inline std::shared_ptr<const Model> LibraryModelOf(const LibraryModelOptions& options) {
  const TempFolder folder;
  ExpectOk(WriteLibraryModel(options, folder.File("model.gguf")));
  auto model = Model::Load({.path = folder.File("model.gguf"), .loads_mtp = options.has_mtp});
  ExpectOk(model.status());
  return *model;
}

struct Tiers {
  std::string name;
  std::optional<TierSetting> setting;
};

inline std::vector<Tiers> AllTiers() {
  return {{"T0", {}},
          {"T1 file", TierSetting{.engine = {.t1 = T1Place::kFile}, .shares = {.t0_share = 0.3}}},
          {"q4", CompressedCache(CompressedType::kInt4)}};
}

// Talk is a session with its generation.
struct Talk {
  Talk(const Model& model, std::unique_ptr<Session> own, float temperature, uint64_t seed,
       int num_tokens)
      : session(std::move(own)),
        sampler(*Sampler::Create(model, {.temperature = temperature, .seed = seed})) {
    Begin({}, num_tokens);
  }
  // Begins, or continues, the text with at most `most` tokens.
  void Begin(AnswerSoFar so_far, int most) {
    generation =
        std::make_unique<Generation>(session.get(), sampler.get(),
                                     GenerateOptions{.so_far = std::move(so_far),
                                                     .max_tokens = most,
                                                     .on_end = GenerateOptions::OnEnd::kIgnore});
  }
  // Decodes up to `most` tokens alone. Returns whether the text goes on.
  bool Decode(int most) {
    for (int i = 0; i < most; ++i) {
      const std::optional<Token> token = generation->Next();
      if (!token.has_value()) return false;
      generation->Appended(
          session->Decode(*token, generation->Guesses(), generation->most_guesses()));
    }
    return true;
  }

  std::unique_ptr<Session> session;
  std::unique_ptr<Sampler> sampler;
  std::unique_ptr<Generation> generation;
};

struct Text {
  std::vector<Token> tokens;
  uint64_t hash = 0;
  bool operator==(const Text&) const = default;
};

inline Text TextOf(Talk* run) {
  const GenerateResult result = run->generation->End();
  ExpectOk(result.error);
  EXPECT_TRUE(std::isfinite(run->session->logits().front()));
  return {result.answer.tokens, run->session->logits_hash()};
}

class SpeculationMatrix : public testing::TestWithParam<MatrixModel> {
 protected:
  struct Cell {
    Tiers tiers;
    Speculation speculation = Speculation::kOff;
    float temperature = 0;
  };

  // Returns an engine of the cell; null: this machine has no such tiers.
  std::unique_ptr<Engine> EngineOf(const Cell& cell) const {
    EngineOptions options = {.threads = 1};
    if (cell.speculation != Speculation::kMtp) options.draft_model = model_;
    if (cell.tiers.setting.has_value()) options.tiers = cell.tiers.setting->engine;
    auto engine = Engine::Create(model_, options);
    if (engine.status().code() == StatusCode::kUnsupported) return nullptr;
    ExpectOk(engine.status());
    return *std::move(engine);
  }
  SessionOptions OptionsOf(const Cell& cell) const {
    SessionOptions options = {.speculation = cell.speculation, .least_guesses = 5};
    if (cell.tiers.setting.has_value()) {
      options.policy.tiers = cell.tiers.setting->shares;
      if (!CompressesOldRows(options.policy.tiers)) {
        options.policy.window = 16;
        options.policy.interval = 8;
      }
      if (model_->shape().SmallestWindow() > 0) {
        options.policy.granularity = Granularity::kLayer;
      }
    }
    return options;
  }
  Talk Open(Engine& engine, const Cell& cell, uint64_t seed = 3) const {
    auto session = ebb::Open(engine, OptionsOf(cell));
    session->Predict(predicted_);
    std::vector<Token> prompt = SomeTokens(80);
    for (Token& token : prompt) token %= model_->shape().vocab_size;
    ExpectOk(session->Prefill(prompt));
    return Talk(*model_, std::move(session), cell.temperature, seed, num_tokens_);
  }

  Text Alone(Engine& engine, const Cell& cell) {
    Talk run = Open(engine, cell);
    run.Decode(num_tokens_);
    num_guesses_ += run.session->speculation_report().drafted;
    return TextOf(&run);
  }
  // Returns the text of one of four sessions that decode together.
  Text InABatch(Engine& engine, const Cell& cell) {
    std::vector<Talk> runs;
    for (uint64_t i = 0; i < 4; ++i) runs.push_back(Open(engine, cell, 3 + i));
    while (true) {
      std::vector<SessionStep> parts;
      for (Talk& run : runs) {
        const std::optional<Token> token = run.generation->Next();
        if (!token.has_value()) continue;
        parts.push_back({.session = run.session.get(),
                         .token = token,
                         .most_guesses = run.generation->most_guesses(),
                         .guess = run.generation->Guesses()});
      }
      if (parts.size() < runs.size()) break;  // all texts are as long
      const StepOutcome outcome = engine.Step(parts);
      for (Talk& run : runs) run.generation->Appended(outcome);
      ExpectOk(outcome.status);
    }
    return TextOf(&runs.front());
  }
  Text Preempted(Engine& engine, const Cell& cell) {
    Talk run = Open(engine, cell);
    while (run.Decode(13)) {
      if (cell.tiers.setting.has_value() && cell.tiers.setting->engine.t1 != T1Place::kNone) {
        ExpectOk(run.session->Park());
      }
    }
    return TextOf(&run);
  }
  // Returns the text of a session that a file held in between.
  Text Resumed(Engine& engine, const Cell& cell) {
    Talk run = Open(engine, cell);
    const int before = num_tokens_ / 2;
    run.Decode(before);
    const TempFolder folder;
    ExpectOk(SaveSession(*run.session, folder.File("session")));
    auto resumed = ResumeSession(engine, folder.File("session"), OptionsOf(cell));
    ExpectOk(resumed.status());
    const GenerateResult half = run.generation->End();
    run.session = std::move(resumed->session);
    run.Begin(half.answer, num_tokens_ - before);
    run.Decode(num_tokens_);
    return TextOf(&run);
  }

  // Compares every cell with plain decoding.
  void CompareAll() {
    for (const Tiers& tiers : AllTiers()) {
      for (const float temperature : {0.0F, 0.8F}) {
        predicted_.clear();
        Cell cell = {.tiers = tiers, .temperature = temperature};
        const auto plain_engine = EngineOf(cell);
        if (plain_engine == nullptr) continue;
        const Text expected = Alone(*plain_engine, cell);
        ASSERT_EQ(static_cast<int>(expected.tokens.size()), num_tokens_);
        predicted_ = expected.tokens;
        for (size_t i = 9; i < predicted_.size(); i += 10) predicted_[i] = predicted_[i - 5];
        for (const Speculation source :
             {Speculation::kLookup, Speculation::kModel, Speculation::kMtp, Speculation::kAuto}) {
          if (source == Speculation::kMtp && !model_->mtp_obstacle().empty()) continue;
          SCOPED_TRACE(GetParam().name + ", " + tiers.name + ", temperature " +
                       std::to_string(temperature) + ", source " +
                       std::to_string(static_cast<int>(source)));
          cell.speculation = source;
          num_guesses_ = 0;
          const auto engine = EngineOf(cell);
          EXPECT_EQ(Alone(*engine, cell), expected) << "alone";
          EXPECT_GT(num_guesses_, 0);
          EXPECT_EQ(InABatch(*engine, cell), expected) << "in a batch";
          EXPECT_EQ(Preempted(*engine, cell), expected) << "preempted";
          EXPECT_EQ(Resumed(*engine, cell), expected) << "resumed";
        }
      }
    }
  }

  const std::shared_ptr<const Model> model_ = GetParam().load();
  const int num_tokens_ = GetParam().num_tokens;
  std::vector<Token> predicted_;  // a text that lookup guesses from
  int64_t num_guesses_ = 0;
};

}  // namespace ebb

#endif  // EBB_TESTS_ENGINE_SPECULATION_MATRIX_H_

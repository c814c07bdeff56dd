#include "src/step/rotation/key_rotation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <memory>
#include <numeric>
#include <vector>

#include "ggml-cpu.h"
#include "ggml.h"
#include "src/base/ggml_deleter.h"

namespace ebb {
namespace {

constexpr int kHeadDim = 64;
constexpr int kRopeDims = 32;  // RoPE leaves the other dimensions of a head unchanged

// KeyTurns rotates random keys.
class KeyTurns : public testing::TestWithParam<int> {
 protected:
  KeyTurns() : backend_(ggml_backend_cpu_init()) {
    model_.hparams.head_dim = kHeadDim;
    model_.hparams.rope_dims = kRopeDims;
    model_.hparams.rope_mode = GetParam();
    model_.hparams.rope_base = 10000;
    model_.hparams.rope_original_context = 4096;
    model_.layers.resize(1);
  }

  void Fill(int num_rows) {
    keys_.assign(num_rows, std::vector<float>(kHeadDim));
    for (int row = 0; row < num_rows; ++row) {
      for (int i = 0; i < kHeadDim; ++i) keys_[row][i] = std::sin(static_cast<float>(row + 7 * i));
    }
  }
  const float* Key(int row) const { return keys_[row].data(); }

  // Returns the rotated key, in double, by definition: pair i turns by turn * base^(-2 i / dims).
  static std::vector<double> Turned(std::vector<double> key, Position turn) {
    for (int i = 0; i < kRopeDims / 2; ++i) {
      const double angle = turn * std::pow(10000.0, -2.0 * i / kRopeDims);
      const bool halves = GetParam() == GGML_ROPE_TYPE_NEOX;
      double& a = key[halves ? i : 2 * i];
      double& b = key[halves ? i + kRopeDims / 2 : 2 * i + 1];
      const double x = a, y = b;
      a = x * std::cos(angle) - y * std::sin(angle);
      b = x * std::sin(angle) + y * std::cos(angle);
    }
    return key;
  }

  void TurnAndCompare(const std::vector<Position>& turns) {
    Fill(static_cast<int>(turns.size()));
    std::vector<std::vector<double>> expected;
    for (size_t row = 0; row < turns.size(); ++row) {
      const float* key = Key(static_cast<int>(row));
      expected.push_back(Turned({key, key + kHeadDim}, turns[row]));
    }
    std::vector<std::byte*> keys;
    for (std::vector<float>& key : keys_) keys.push_back(reinterpret_cast<std::byte*>(key.data()));
    const KeyRotator by = {.model = model_,
                           .kernel = CpuAttention(),
                           .type = RowType::kF32,
                           .backend = backend_.get()};
    ASSERT_TRUE(RotateKeysOfStream(by, 0, keys, turns).ok());
    for (size_t row = 0; row < turns.size(); ++row) {
      for (int i = 0; i < kHeadDim; ++i) {
        ASSERT_NEAR(Key(static_cast<int>(row))[i], expected[row][i], 1e-4) << row << " " << i;
      }
    }
  }

  std::unique_ptr<ggml_backend, GgmlDeleter> backend_;
  std::vector<std::vector<float>> keys_;
  LoadedModel model_;
};

TEST_P(KeyTurns, RowsThatStayRunsThatTurnAlikeAndRowsOfTheirOwn) {
  std::vector<Position> turns(4, 0);
  turns.insert(turns.end(), 40, -3);
  turns.insert(turns.end(), {-5, -7, -7, -9});
  turns.insert(turns.end(), 100, -64);
  turns.push_back(-65);
  TurnAndCompare(turns);
}

TEST_P(KeyTurns, EachRowByItsOwn) {
  std::vector<Position> turns(90);
  std::iota(turns.rbegin(), turns.rend(), -89);
  TurnAndCompare(turns);
}

TEST_P(KeyTurns, NothingTurns) { TurnAndCompare(std::vector<Position>(50, 0)); }

INSTANTIATE_TEST_SUITE_P(Modes, KeyTurns,
                         testing::Values(GGML_ROPE_TYPE_NORMAL, GGML_ROPE_TYPE_NEOX),
                         [](const auto& mode) {
                           return mode.param == GGML_ROPE_TYPE_NEOX ? "Halves" : "Neighbours";
                         });

}  // namespace
}  // namespace ebb

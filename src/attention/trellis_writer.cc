// Searches the codes of int2's rows by the Viterbi algorithm. Compiled once per instruction set,
// for speed: without fused multiplications the bits are the same.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "src/attention/cpu_kernels.h"
#include "src/attention/trellis.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/attention/trellis_writer.cc"  // NOLINT(build/include)
#include "hwy/foreach_target.h"                               // IWYU pragma: keep
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace ebb {
namespace HWY_NAMESPACE {

// KeyCodes and ValueCodes describe a trellis: a state is what the next windows need of the codes
// so far. In state s, code c has the level LevelOf(s, c) and leads to state c + StatesOf(s).
struct KeyCodes {
  static constexpr TrellisTable kTable = kKeyTrellis;
  static constexpr int kCodes = 8, kStates = 32;
  // A state has the last two bits, and above them the last three third bits, the newest lowest. A
  // code has its third bit on top.
  static constexpr int LevelOf(int s, int c) {
    const int third_bits = (c >> 2) << 3 | (s >> 2 & 1) << 2 | (s >> 3 & 1) << 1 | (s >> 4 & 1);
    return kTable.first[(c & 3) << 2 | (s & 3)] + kTable.second[third_bits];
  }
  static constexpr int StatesOf(int s) { return 8 * (s >> 2 & 3); }
  static constexpr int kGroupBytes = kTrellisKeyBytes;
  static void Store(int c, int t, std::byte* group) {
    group[t / 4] |= static_cast<std::byte>((c & 3) << (2 * (t % 4)));
    group[16 + t / 4 % 8] |= static_cast<std::byte>((c >> 2) << (t % 4 + t / 32 * 4));
  }
  static constexpr int ElementAtTime(int t) { return KeyAtTime(t); }
};
struct ValueCodes {
  static constexpr TrellisTable kTable = kValueTrellis;
  static constexpr int kCodes = 4, kStates = 64;
  // A state has the last three codes, the newest lowest.
  static constexpr int LevelOf(int s, int c) {
    return kTable.first[c << 2 | (s & 3)] + kTable.second[(s >> 2 & 3) << 2 | (s >> 4 & 3)];
  }
  static constexpr int StatesOf(int s) { return 4 * (s & 15); }
  static constexpr int kGroupBytes = kTrellisValueBytes;
  static void Store(int c, int t, std::byte* group) {
    group[t / 4] |= static_cast<std::byte>(c << (2 * (t % 4)));
  }
  static constexpr int ElementAtTime(int t) { return ValueAtTime(t); }
};

// Levels holds the level of each state and code, less the centre.
template <class Codes>
struct Levels {
  constexpr Levels() {
    for (int s = 0; s < Codes::kStates; ++s) {
      for (int c = 0; c < Codes::kCodes; ++c) {
        of[s][c] = static_cast<float>(Codes::LevelOf(s, c) - Codes::kTable.centre);
      }
    }
  }
  alignas(64) float of[Codes::kStates][Codes::kCodes] = {};
};
template <class Codes>
inline constexpr Levels<Codes> kLevels;

// Search finds the codes of one block, at most kMetricBlock elements in the order of time.
template <class Codes>
class Search {
 public:
  // Finds the codes whose levels are nearest to x[n], in units of levels, and writes these levels,
  // less the centre, to `levels`. metric: null, or [n, n].
  HWY_INLINE void Run(const float* x, int n, KeyMetric metric, float* levels, std::byte* codes) {
    now_ = 0;
    if (metric != nullptr) std::copy_n(x, n, wanted_[0][0]);
    for (int t = 0; t < n; ++t) {
      if (t % kTrellisGroup == 0) BeginGroup(t);
      const float weight = metric == nullptr ? 1.0F : metric[t * n + t];
      Step(x[t], weight, metric == nullptr ? nullptr : metric + t * n, t, n);
      if ((t + 1) % kTrellisGroup == 0) EndGroup(t, metric != nullptr, n);
    }
    int state = 0;
    for (int t = n - 1; t >= 0; --t) {
      if ((t + 1) % kTrellisGroup == 0) state = best_[t / kTrellisGroup];
      const int code = state % Codes::kCodes, before = from_[t][state];
      levels[t] = kLevels<Codes>.of[before][code];
      Codes::Store(code, t % kTrellisGroup, codes + t / kTrellisGroup * Codes::kGroupBytes);
      state = before;
    }
  }

 private:
  static constexpr int kStates = Codes::kStates, kCodes = Codes::kCodes;
  static constexpr float kNever = std::numeric_limits<float>::max();

  void BeginGroup(int t) {
    if (t > 0) return;
    std::fill_n(cost_, kStates, kNever);
    cost_[0] = 0;
  }
  // Keeps the best state, and continues from it in state 0.
  void EndGroup(int t, bool has_metric, int n) {
    const int best = static_cast<int>(std::min_element(cost_, cost_ + kStates) - cost_);
    best_[t / kTrellisGroup] = best;
    const float cost = cost_[best];
    std::fill_n(cost_, kStates, kNever);
    cost_[0] = cost;
    if (has_metric && best != 0)
      std::copy(wanted_[now_][best] + t + 1, wanted_[now_][best] + n, wanted_[now_][0] + t + 1);
  }
  HWY_INLINE void Step(float x, float weight, const float* counts, int t, int n) {
    alignas(64) float wanted[kStates], best[kStates];
    alignas(64) int32_t from[kStates];
    for (int s = 0; s < kStates; ++s) wanted[s] = counts == nullptr ? x : wanted_[now_][s][t];
    std::fill_n(best, kStates, kNever);
    std::fill_n(from, kStates, 0);
    for (int s = 0; s < kStates; ++s) {
      if (cost_[s] == kNever) continue;
      const int to = Codes::StatesOf(s);
      for (int c = 0; c < kCodes; ++c) {
        const float e = wanted[s] - kLevels<Codes>.of[s][c];
        const float cost = cost_[s] + weight * (e * e);
        const bool better = cost < best[to + c];
        best[to + c] = better ? cost : best[to + c];
        from[to + c] = better ? s : from[to + c];
      }
    }
    std::copy_n(best, kStates, cost_);
    for (int s = 0; s < kStates; ++s) from_[t][s] = static_cast<uint8_t>(from[s]);
    if (counts == nullptr) return;
    for (int s = 0; s < kStates; ++s) {
      if (cost_[s] == kNever) continue;
      const float* HWY_RESTRICT before = wanted_[now_][from[s]];
      float* HWY_RESTRICT to = wanted_[1 - now_][s];
      const float e = x - kLevels<Codes>.of[from[s]][s % kCodes];
      for (int i = t + 1; i < n; ++i) to[i] = before[i] + e * counts[i];
    }
    now_ = 1 - now_;
  }

  alignas(64) float cost_[kStates];
  // Holds, for each state, what the elements are to be after the errors of those before them. Two
  // copies, of which now_ is the one that counts.
  alignas(64) float wanted_[2][kStates][kMetricBlock];
  int now_ = 0;
  uint8_t from_[kMetricBlock][kStates];
  int best_[kMetricBlock / kTrellisGroup] = {};
};

// Returns the product of a and b in the metric; null: their plain product.
HWY_INLINE float ProductIn(KeyMetric metric, const float* a, const float* b, int n) {
  float x[kMetricBlock], y[kMetricBlock], sum = 0;
  std::copy_n(a, n, x);
  std::copy_n(b, n, y);
  for (int j = 0; metric != nullptr && j < n; ++j) {
    for (int i = j + 1; i < n; ++i) {
      x[i] += metric[j * n + i] * a[j];
      y[i] += metric[j * n + i] * b[j];
    }
  }
  for (int i = 0; i < n; ++i) sum += (metric == nullptr ? 1.0F : metric[i * n + i]) * (x[i] * y[i]);
  return sum;
}

template <class Codes>
HWY_INLINE float Write(const float* x, int head_dim, KeyMetric metric, std::byte* codes) {
  float squares = 0;
  for (int i = 0; i < head_dim; ++i) squares += x[i] * x[i];
  const float unit = Codes::kTable.unit / std::sqrt(squares / static_cast<float>(head_dim));
  std::memset(codes, 0, size_t(head_dim / kTrellisGroup) * Codes::kGroupBytes);
  Search<Codes> search;
  float of_x = 0, of_levels = 0;
  for (int first = 0; first < head_dim; first += kMetricBlock) {
    const int n = std::min(kMetricBlock, head_dim - first);
    alignas(64) float in_order[kMetricBlock], levels[kMetricBlock];
    for (int t = 0; t < n; ++t) {
      const int group = t / kTrellisGroup * kTrellisGroup;
      in_order[t] = x[first + group + Codes::ElementAtTime(t - group)] * unit;
    }
    search.Run(in_order, n, metric, levels, codes + first / kTrellisGroup * Codes::kGroupBytes);
    of_x += ProductIn(metric, in_order, in_order, n);
    of_levels += ProductIn(metric, in_order, levels, n);
    if (metric != nullptr) metric += n * n;
  }
  return of_levels > 0 ? of_x / of_levels / unit : 1 / unit;
}

float WriteKey(const float* x, int head_dim, KeyMetric metric, std::byte* codes) {
  return Write<KeyCodes>(x, head_dim, metric, codes);
}
float WriteValue(const float* x, int head_dim, std::byte* codes) {
  return Write<ValueCodes>(x, head_dim, nullptr, codes);
}

}  // namespace HWY_NAMESPACE
}  // namespace ebb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace ebb {

HWY_EXPORT(WriteKey);
HWY_EXPORT(WriteValue);

float WriteTrellisKey(const float* x, int head_dim, KeyMetric metric, std::byte* codes) {
  return HWY_DYNAMIC_DISPATCH(WriteKey)(x, head_dim, metric, codes);
}
float WriteTrellisValue(const float* x, int head_dim, std::byte* codes) {
  return HWY_DYNAMIC_DISPATCH(WriteValue)(x, head_dim, codes);
}

}  // namespace ebb

#endif  // HWY_ONCE

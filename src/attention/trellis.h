// Defines the codes of int2's rows: trellis codes of 3 bits for keys and of 2 bits for values.
//
// A trellis code reads the level of an element from a window over its own code and the codes of the
// elements before it, so that few bits choose among many levels: 2 bits an element have three
// quarters of the squared error of the best four levels. The sum of two tables of 16 levels, each
// indexed by a nibble of the window, gives the level, which one byte shuffle for each table
// computes on every processor.
//
// The elements of a group of 64 have an order, their times t from 0 to 63. The first two bits of
// the code at time t are bits 2 * (t % 4) and above of byte t / 4 of the group. The third bit of a
// key is bit t % 4 + 4 * (t / 32) of byte 16 + t / 4 % 8. Codes before time 0 count as 0. Windows:
//   first table: the two bits at time t (high) and t - 1 (low)
//   second table of keys: the third bits at times t (highest), t - 1, t - 2 and t - 3
//   second table of values: the two bits at times t - 2 (high) and t - 3 (low)
// The tables were trained on normally distributed numbers; keys have a squared error of 0.0234 of
// their variance, values 0.088.
#ifndef EBB_ATTENTION_TRELLIS_H_
#define EBB_ATTENTION_TRELLIS_H_

#include <cstddef>
#include <cstdint>

#include "ebb/tiers.h"
#include "src/attention/rows.h"

namespace ebb {

// TrellisTable gives levels n = first[i] + second[j], from 0 to 63. An element is (n - centre) *
// scale. Normally distributed numbers of variance 1 have the scale 1 / unit.
struct TrellisTable {
  uint8_t first[16];
  uint8_t second[16];
  int centre;
  float unit;
};
inline constexpr TrellisTable kKeyTrellis = {
    .first = {4, 16, 21, 11, 11, 22, 7, 17, 28, 0, 14, 4, 17, 12, 0, 8},
    .second = {6, 20, 18, 14, 11, 21, 13, 27, 23, 1, 14, 21, 21, 11, 24, 8},
    .centre = 28,
    .unit = 9.2364F};
inline constexpr TrellisTable kValueTrellis = {
    .first = {18, 16, 16, 4, 3, 21, 12, 23, 28, 8, 4, 12, 12, 0, 25, 16},
    .second = {9, 3, 20, 12, 19, 18, 6, 12, 11, 6, 14, 20, 11, 6, 14, 1},
    .centre = 25,
    .unit = 9.0552F};

inline constexpr int kTrellisGroup = kInt2HeadStep;  // elements of a group
inline constexpr int kTrellisKeyBytes = 24;          // bytes of a group of keys
inline constexpr int kTrellisValueBytes = 16;

// Returns where the element at time t stands when a group is unpacked to 64 bytes: a vector that
// unpacks the first code of each byte gives neighbouring elements.
[[nodiscard]] constexpr int PlaceOfTime(int t) { return 16 * (t % 4) + t / 4; }
// Returns the key, or the value, of a group at time t. Unpacked keys have the order of PlaceOfKey()
// (src/attention/compressed.h).
[[nodiscard]] constexpr int KeyAtTime(int t) {
  return PlaceOfTime(t) / 2 + 32 * (PlaceOfTime(t) % 2);
}
[[nodiscard]] constexpr int ValueAtTime(int t) { return PlaceOfTime(t); }

// Returns the key of a block of groups at time t of the block.
[[nodiscard]] constexpr int KeyOfBlockAtTime(int t) {
  return t / kTrellisGroup * kTrellisGroup + KeyAtTime(t % kTrellisGroup);
}

// Writes the levels of a group, by key or value, to levels[64].
void UnpackTrellisKeys(const std::byte* group, int* levels);
void UnpackTrellisValues(const std::byte* group, int* levels);

// KeyMetric says what errors of the keys of a stream cost: the second moment of the stream's
// queries, rotated, in blocks of up to kMetricBlock channels. For each block of size n it has an
// array [n][n] over times: of row j, element i > j is how much of an error at time j counts at time
// i, and element j is the weight of the squared error that then remains at j. Null: all errors
// count alike.
inline constexpr int kMetricBlock = 128;
using KeyMetric = const float*;
[[nodiscard]] constexpr bool UsesKeyMetric(const CompressedFormat& format) {
  const bool is_coarse =
      format.type == CompressedType::kInt2 || format.type == CompressedType::kInt3;
  // Where a key is the value too, its plain error counts.
  return is_coarse && format.has_values && !format.in_ggml_blocks &&
         format.head_dim % kTrellisGroup == 0;
}
[[nodiscard]] constexpr size_t KeyMetricFloats(int head_dim) {
  const size_t rest = head_dim % kMetricBlock;
  return size_t(head_dim / kMetricBlock) * kMetricBlock * kMetricBlock + rest * rest;
}
// Computes a KeyMetric from the sum of q * transposed(q) over queries before rotation, [head_dim,
// head_dim]. REQUIRES: head_dim is a multiple of kTrellisGroup.
void MakeKeyMetric(const double* moment, int head_dim, float* metric);

// Writes the codes of a key or a value, `x` [head_dim], whose elements are finite and not all 0,
// to `codes`, and returns the scale. The scale keeps the length of x along x itself, since the
// scale of the least error would shorten every row. Gives the same bits on every machine.
float WriteTrellisKey(const float* x, int head_dim, KeyMetric metric, std::byte* codes);
float WriteTrellisValue(const float* x, int head_dim, std::byte* codes);

}  // namespace ebb

#endif  // EBB_ATTENTION_TRELLIS_H_

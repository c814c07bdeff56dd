#include "tests/tools/t2_formats.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "src/attention/attention.h"
#include "src/attention/compressed.h"

namespace ebb {
namespace {

using Row = std::span<float>;
using Rounder = std::function<void(Row)>;

// Scales are as fine as floats here: what 16 bits for them lose is not what is studied.
void RoundSymmetric(Row x, int largest) {
  float magnitude = 0;
  for (const float value : x) magnitude = std::max(magnitude, std::fabs(value));
  const float scale = magnitude / static_cast<float>(largest);
  if (scale == 0) return;
  for (float& value : x) value = std::nearbyint(value / scale) * scale;
}

void RoundAsymmetric(Row x, int largest) {
  const auto [low, high] = std::minmax_element(x.begin(), x.end());
  const float minimum = *low;
  const float scale = (*high - minimum) / static_cast<float>(largest);
  if (scale == 0) return;
  for (float& value : x) value = minimum + std::nearbyint((value - minimum) / scale) * scale;
}

Rounder Symmetric(int bits) {
  return [largest = (1 << (bits - 1)) - 1](Row x) { RoundSymmetric(x, largest); };
}
Rounder Asymmetric(int bits) {
  return [largest = (1 << bits) - 1](Row x) { RoundAsymmetric(x, largest); };
}
Rounder InBlocks(size_t size, Rounder rounder) {
  return [size, rounder = std::move(rounder)](Row x) {
    for (size_t i = 0; i < x.size(); i += size) rounder(x.subspan(i, std::min(size, x.size() - i)));
  };
}
// The rotation is its own inverse.
Rounder Rotated(Rounder rounder) {
  return [rounder = std::move(rounder)](Row x) {
    Rotate(x.data(), static_cast<int>(x.size()));
    rounder(x);
    Rotate(x.data(), static_cast<int>(x.size()));
  };
}

void RoundToF16(Row x) {
  std::array<std::byte, 2 * kMaxHeadDim> f16;
  const int count = static_cast<int>(x.size());
  ReferenceAttention().store_row(RowType::kF16, x.data(), f16.data(), count);
  ReferenceAttention().load_row(RowType::kF16, f16.data(), x.data(), count);
}

// Each element with those that stand at its place in the other rows.
std::function<void(std::span<const Row>)> ByChannel(Rounder rounder) {
  return [rounder = std::move(rounder)](std::span<const Row> rows) {
    std::vector<float> channel(rows.size());
    for (size_t i = 0; i < rows.front().size(); ++i) {
      for (size_t r = 0; r < rows.size(); ++r) channel[r] = rows[r][i];
      rounder(channel);
      for (size_t r = 0; r < rows.size(); ++r) rows[r][i] = channel[r];
    }
  };
}

// What CompressRow() does, without the rounding of queries.
StudiedFormat Built(std::string name, CompressedType type, double bits) {
  const auto through = [type](Row x, bool is_key) {
    const CompressedFormat format = {.type = type, .head_dim = static_cast<int>(x.size())};
    std::vector<std::byte> row(format.RowStride());
    std::vector<float> other(x.size());
    CompressRow(format, {}, is_key ? x.data() : other.data(), is_key ? other.data() : x.data(),
                row.data());
    DecompressRow(format, nullptr, row.data(), is_key ? x.data() : other.data(),
                  is_key ? other.data() : x.data());
  };
  return {.name = std::move(name),
          .bits_per_element = bits,
          .key = [through](Row x) { through(x, true); },
          .keys_by_channel = nullptr,
          .value = [through](Row x) { through(x, false); }};
}

}  // namespace

std::vector<StudiedFormat> StudiedFormats() {
  const auto rows = [](std::string name, double bits, Rounder key, Rounder value) {
    return StudiedFormat{std::move(name), bits, std::move(key), nullptr, std::move(value)};
  };
  const auto channels = [](std::string name, double bits, Rounder keys, Rounder value) {
    return StudiedFormat{std::move(name), bits, nullptr, ByChannel(std::move(keys)),
                         std::move(value)};
  };
  const auto centred = [](StudiedFormat format, StudiedFormat::Centre centre) {
    format.key_centre = centre;
    format.name += centre == StudiedFormat::Centre::kPage ? ", keys less the mean of their page"
                                                          : ", keys less the mean of the stream";
    return format;
  };
  using enum StudiedFormat::Centre;
  const auto key = [](int bits) { return Rotated(Asymmetric(bits)); };
  const auto value = [](int bits, size_t block) {
    return Rotated(InBlocks(block, Asymmetric(bits)));
  };
  const Rounder blocks4 = InBlocks(32, Asymmetric(4));
  const StudiedFormat int8 = Built("codes of int8", CompressedType::kInt8, 8.25);
  const StudiedFormat int4 = Built("codes of int4", CompressedType::kInt4, 5.75);
  return {
      rows("f16", 16, RoundToF16, RoundToF16),
      rows("int8 a row (naive)", 8.25, Symmetric(8), Symmetric(8)),
      rows("int8 a row, rotated", 8.25, Rotated(Symmetric(8)), Rotated(Symmetric(8))),
      channels("int8 keys by channel, values rotated", 8.375, Symmetric(8), Rotated(Symmetric(8))),
      rows("int8 keys, int4 values, rotated", 6.625, Rotated(Symmetric(8)), Rotated(blocks4)),
      rows("6-bit keys, int4 values, rotated", 5.75, Rotated(Asymmetric(6)), Rotated(blocks4)),
      rows("5-bit keys, int4 values, rotated", 5.25, Rotated(Asymmetric(5)), Rotated(blocks4)),
      channels("int4 keys by channel, values in blocks of 32", 5, Asymmetric(4), blocks4),
      rows("int4 in blocks of 32, rotated", 5, Rotated(blocks4), Rotated(blocks4)),
      rows("int4 in blocks of 32", 5, blocks4, blocks4),
      rows("int4 a row (naive)", 4.25, Symmetric(4), Symmetric(4)),
      int8,
      int4,
      centred(int8, kStream),
      centred(int4, kStream),
      centred(int4, kPage),
      centred(rows("6-bit keys, exact values", 11, key(6), [](Row) {}), kStream),
      centred(rows(
                  "exact keys, int4 values", 10.5, [](Row) {}, value(4, 32)),
              kStream),
      centred(rows("int4 in blocks of 32, rotated", 5, value(4, 32), value(4, 32)), kStream),
      centred(rows("int4 in blocks of 32, rotated", 5, value(4, 32), value(4, 32)), kPage),
      centred(rows("4-bit keys, 3-bit values in blocks of 64", 4, key(4), value(3, 64)), kStream),
      centred(rows("5-bit keys, 2-bit values in blocks of 32", 4.25, key(5), value(2, 32)),
              kStream),
  };
}

}  // namespace ebb

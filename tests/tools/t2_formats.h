// Number formats that T2 could have had, as what they do to rows: rounded and back.
#ifndef EBB_TESTS_TOOLS_T2_FORMATS_H_
#define EBB_TESTS_TOOLS_T2_FORMATS_H_

#include <functional>
#include <span>
#include <string>
#include <vector>

namespace ebb {

// Rows that per-channel formats bind together.
inline constexpr int kChannelRows = 32;

struct StudiedFormat {
  std::string name;
  double bits_per_element = 0;  // scales of 16 bits included, at a head size of 64
  // Each changes one row, or kChannelRows of them, [rows][head_dim]. Keys have one or the other.
  std::function<void(std::span<float> key)> key;
  std::function<void(std::span<const std::span<float>> keys)> keys_by_channel;
  std::function<void(std::span<float> value)> value;
};

[[nodiscard]] std::vector<StudiedFormat> StudiedFormats();

}  // namespace ebb

#endif  // EBB_TESTS_TOOLS_T2_FORMATS_H_

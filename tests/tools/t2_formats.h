// Number formats that T2 could have had, as what they do to rows: rounded and back.
#ifndef EBB_TESTS_TOOLS_T2_FORMATS_H_
#define EBB_TESTS_TOOLS_T2_FORMATS_H_

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace ebb {

// Rows that per-channel formats bind together.
inline constexpr int kChannelRows = 32;
// Rows that a centre is the mean of.
inline constexpr int kCentreRows = 64;

struct StudiedFormat {
  std::string name;
  double bits_per_element = 0;  // scales of 16 bits included, at a head size of 64
  // Each changes one row, or kChannelRows of them, [rows][head_dim]. Keys have one or the other,
  // and `key` is given a key less its centre.
  std::function<void(std::span<float> key)> key;
  std::function<void(std::span<const std::span<float>> keys)> keys_by_channel;
  std::function<void(std::span<float> value)> value;
  enum class Centre : uint8_t {
    kNone,
    kStream,  // the mean of a stream's first kCentreRows keys
    kPage,    // the mean of the kCentreRows keys around it
  };
  Centre key_centre = Centre::kNone;
};

[[nodiscard]] std::vector<StudiedFormat> StudiedFormats();

}  // namespace ebb

#endif  // EBB_TESTS_TOOLS_T2_FORMATS_H_

// TurningKeys gives the host access to the keys that are to be re-rotated, for all rows of a group:
// in place, or as copies if they lie in the memory of a device.
#ifndef EBB_STEP_ROTATION_TURNING_KEYS_H_
#define EBB_STEP_ROTATION_TURNING_KEYS_H_

#include <cstddef>
#include <span>
#include <vector>

#include "ebb/status.h"
#include "ebb/types.h"
#include "src/device/device.h"
#include "src/kv/sequence_cache.h"

namespace ebb {

class TurningKeys {
 public:
  // Lists the keys of the rows that must be rotated: those whose element in `turns`, [rows], is not
  // 0. May throw std::bad_alloc. REQUIRES: cache and device outlive this.
  TurningKeys(SequenceCache* cache, Device* device, int group, std::span<const Position> turns);
  // Copies the keys from the device to the host, if they lie there. Errors: the device's.
  Status Read();
  // Copies the rotated keys back to the device, if they lie there.
  Status Write();

  // Returns the keys of stream `stream` of cache.layout().StreamsOf(group), by row; null for rows
  // that do not turn.
  [[nodiscard]] std::span<std::byte* const> OfStream(size_t stream) const {
    return std::span(keys_).subspan(stream * num_rows_, num_rows_);
  }

 private:
  Device* const device_;
  const size_t num_rows_, row_bytes_;
  std::vector<std::byte*> keys_;       // [streams, rows]
  std::vector<std::byte*> on_device_;  // device addresses; empty if the host can access keys_
  std::vector<std::byte> copies_;
};

}  // namespace ebb

#endif  // EBB_STEP_ROTATION_TURNING_KEYS_H_

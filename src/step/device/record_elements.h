// Reads elements of compressed rows (formats: src/attention/compressed.h), and computes the
// Hadamard rotation, in plain functions that both the processor's loops and the CUDA kernels call,
// so that tests on the processor cover both. C++17, because nvcc compiles this header.
#ifndef EBB_STEP_DEVICE_RECORD_ELEMENTS_H_
#define EBB_STEP_DEVICE_RECORD_ELEMENTS_H_

#include <cmath>
#include <cstdint>
#include <cstring>

#ifdef __CUDACC__
#define EBB_HOST_DEVICE __host__ __device__ inline
#else
#define EBB_HOST_DEVICE inline
#endif

namespace ebb {

enum class RecordType : uint8_t { kInt8, kInt4, kInt3 };

// RecordFormat is a CompressedFormat as device code needs it. A record holds the key and value of a
// row.
struct RecordFormat {
  RecordType type = RecordType::kInt8;
  bool is_rotated = true;
  bool has_values = true;
  int head_dim = 0;
  // `stride` is the size of a record, `values` and `scales` are offsets in it; all in bytes, and
  // multiples of 4.
  int stride = 0, values = 0, scales = 0;
};

// RecordScale is a word of two bf16s: a scale in the high half, a minimum in the low half.
struct RecordScale {
  float scale, minimum;
};
EBB_HOST_DEVICE RecordScale ScaleAt(const uint8_t* word) {
  uint32_t bits;
  memcpy(&bits, word, sizeof(bits));
  const uint32_t high = bits & 0xffff0000u, low = bits << 16;
  RecordScale scale;
  memcpy(&scale.scale, &high, sizeof(high));
  memcpy(&scale.minimum, &low, sizeof(low));
  return scale;
}

// Returns element i of the stored key: relative to its centre and, if the format is rotated,
// rotated.
template <RecordType kType>
EBB_HOST_DEVICE float KeyElement(const RecordFormat& format, const uint8_t* record, int i) {
  const RecordScale by = ScaleAt(record + format.scales);
  if (kType == RecordType::kInt8) {
    return static_cast<float>(static_cast<int8_t>(record[i])) * by.minimum;
  }
  const int group_bytes = kType == RecordType::kInt4 ? 48 : 32;
  const int packed = format.head_dim / 64 * 64;
  int n = 0;
  if (i < packed) {
    const uint8_t* const group = record + i / 64 * group_bytes;
    const int at = 2 * (i % 32) + i % 64 / 32;
    n = group[at % 32] >> (at / 32 * 4) & 15;
    if (kType == RecordType::kInt4) n |= (group[32 + at % 16] >> (at / 16 * 2) & 3) << 4;
  } else {
    n = record[packed / 64 * group_bytes + i - packed];
  }
  return by.minimum + static_cast<float>(n) * by.scale;
}

// Returns element i of the stored value, or of the key if the format has no values.
template <RecordType kType>
EBB_HOST_DEVICE float ValueElement(const RecordFormat& format, const uint8_t* record, int i) {
  if (!format.has_values) return KeyElement<kType>(format, record, i);
  const uint8_t* const values = record + format.values;
  if (kType == RecordType::kInt8) {
    return static_cast<float>(static_cast<int8_t>(values[i])) *
           ScaleAt(record + format.scales).scale;
  }
  const int block_size = kType == RecordType::kInt4 ? 32 : 64;
  const RecordScale by = ScaleAt(record + format.scales + 4 + i / block_size * 4);
  const int packed = format.head_dim / 64 * 64;
  int n = 0;
  if (kType == RecordType::kInt4) {
    if (i < packed) {
      n = values[i / 64 * 32 + i % 32] >> (i % 64 / 32 * 4) & 15;
    } else if (i < format.head_dim / 32 * 32) {
      n = values[packed / 2 + i % 16] >> (i % 32 / 16 * 4) & 15;
    } else {
      n = values[format.head_dim / 32 * 16 + i % 32];
    }
  } else {
    const uint8_t* const block = values + i / 64 * 24;
    if (i < packed) {
      n = (block[i % 16] >> (i % 64 / 16 * 2) & 3) | (block[16 + i % 8] >> (i % 64 / 8) & 1) << 2;
    } else {
      n = block[i % 64];
    }
  }
  return by.minimum + static_cast<float>(n) * by.scale;
}

// Rotates `x` in place, as Rotate() does. Several lanes call it together; sync() makes each lane's
// writes visible to the others.
#ifdef __CUDACC__
#pragma nv_exec_check_disable  // because sync() may be a function of the device only
#endif
template <typename Sync>
EBB_HOST_DEVICE void RotateByLanes(float* x, int head_dim, int lane, int num_lanes,
                                   const Sync& sync) {
  for (int first = 0; first < head_dim;) {
    int size = 1;
    while (2 * size <= head_dim - first) size *= 2;
    for (int half = 1; half < size; half *= 2) {
      sync();
      for (int pair = lane; pair < size / 2; pair += num_lanes) {
        float* const low = x + first + pair / half * 2 * half + pair % half;
        const float a = low[0], b = low[half];
        low[0] = a + b;
        low[half] = a - b;
      }
    }
    sync();
    const float norm = 1 / std::sqrt(static_cast<float>(size));
    for (int i = lane; i < size; i += num_lanes) x[first + i] *= norm;
    first += size;
  }
  sync();
}

}  // namespace ebb

#endif  // EBB_STEP_DEVICE_RECORD_ELEMENTS_H_

// Defines the head sizes that the attention kernels support.
#ifndef EBB_BASE_HEAD_SIZES_H_
#define EBB_BASE_HEAD_SIZES_H_

namespace ebb {

// kHeadDimStep is a divisor of every head size.
inline constexpr int kHeadDimStep = 16;
inline constexpr int kMaxHeadDim = 576;  // size of the keys in latent attention

// Returns the size of stored rows for heads of `dim` elements: `dim` rounded up to kHeadDimStep,
// with zeros as the added elements.
constexpr int PaddedHeadDim(int dim) {
  return (dim + kHeadDimStep - 1) / kHeadDimStep * kHeadDimStep;
}

}  // namespace ebb

#endif  // EBB_BASE_HEAD_SIZES_H_

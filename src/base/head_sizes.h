// Defines the head sizes that the attention kernels support.
#ifndef EBB_BASE_HEAD_SIZES_H_
#define EBB_BASE_HEAD_SIZES_H_

namespace ebb {

// kHeadDimStep divides every head size.
inline constexpr int kHeadDimStep = 16;
inline constexpr int kMaxHeadDim = 576;  // of keys of latent attention

// Returns the size, in elements, of the rows of heads of `dim` elements: `dim` rounded up to
// kHeadDimStep; the added elements are zero.
constexpr int PaddedHeadDim(int dim) {
  return (dim + kHeadDimStep - 1) / kHeadDimStep * kHeadDimStep;
}

}  // namespace ebb

#endif  // EBB_BASE_HEAD_SIZES_H_

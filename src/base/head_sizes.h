// The sizes of heads that the kernels of attention take.
#ifndef EBB_BASE_HEAD_SIZES_H_
#define EBB_BASE_HEAD_SIZES_H_

namespace ebb {

// Head sizes are multiples of this.
inline constexpr int kHeadDimStep = 16;
inline constexpr int kMaxHeadDim = 576;  // of keys of latent attention

// Returns the size of the rows of heads of `dim` elements, with zeros behind them.
constexpr int PaddedHeadDim(int dim) {
  return (dim + kHeadDimStep - 1) / kHeadDimStep * kHeadDimStep;
}

}  // namespace ebb

#endif  // EBB_BASE_HEAD_SIZES_H_

// The sizes of heads that the kernels of attention take.
#ifndef EBB_BASE_HEAD_SIZES_H_
#define EBB_BASE_HEAD_SIZES_H_

namespace ebb {

// Head sizes are multiples of this.
inline constexpr int kHeadDimStep = 16;
inline constexpr int kMaxHeadDim = 576;  // of keys of latent attention

}  // namespace ebb

#endif  // EBB_BASE_HEAD_SIZES_H_

// The papers' counts, for models whose weights are not at hand. Pure arithmetic.
#ifndef EBB_FIT_PROJECTIONS_H_
#define EBB_FIT_PROJECTIONS_H_

#include <cstdint>

#include "ebb/fit.h"

namespace ebb {

// Bytes of f16 keys and values of one token, by so many heads a layer.
[[nodiscard]] uint64_t CacheBytesPerToken(int num_layers, int num_heads, int head_dim);

// Eq. 2 and 3 of "Inference-Time Hyper-Scaling", Appendix G. In Eq. 3 the paper prints 4 d d_ff
// where its own figures (7.5 billion parameters) need 4 d d_kv, which is what this counts; the
// first coefficient of its Eq. 4, 1.45e9, is 1.50e10 by its Eq. 2.
[[nodiscard]] double StepFlops(const PaperShape& shape, int64_t batch, int64_t tokens);
[[nodiscard]] double StepReadBytes(const PaperShape& shape, int64_t batch, int64_t tokens);
[[nodiscard]] double CacheReadBytes(const PaperShape& shape, int64_t batch, int64_t tokens);

}  // namespace ebb

#endif  // EBB_FIT_PROJECTIONS_H_

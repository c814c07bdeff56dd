#include "src/sequence/shown_logits.h"

#include <xxhash.h>

namespace ebb {

void ShownLogits::AddToHash() {
  hash = XXH3_64bits_withSeed(values.data(), values.size() * sizeof(float), hash);
}

}  // namespace ebb

// Stores f16 vectors of keys in blocks of sixteen that are interleaved channel by channel, so that
// a SIMD loop multiplies a query with sixteen of them at once and needs no horizontal sum. An entry
// has one or two vectors: a key; the mean and the variance of a page's keys; or the lowest and the
// highest numbers of a page's keys. Results are the same bits in each instruction set.
#ifndef EBB_POLICY_SELECTORS_KEY_BLOCKS_H_
#define EBB_POLICY_SELECTORS_KEY_BLOCKS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "src/base/mapped_array.h"

namespace ebb {

class KeyBlocks {
 public:
  static constexpr size_t kBlock = 16;  // entries

  // Returns the most bytes that are allocated after MakeRoom(num_entries).
  [[nodiscard]] static size_t BytesFor(size_t num_streams, size_t dim, size_t vectors,
                                       size_t num_entries) {
    return num_streams * RoomFor(num_entries) * kBlock * vectors * dim * sizeof(uint16_t);
  }

  // Makes empty blocks. vectors: 1 or 2 per entry.
  KeyBlocks(int num_streams, int dim, int vectors)
      : num_streams_(num_streams), dim_(dim), vectors_(vectors) {}

  // Allocates room for `num_entries` entries in each stream and keeps the stored entries. May throw
  // std::bad_alloc.
  void MakeRoom(size_t num_entries);
  // Frees memory if there is room for more than twice `num_entries`. REQUIRES: no stream has more
  // entries.
  void Shrink(size_t num_entries);
  // Stores an entry. values: [vectors, dim], finite f16 numbers. REQUIRES: MakeRoom() made room for
  // it.
  void Put(int stream, size_t entry, std::span<const uint16_t> values);
  // Copies an entry to `values` [vectors, dim].
  void Get(int stream, size_t entry, std::span<uint16_t> values) const;

  // Multiplies queries with the first num_entries entries, rounded up to whole blocks; results
  // beyond num_entries are unspecified. products[i, e] is the sum over channels of q[i, c] *
  // first[e, c]; with two vectors, squares[i, e] is the sum of q[i, c]^2 * second[e, c]. q:
  // [queries, dim]; products, squares: [queries, stride]. Computes one of num_parts parts; several
  // threads may call it at once for different parts.
  void Multiply(int stream, std::span<const float> q, size_t num_entries, int part, int num_parts,
                size_t stride, float* products, float* squares) const;

  // Returns a pointer to the first number of an entry. Its next number is kBlock further on: the
  // numbers of all its vectors in channel 0, then in channel 1. The numbers of the block's other
  // entries lie in between.
  [[nodiscard]] const uint16_t* At(int stream, size_t entry) const {
    return blocks_.data() + IndexOf(stream, entry);
  }
  [[nodiscard]] uint16_t* At(int stream, size_t entry) {
    return blocks_.data() + IndexOf(stream, entry);
  }
  [[nodiscard]] size_t CapacityBytes() const { return blocks_.capacity() * sizeof(uint16_t); }

  [[nodiscard]] static size_t RoundUp(size_t num_entries) {
    return (num_entries + kBlock - 1) / kBlock * kBlock;
  }

 private:
  [[nodiscard]] size_t BlockNumbers() const { return kBlock * vectors_ * dim_; }
  [[nodiscard]] size_t IndexOf(int stream, size_t entry) const {
    return (stream * room_ + entry / kBlock) * BlockNumbers() + entry % kBlock;
  }

  // Returns the blocks to allocate for `num_entries` entries: a quarter more than they need.
  [[nodiscard]] static size_t RoomFor(size_t num_entries) {
    const size_t num_blocks = RoundUp(num_entries) / kBlock;
    return num_blocks + (num_blocks + 3) / 4;
  }
  void MoveTo(size_t room);

  const size_t num_streams_, dim_, vectors_;
  size_t room_ = 0;               // blocks of a stream
  MappedArray<uint16_t> blocks_;  // [streams, room_, dim, vectors, kBlock]
};

}  // namespace ebb

#endif  // EBB_POLICY_SELECTORS_KEY_BLOCKS_H_

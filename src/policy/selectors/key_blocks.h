// Vectors of keys in f16, sixteen side by side in each channel, so that a query is multiplied with
// sixteen of them at once and nothing is left to add up across lanes. An entry is a key, the mean
// and the variance of the keys of a page, or the lowest and the highest numbers of these keys. Bit
// for bit the same in each instruction set.
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

  // Returns the most bytes after MakeRoom() for so many entries in each stream.
  [[nodiscard]] static size_t BytesFor(size_t num_streams, size_t dim, size_t vectors,
                                       size_t num_entries) {
    return num_streams * RoomFor(num_entries) * kBlock * vectors * dim * sizeof(uint16_t);
  }

  // vectors: 1 or 2 of each entry.
  KeyBlocks(int num_streams, int dim, int vectors)
      : num_streams_(num_streams), dim_(dim), vectors_(vectors) {}

  // Makes room for so many entries in each stream; entries stay. May throw std::bad_alloc.
  void MakeRoom(size_t num_entries);
  // Gives memory back if there is room for more than twice as many. REQUIRES: no stream has more.
  void Shrink(size_t num_entries);
  // values: [vectors, dim], finite f16 numbers. REQUIRES: there is room.
  void Put(int stream, size_t entry, std::span<const uint16_t> values);
  // values: [vectors, dim]
  void Get(int stream, size_t entry, std::span<uint16_t> values) const;

  // Multiplies queries with the first num_entries entries, rounded up to whole blocks; the rest of
  // a block is unspecified. products[i, e] is the sum over channels of q[i, c] * first[e, c]; with
  // two vectors, squares[i, e] is that of q[i, c]^2 * second[e, c]. q: [queries, dim]; products,
  // squares: [queries, stride]. Computes one part of num_parts, for each of which a thread may call
  // at once.
  void Multiply(int stream, std::span<const float> q, size_t num_entries, int part, int num_parts,
                size_t stride, float* products, float* squares) const;

  // The first number of an entry. Its next number is kBlock further: those of all vectors in
  // channel 0, then in channel 1. The numbers of the next entry of the block lie between them.
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

  // Returns the blocks of so many entries and a quarter more.
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

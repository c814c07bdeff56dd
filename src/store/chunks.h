// A file cut into chunks, each of which is checked by its hash.
#ifndef EBB_STORE_CHUNKS_H_
#define EBB_STORE_CHUNKS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "ebb/status.h"

namespace ebb::store {

inline constexpr size_t kChunkBytes = size_t{1} << 20;

// XXH3 of 64 bits.
[[nodiscard]] uint64_t HashOf(std::string_view bytes);

struct Chunked {
  uint64_t bytes = 0;
  std::vector<uint64_t> hashes;
};
// Hands on the chunks of a file in order: all of kChunkBytes but for the last one. Errors: NotFound
// (no such file), Io; those of `take`.
[[nodiscard]] Result<Chunked> ReadChunks(const std::string& path,
                                         const std::function<Status(std::string_view)>& take);

// Creates the file and writes the chunks that `give` returns to it, as many as there are hashes.
// Errors: Io (the file exists already, or the system refuses); Corrupt (a chunk has another hash,
// or too many bytes come); StorageFull (the disk is full); those of `give`.
[[nodiscard]] Status WriteChunks(const Chunked& expected, const std::string& path,
                                 const std::function<Result<std::string>(size_t index)>& give);

// The error of a file operation, by errno. The message has the last part of `path` alone: clients
// of a server may read it, and the folders of the server are not theirs to know.
[[nodiscard]] Status FileError(const char* what, const std::string& path, int error);
// Whole, or with an error.
[[nodiscard]] Status WriteAll(int fd, std::string_view bytes, const std::string& path);

}  // namespace ebb::store

#endif  // EBB_STORE_CHUNKS_H_

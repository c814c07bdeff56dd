// Splits a file into chunks, each with a hash by which a reader checks it.
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

// Returns the 64-bit XXH3 hash.
[[nodiscard]] uint64_t HashOf(std::string_view bytes);

struct Chunked {
  uint64_t bytes = 0;
  std::vector<uint64_t> hashes;
};
// Reads a file and calls `take` with its chunks in order; each has kChunkBytes bytes, the last one
// may have fewer. Returns the chunks' sizes and hashes. Errors: NotFound (no such file), Io; the
// errors of `take`.
[[nodiscard]] Result<Chunked> ReadChunks(const std::string& path,
                                         const std::function<Status(std::string_view)>& take);

// Creates the file at `path` and writes the chunks that `give` returns, one for each expected hash.
// Errors: Io (the file exists already, or the system refuses); Corrupt (a chunk has another hash,
// or there are too many or too few bytes); StorageFull (the disk is full); those of `give`.
[[nodiscard]] Status WriteChunks(const Chunked& expected, const std::string& path,
                                 const std::function<Result<std::string>(size_t index)>& give);

// Returns the error of a file operation that failed with `error`, an errno. The message contains
// only the last part of `path`: clients of a server may read it, and must not learn the server's
// folders.
[[nodiscard]] Status FileError(const char* what, const std::string& path, int error);
// Writes all bytes, or returns an error.
[[nodiscard]] Status WriteAll(int fd, std::string_view bytes, const std::string& path);

}  // namespace ebb::store

#endif  // EBB_STORE_CHUNKS_H_

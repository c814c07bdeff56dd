// Reads and writes the frame of a session file: a header with all sizes, sections of bytes in
// blocks, then pages. Each block and page is followed by its checksum, which depends on its place.
// session_state.cc defines the contents; docs/dev/formats.md describes both.
#ifndef EBB_SESSION_SESSION_FILE_H_
#define EBB_SESSION_SESSION_FILE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ebb/session_file.h"
#include "ebb/status.h"
#include "src/io/file_replacement.h"

namespace ebb {

inline constexpr size_t kSessionBlockBytes = size_t{64} << 10;

// SessionSection lists the sections in the order of the file.
enum class SessionSection { kMadeWith, kSequence, kTables, kStoreTables, kPolicy, kExtra };
inline constexpr int kNumSessionSections = 6;
[[nodiscard]] const char* SessionSectionName(SessionSection section);

using SessionSections = std::array<std::span<const std::byte>, kNumSessionSections>;

// SessionFileSizes holds the sizes that the header records.
struct SessionFileSizes {
  std::array<uint64_t, kNumSessionSections> section_bytes = {};  // without checksums
  uint64_t num_pages = 0;
  uint64_t page_bytes = 0;  // of all of them, without checksums
};

// SessionFileWriter writes a session file, which replaces the file at `path` when it is committed.
class SessionFileWriter {
 public:
  // Writes the header and the sections. The pages must follow by WritePage(). Errors: those of
  // FileReplacement.
  static Result<SessionFileWriter> Create(const std::string& path, const SessionSections& sections,
                                          uint64_t num_pages, uint64_t page_bytes);
  Status WritePage(std::span<const std::byte> rows);
  // Replaces the file at `path`. REQUIRES: WritePage() has written num_pages pages with page_bytes
  // bytes in all.
  Status Commit(Durability durability);

 private:
  Status WriteChecked(std::span<const std::byte> bytes);

  std::unique_ptr<FileReplacement> file_;
  uint64_t file_bytes_ = 0;  // announced
};

// SessionFileReader reads a session file and checks its sizes and checksums.
class SessionFileReader {
 public:
  // Opens the file and reads the header. Errors: NotFound, IoError; InvalidArgument (not a regular
  // file); Unsupported (not a session, another version); Corrupt (a damaged header, a file of
  // another length than the header says).
  static Result<SessionFileReader> Open(const std::string& path);
  SessionFileReader(SessionFileReader&& other) noexcept;
  ~SessionFileReader();

  // Reads a section. Allocates memory block by block, after the checksum of the block before, so
  // that a damaged size cannot allocate much. Errors: Corrupt, IoError.
  Result<std::vector<std::byte>> ReadSection(SessionSection section);
  // Reads the next page into `rows`. `name` names the page in errors. Errors: Corrupt if the
  // checksum differs; IoError.
  Status ReadPage(const std::string& name, std::span<std::byte> rows);
  // Checks the number and bytes of the pages that the tables need against the header's. If `all`,
  // they must be equal; otherwise pages of other tables follow, and the header's must be no fewer.
  // Errors: Corrupt.
  Status CheckPages(uint64_t num_pages, uint64_t page_bytes, bool all) const;

 private:
  SessionFileReader() = default;
  Status ReadHeader();
  Status ReadAt(uint64_t offset, std::span<std::byte> bytes) const;
  Status ReadChecked(uint64_t offset, const std::string& name, std::span<std::byte> bytes) const;

  int fd_ = -1;
  SessionFileSizes sizes_;
  uint64_t next_page_ = 0;  // its offset
  uint64_t file_bytes_ = 0;
};

}  // namespace ebb

#endif  // EBB_SESSION_SESSION_FILE_H_

// The frame of a session file: a header that says how long everything is, sections of bytes in
// blocks, then pages; each block and page followed by its checksum, which depends on its place.
// session_state.cc knows their contents; docs/dev/formats.md has both.
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

// In the order of the file.
enum class SessionSection { kMadeWith, kSequence, kTables, kStoreTables, kPolicy, kExtra };
inline constexpr int kNumSessionSections = 6;
[[nodiscard]] const char* SessionSectionName(SessionSection section);

using SessionSections = std::array<std::span<const std::byte>, kNumSessionSections>;

struct SessionFileSizes {
  std::array<uint64_t, kNumSessionSections> section_bytes = {};  // without checksums
  uint64_t num_pages = 0;
  uint64_t page_bytes = 0;  // of all of them, without checksums
};

class SessionFileWriter {
 public:
  // Writes the header and the sections. Errors: those of FileReplacement.
  static Result<SessionFileWriter> Create(const std::string& path, const SessionSections& sections,
                                          uint64_t num_pages, uint64_t page_bytes);
  Status WritePage(std::span<const std::byte> rows);
  // REQUIRES: as many pages of as many bytes as were announced.
  Status Commit(Durability durability);

 private:
  Status WriteChecked(std::span<const std::byte> bytes);

  std::unique_ptr<FileReplacement> file_;
  uint64_t file_bytes_ = 0;  // announced
};

class SessionFileReader {
 public:
  // Reads the header. Errors: NotFound, IoError; Unsupported (not a session, another version);
  // Corrupt (a damaged header, a file of another length than it says).
  static Result<SessionFileReader> Open(const std::string& path);
  SessionFileReader(SessionFileReader&& other) noexcept;
  ~SessionFileReader();

  // Memory is taken block by block, for what was read and found whole.
  Result<std::vector<std::byte>> ReadSection(SessionSection section);
  // The next page. `name` is for messages. Corrupt when it is not what was written.
  Status ReadPage(const std::string& name, std::span<std::byte> rows);
  // Corrupt unless the pages come to that, or, where others follow, to no less.
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

#include "src/session/session_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

namespace ebb {
namespace {

constexpr std::array<char, 8> kMagic = {'e', 'b', 'b', 's', 'e', 's', 's', '\n'};
constexpr size_t kChecksumBytes = sizeof(uint64_t);

// Header is the header as it lies in the file, little-endian and without gaps.
struct Header {
  std::array<char, 8> magic = kMagic;
  uint32_t version = kSessionFileVersion;
  uint32_t num_sections = kNumSessionSections;
  std::array<uint64_t, kNumSessionSections> section_bytes = {};
  uint64_t num_pages = 0;
  uint64_t page_bytes = 0;
  uint64_t file_bytes = 0;
  uint64_t checksum = 0;  // of all that stands before it
};
static_assert(sizeof(Header) == 96);

// The seed of the checksum is the offset, so that blocks that were swapped are noticed.
uint64_t ChecksumOf(std::span<const std::byte> bytes, uint64_t offset) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), offset);
}

uint64_t ChecksumOf(const Header& header) {
  return ChecksumOf(std::as_bytes(std::span(&header, 1)).first(offsetof(Header, checksum)), 0);
}

// Adds the bytes of a section, with the checksums of its blocks, to *sum. Returns false if the sum
// exceeds 64 bits.
bool AddSection(uint64_t section_bytes, uint64_t* sum) {
  const uint64_t blocks = section_bytes / kSessionBlockBytes + 1;
  return !__builtin_add_overflow(*sum, section_bytes, sum) &&
         !__builtin_add_overflow(*sum, blocks * kChecksumBytes, sum);
}

// Returns the size of the file that the header's sizes add up to, or 0 if it exceeds 64 bits.
uint64_t FileBytes(const SessionFileSizes& sizes) {
  uint64_t sum = sizeof(Header);
  for (const uint64_t bytes : sizes.section_bytes) {
    if (!AddSection(bytes, &sum)) return 0;
  }
  uint64_t checksums = 0;
  const bool fits = !__builtin_mul_overflow(sizes.num_pages, kChecksumBytes, &checksums) &&
                    !__builtin_add_overflow(sum, checksums, &sum) &&
                    !__builtin_add_overflow(sum, sizes.page_bytes, &sum);
  return fits ? sum : 0;
}

uint64_t SectionOffset(const SessionFileSizes& sizes, int section) {
  uint64_t offset = sizeof(Header);
  for (int i = 0; i < section; ++i) AddSection(sizes.section_bytes[i], &offset);
  return offset;
}

}  // namespace

const char* SessionSectionName(SessionSection section) {
  switch (section) {
    case SessionSection::kMadeWith:
      return "description";
    case SessionSection::kSequence:
      return "sequence";
    case SessionSection::kTables:
      return "token tables";
    case SessionSection::kStoreTables:
      return "store's token tables";
    case SessionSection::kPolicy:
      return "policy's state";
    case SessionSection::kExtra:
      return "conversation";
  }
  return "";
}

Result<SessionFileWriter> SessionFileWriter::Create(const std::string& path,
                                                    const SessionSections& sections,
                                                    uint64_t num_pages, uint64_t page_bytes) {
  SessionFileWriter writer;
  EBB_ASSIGN_OR_RETURN(writer.file_, FileReplacement::Create(path));
  SessionFileSizes sizes = {.num_pages = num_pages, .page_bytes = page_bytes};
  for (int i = 0; i < kNumSessionSections; ++i) sizes.section_bytes[i] = sections[i].size();
  Header header = {.section_bytes = sizes.section_bytes,
                   .num_pages = num_pages,
                   .page_bytes = page_bytes,
                   .file_bytes = FileBytes(sizes)};
  header.checksum = ChecksumOf(header);
  writer.file_bytes_ = header.file_bytes;
  EBB_RETURN_IF_ERROR(writer.file_->Write(std::as_bytes(std::span(&header, 1))));
  for (std::span<const std::byte> section : sections) {
    // The last block is always shorter than a full one, even empty, so that an empty section has a
    // checksum too.
    while (section.size() >= kSessionBlockBytes) {
      EBB_RETURN_IF_ERROR(writer.WriteChecked(section.first(kSessionBlockBytes)));
      section = section.subspan(kSessionBlockBytes);
    }
    EBB_RETURN_IF_ERROR(writer.WriteChecked(section));
  }
  return writer;
}

Status SessionFileWriter::WriteChecked(std::span<const std::byte> bytes) {
  const uint64_t checksum = ChecksumOf(bytes, file_->num_bytes());
  EBB_RETURN_IF_ERROR(file_->Write(bytes));
  return file_->Write(std::as_bytes(std::span(&checksum, 1)));
}

Status SessionFileWriter::WritePage(std::span<const std::byte> rows) { return WriteChecked(rows); }

Status SessionFileWriter::Commit(Durability durability) {
  if (file_->num_bytes() != file_bytes_) {
    return Internal(fmt::format("a session of {} bytes was announced, {} were written", file_bytes_,
                                file_->num_bytes()));
  }
  return file_->Commit(durability == Durability::kSynced ? FileReplacement::Sync::kYes
                                                         : FileReplacement::Sync::kNo);
}

SessionFileReader::SessionFileReader(SessionFileReader&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      sizes_(other.sizes_),
      next_page_(other.next_page_),
      file_bytes_(other.file_bytes_) {}

SessionFileReader::~SessionFileReader() {
  if (fd_ >= 0) close(fd_);
}

Result<SessionFileReader> SessionFileReader::Open(const std::string& path) {
  SessionFileReader reader;
  // O_NONBLOCK keeps open() from waiting for the other end of a named pipe.
  reader.fd_ = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (reader.fd_ < 0) {
    std::string message = fmt::format("cannot open: {}", std::generic_category().message(errno));
    return errno == ENOENT ? NotFound(std::move(message)) : IoError(std::move(message));
  }
  struct stat info = {};
  if (fstat(reader.fd_, &info) != 0 || !S_ISREG(info.st_mode)) {
    return InvalidArgument("not a regular file");
  }
  reader.file_bytes_ = static_cast<uint64_t>(info.st_size);
  EBB_RETURN_IF_ERROR(reader.ReadHeader());
  return reader;
}

Status SessionFileReader::ReadHeader() {
  Header header;
  const std::span<std::byte> bytes = std::as_writable_bytes(std::span(&header, 1));
  constexpr size_t kNamed = offsetof(Header, num_sections);
  if (file_bytes_ < kNamed) return Unsupported("not a session file of ebb: too short");
  EBB_RETURN_IF_ERROR(ReadAt(0, bytes.first(kNamed)));
  if (header.magic != kMagic) return Unsupported("not a session file of ebb");
  if (header.version != kSessionFileVersion) {
    return Unsupported(fmt::format("a session of another version: expected {}, found {}",
                                   kSessionFileVersion, header.version));
  }
  if (file_bytes_ < sizeof(Header)) {
    return Corrupt(fmt::format("the file is cut off: expected at least {} bytes, found {}",
                               sizeof(Header), file_bytes_));
  }
  EBB_RETURN_IF_ERROR(ReadAt(0, bytes));
  if (header.checksum != ChecksumOf(header)) {
    return Corrupt(fmt::format("the header is damaged: expected checksum {:016x}, found {:016x}",
                               header.checksum, ChecksumOf(header)));
  }
  sizes_ = {.section_bytes = header.section_bytes,
            .num_pages = header.num_pages,
            .page_bytes = header.page_bytes};
  if (header.num_sections != kNumSessionSections || header.file_bytes != FileBytes(sizes_)) {
    return Corrupt("the header makes no sense: its sizes do not add up");
  }
  if (header.file_bytes != file_bytes_) {
    return Corrupt(fmt::format("the file is {}: expected {} bytes, found {}",
                               file_bytes_ < header.file_bytes ? "cut off" : "too long",
                               header.file_bytes, file_bytes_));
  }
  next_page_ = SectionOffset(sizes_, kNumSessionSections);
  return OkStatus();
}

Status SessionFileReader::ReadAt(uint64_t offset, std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t count = pread(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      return IoError(fmt::format("cannot read {} bytes at offset {}: {}", bytes.size(), offset,
                                 std::generic_category().message(errno)));
    }
    if (count == 0) return Corrupt(fmt::format("the file ends at offset {}", offset));
    bytes = bytes.subspan(static_cast<size_t>(count));
    offset += static_cast<uint64_t>(count);
  }
  return OkStatus();
}

Status SessionFileReader::ReadChecked(uint64_t offset, const std::string& name,
                                      std::span<std::byte> bytes) const {
  uint64_t expected = 0;
  EBB_RETURN_IF_ERROR(ReadAt(offset, bytes));
  EBB_RETURN_IF_ERROR(
      ReadAt(offset + bytes.size(), std::as_writable_bytes(std::span(&expected, 1))));
  const uint64_t found = ChecksumOf(bytes, offset);
  if (found == expected) return OkStatus();
  return Corrupt(
      fmt::format("{} is damaged, at offset {}: expected checksum {:016x}, found {:016x}", name,
                  offset, expected, found));
}

Result<std::vector<std::byte>> SessionFileReader::ReadSection(SessionSection section) {
  const auto index = static_cast<int>(section);
  const uint64_t num_bytes = sizes_.section_bytes[index];
  uint64_t offset = SectionOffset(sizes_, index);
  std::vector<std::byte> bytes;
  for (uint64_t block = 0; block <= num_bytes / kSessionBlockBytes; ++block) {
    const size_t begin = bytes.size();
    const size_t size = std::min<uint64_t>(num_bytes - begin, kSessionBlockBytes);
    bytes.resize(begin + size);
    EBB_RETURN_IF_ERROR(
        ReadChecked(offset, fmt::format("block {} of the {}", block, SessionSectionName(section)),
                    std::span(bytes).subspan(begin)));
    offset += size + kChecksumBytes;
  }
  return bytes;
}

Status SessionFileReader::ReadPage(const std::string& name, std::span<std::byte> rows) {
  EBB_RETURN_IF_ERROR(ReadChecked(next_page_, name, rows));
  next_page_ += rows.size() + kChecksumBytes;
  return OkStatus();
}

Status SessionFileReader::CheckPages(uint64_t num_pages, uint64_t page_bytes, bool all) const {
  const bool fits = num_pages <= sizes_.num_pages && page_bytes <= sizes_.page_bytes;
  const bool equal = num_pages == sizes_.num_pages && page_bytes == sizes_.page_bytes;
  if (all ? equal : fits) return OkStatus();
  return Corrupt(fmt::format("its pages: expected {} of {} bytes by its tables, found {} of {}",
                             num_pages, page_bytes, sizes_.num_pages, sizes_.page_bytes));
}

}  // namespace ebb

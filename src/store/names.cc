#include "src/store/names.h"

#include <algorithm>
#include <charconv>
#include <random>
#include <utility>

#include <fmt/format.h>

#include "src/store/chunks.h"

namespace ebb::store {
namespace {

constexpr size_t kMostIdBytes = 64;
constexpr size_t kMostTenantBytes = 64;

bool IsPlain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_';
}

}  // namespace

bool IsSessionId(std::string_view id) {
  return !id.empty() && id.size() <= kMostIdBytes &&
         std::ranges::all_of(id, [](char c) { return IsPlain(c) || c == ':'; });
}

Status CheckTenant(std::string_view tenant) {
  if (tenant.size() <= kMostTenantBytes) return OkStatus();
  return InvalidArgument(fmt::format("a tenant's name: expected at most {} bytes, found {}",
                                     kMostTenantBytes, tenant.size()));
}

Status CheckName(const SessionName& name) {
  EBB_RETURN_IF_ERROR(CheckTenant(name.tenant));
  if (IsSessionId(name.id)) return OkStatus();
  return InvalidArgument("expected an id of 1 to 64 letters, digits, '-', '_' and ':'");
}

std::string Escaped(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    IsPlain(c)
        ? escaped.push_back(c)
        : static_cast<void>(escaped += fmt::format("%{:02X}", static_cast<unsigned char>(c)));
  }
  return escaped;
}

std::optional<std::string> Unescaped(std::string_view text) {
  std::string plain;
  while (!text.empty()) {
    if (text.front() != '%') {
      plain.push_back(text.front());
      text.remove_prefix(1);
      continue;
    }
    unsigned value = 0;
    const std::string_view digits = text.substr(1, 2);
    const auto [end, error] = std::from_chars(digits.begin(), digits.end(), value, 16);
    if (digits.size() != 2 || error != std::errc() || end != digits.end()) return std::nullopt;
    plain.push_back(static_cast<char>(value));
    text.remove_prefix(3);
  }
  return plain;
}

Status CheckStored(const StoredSession& stored, const SessionName& name) {
  const Manifest& m = stored.manifest;
  if (m.tenant != name.tenant || m.id != name.id) {
    return Corrupt(fmt::format("the manifest of session {} is that of session {}", name.id, m.id));
  }
  if (HashOf(stored.record) == m.record_hash) return OkStatus();
  return Corrupt(
      fmt::format("the record of session {} is damaged: expected hash {:016x}, found {:016x}",
                  name.id, m.record_hash, HashOf(stored.record)));
}

std::string NewGeneration(const Lease& lease) {
  return fmt::format("{}-{:x}", lease.epoch, RandomNumber());
}

void CompleteManifest(const Lease& lease, std::string generation, Chunked chunked,
                      std::string_view record, Manifest* manifest) {
  manifest->tenant = lease.name.tenant;
  manifest->id = lease.name.id;
  manifest->epoch = lease.epoch;
  manifest->generation = std::move(generation);
  manifest->bytes = chunked.bytes;
  manifest->chunk_hashes = std::move(chunked.hashes);
  manifest->record_hash = HashOf(record);
}

uint64_t RandomNumber() {
  std::random_device random;
  return (uint64_t{random()} << 32) | random();
}

}  // namespace ebb::store

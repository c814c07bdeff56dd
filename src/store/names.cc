#include "src/store/names.h"

#include <random>
#include <utility>

#include <fmt/format.h>

#include "src/store/chunks.h"
#include "src/store/plain_name.h"

namespace ebb::store {
namespace {

constexpr size_t kMostIdBytes = 64;
constexpr size_t kMostTenantBytes = 64;

}  // namespace

bool IsSessionId(std::string_view id) { return IsPlainName(id, kMostIdBytes, "-_:"); }

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

bool IsDamaged(const Status& status) {
  return status.code() == StatusCode::kCorrupt || status.code() == StatusCode::kUnsupported;
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

// A session file of any bytes is resumed as a session that can be stepped and saved, or refused by
// an error that names it. An input is no file but edits of one, so that it outlives changes of the
// format: a byte that chooses the session, then records of an operation (u8), a place (u16) and a
// value (u8).
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "ebb/engine.h"
#include "ebb/model.h"
#include "ebb/session_file.h"

namespace {

using Bytes = std::vector<uint8_t>;

constexpr size_t kMaxInputBytes = 4096;
constexpr size_t kRecordBytes = 4;
// Sizes and offsets of a session file: docs/dev/formats.md.
constexpr size_t kHeaderBytes = 96, kSizesAt = 16, kHeaderChecksumAt = 88;
constexpr size_t kNumSections = 6, kBlockBytes = 65536, kChecksumBytes = 8;
constexpr uint8_t kKeepChecksums = 0x80;

ebb::Status StatusOf(const ebb::Status& status) { return status; }
template <typename T>
ebb::Status StatusOf(const ebb::Result<T>& result) {
  return result.status();
}

// For what does not depend on the input.
template <typename T>
void MustBeOk(const T& result) {
  if (result.ok()) return;
  std::fprintf(stderr, "%s\n", StatusOf(result).ToString().c_str());
  std::abort();
}

// A folder that goes with the program.
const std::filesystem::path& Folder() {
  static const struct Made {
    Made() {
      std::string name = (std::filesystem::temp_directory_path() / "ebb-fuzz-XXXXXX").string();
      if (mkdtemp(name.data()) == nullptr) std::abort();
      path = name;
    }
    ~Made() { std::filesystem::remove_all(path); }
    std::filesystem::path path;
  } kMade;
  return kMade.path;
}

const std::shared_ptr<const ebb::Model>& TinyModel() {
  static const auto kModel = [] {
    auto model = ebb::Model::Load({.path = EBB_FUZZ_CORPUS "/gguf/llama_minimal"});
    MustBeOk(model);
    return *std::move(model);
  }();
  return kModel;
}

// Policies whose state has several parts, each of which may be of other rows than the cache.
constexpr std::array<const char*, 7> kPolicies = {"attention_mean", "attention_recent", "attn_hs",
                                                  "segment_hs",     "thinkv_original",  "rkv",
                                                  "quest"};
constexpr int kNumTiered = 4;
constexpr int kNumKinds = kNumTiered + static_cast<int>(kPolicies.size());

ebb::SessionOptions OptionsOf(int kind) {
  ebb::SessionOptions options;
  options.context = 64;
  ebb::PolicySpec& policy = options.policy;
  if (kind >= kNumTiered) {
    policy.name = kPolicies[static_cast<size_t>(kind - kNumTiered)];
    policy.budget = *ebb::ParseBudget("24");
    policy.sinks = 2;
    policy.window = 8;
    policy = *ebb::DropUnusedOptions(policy);
    return options;
  }
  policy.name = kind == 0 ? "full" : "h2o";
  if (kind == 1) policy.budget = *ebb::ParseBudget("16");
  if (kind < 2) return options;
  policy.name = "attention";
  policy.window = 4;
  policy.interval = 4;
  policy.granularity = kind == 2 ? ebb::Granularity::kHead : ebb::Granularity::kToken;
  policy.tiers = ebb::TierShares{.t2_share = 0.4, .evict_share = 0.1};
  return options;
}

ebb::EngineOptions EngineOptionsOf(int kind) {
  ebb::EngineOptions options = {.threads = 1};
  if (OptionsOf(kind).policy.tiers.has_value()) {
    options.tiers = ebb::EngineTiers{.t1 = kind == 2 ? ebb::T1Place::kHost : ebb::T1Place::kFile,
                                     .t2_type = ebb::CompressedType::kInt8};
  }
  return options;
}

ebb::Token AToken(int i) { return i % TinyModel()->shape().vocab_size; }

Bytes ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

Bytes MakeSession(int kind) {
  const ebb::SessionOptions options = OptionsOf(kind);
  const auto engine = ebb::Engine::Create(TinyModel(), EngineOptionsOf(kind));
  MustBeOk(engine);
  const auto session = (*engine)->OpenSession(options);
  MustBeOk(session);
  const std::vector<ebb::Token> prompt = {AToken(1), AToken(2), AToken(3)};
  MustBeOk((*session)->Prefill(prompt).status);
  for (int i = 0; i < 50; ++i) MustBeOk((*session)->Decode(AToken(5 * i)).status);
  const std::string path = Folder() / "made";
  MustBeOk(ebb::SaveSession(**session, path, "a talk"));
  return ReadAll(path);
}

const Bytes& GoodSession(int kind) {
  static std::array<Bytes, kNumKinds> sessions;
  if (sessions[kind].empty()) sessions[kind] = MakeSession(kind);
  return sessions[kind];
}

uint64_t NumberAt(const Bytes& file, size_t at) {
  uint64_t number = 0;
  std::memcpy(&number, file.data() + at, sizeof(number));
  return number;
}

void Seal(Bytes* file, size_t begin, size_t end) {
  const uint64_t checksum = XXH3_64bits_withSeed(file->data() + begin, end - begin, begin);
  std::memcpy(file->data() + end, &checksum, sizeof(checksum));
}

// Checksums of the header and of the sections, as far as the header's sizes lie in the file. Those
// of pages stay, whose rows may be any numbers anyway.
void SealAll(Bytes* file) {
  if (file->size() < kHeaderBytes) return;
  Seal(file, 0, kHeaderChecksumAt);
  size_t at = kHeaderBytes;
  for (size_t section = 0; section < kNumSections; ++section) {
    uint64_t left = NumberAt(*file, kSizesAt + section * sizeof(uint64_t));
    while (true) {
      const uint64_t size = std::min<uint64_t>(left, kBlockBytes);
      if (file->size() - at < size + kChecksumBytes) return;
      Seal(file, at, at + size);
      at += size + kChecksumBytes;
      left -= size;
      if (size < kBlockBytes) break;
    }
  }
}

void Edit(const uint8_t* record, Bytes* file) {
  if (file->empty()) return;
  const size_t at = (record[1] | record[2] << 8) % file->size();
  const uint8_t value = record[3];
  const auto fill = [&](size_t num_bytes, uint8_t with) {
    std::fill_n(file->begin() + static_cast<ptrdiff_t>(at), std::min(num_bytes, file->size() - at),
                with);
  };
  switch (record[0] % 7) {
    case 0:
      return fill(1, value);
    case 1:
      return fill(8, 0xff);
    case 2:
      return fill(8, 0);
    case 3:
      (*file)[at] = static_cast<uint8_t>((*file)[at] + value);
      return;
    case 4:
      return fill(4, value);
    case 5:
      file->resize(at);
      return;
    default:
      file->insert(file->end(), value, value);
  }
}

// As the program does: the tiers that it was saved with are asked of the engine.
ebb::Status Resume(const std::string& path, int kind) {
  const auto info = ebb::ReadSessionInfo(path);
  if (!info.ok()) return info.status();
  ebb::SessionOptions options = OptionsOf(kind);
  ebb::EngineOptions engine_options = {.threads = 1};
  ebb::SetTiers(info->tiers, &engine_options, &options);
  const auto engine = ebb::Engine::Create(TinyModel(), engine_options);
  if (!engine.ok()) return engine.status();
  auto resumed = ebb::ResumeSession(**engine, path, options);
  if (!resumed.ok()) return resumed.status();
  ebb::Session& session = *resumed->session;
  for (int i = 0; i < 5; ++i) (void)session.Decode(AToken(i));
  (void)session.TruncateTo(session.next_position() / 2);
  (void)session.Decode(AToken(1));
  return ebb::SaveSession(session, Folder() / "again", resumed->extra);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0 || size > kMaxInputBytes) return 0;
  const int kind = (data[0] & ~kKeepChecksums) % kNumKinds;
  Bytes file = GoodSession(kind);
  for (size_t at = 1; at + kRecordBytes <= size; at += kRecordBytes) Edit(data + at, &file);
  if ((data[0] & kKeepChecksums) == 0) SealAll(&file);
  const std::string path = Folder() / "session";
  std::ofstream(path, std::ios::binary | std::ios::trunc)
      .write(reinterpret_cast<const char*>(file.data()), static_cast<std::streamsize>(file.size()));
  const ebb::Status status = Resume(path, kind);
  if (file == GoodSession(kind)) MustBeOk(status);
  if (!status.ok() && status.message().empty()) std::abort();
  return 0;
}

#include "tests/support/kv/tiered_sequence.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string>
#include <utility>

#include "ebb/state.h"
#include "src/kv/sequence_state.h"
#include "src/rows/compressed_pages.h"

namespace ebb {
namespace {

constexpr size_t kStride = kTiersFormat.head_dim * sizeof(uint16_t);

template <typename T>
T OrDie(Result<T> result) {
  EXPECT_TRUE(result.ok()) << result.status().ToString();
  return *std::move(result);
}

std::unique_ptr<Arena> MakeArena(size_t page_bytes, size_t cap_bytes, Device* device,
                                 MemoryKind memory = MemoryKind::kDevice,
                                 StatusCode full = StatusCode::kT0Full) {
  return OrDie(Arena::Create({.page_bytes = page_bytes,
                              .cap_bytes = cap_bytes,
                              .device = device,
                              .memory = memory,
                              .full = full}));
}

std::unique_ptr<BackendDevice> MakeBackend(const DeviceSpec& spec) {
  if (spec.kind == DeviceKind::kCpu) return nullptr;
  return OrDie(BackendDevice::Create(spec, kStride));
}

bool Is(const std::byte* row, const RowBytes& expected) {
  return std::memcmp(row, expected.data(), expected.size()) == 0;
}

}  // namespace

TiersForTest::TiersForTest(const TiersOptions& options) : backend(MakeBackend(options.device)) {
  Device* device = &CpuDevice();
  if (backend != nullptr) device = backend.get();
  t0 = MakeArena(kTiersFormat.PageBytes(), options.t0_cap_bytes, device);
  stores = {.t0 = t0.get(),
            .compressed = {.type = options.t2, .head_dim = kTiersFormat.head_dim},
            .kernel = &CpuAttention(),
            .device = device};
  t2 = MakeArena(options.t2_on_device ? CompressedPageBytesOnDevice(stores.compressed)
                                      : stores.compressed.PageBytes(),
                 options.t2_cap_bytes, device,
                 options.t2_on_device ? MemoryKind::kRecords : MemoryKind::kPinned);
  stores.t2 = t2.get();
  if (options.t1 == T1Place::kHost) {
    t1 = MakeArena(kTiersFormat.PageBytes(), options.t1_cap_bytes, device, MemoryKind::kPinned,
                   StatusCode::kT1Full);
    stores.t1 = t1.get();
  } else {
    t1_file = OrDie(PageFile::Create({.page_bytes = kTiersFormat.PageBytes(),
                                      .cap_bytes = options.t1_cap_bytes,
                                      .faults = options.faults}));
    stores.t1_file = t1_file.get();
  }
}

void TiersForTest::ExpectEmpty() const {
  for (const Arena* arena : {t0.get(), t1.get(), t2.get()}) {
    if (arena == nullptr) continue;
    EXPECT_EQ(arena->stats().num_pages, 0u);
    EXPECT_EQ(arena->stats().reserved_bytes, 0u);
    const Status status = arena->Validate();
    EXPECT_TRUE(status.ok()) << status.ToString();
  }
  if (t1_file == nullptr) return;
  EXPECT_EQ(t1_file->stats().num_pages, 0u);
  EXPECT_EQ(t1_file->stats().file_bytes, 0u);
}

TieredSequence::TieredSequence(const TiersForTest& tiers, Granularity granularity, uint64_t seed)
    : stores_(tiers.stores),
      cache_(std::make_unique<SequenceCache>(kTiersShape, kTiersFormat, granularity, stores_)),
      groups_(cache_->layout().num_groups()),
      centres_(cache_->layout().num_groups()),
      random_(seed) {}

RowBytes TieredSequence::NewRow() {
  RowBytes row(2 * kStride);
  std::vector<float> numbers(2 * kTiersFormat.head_dim);
  std::normal_distribution<float> normal;
  for (float& number : numbers) number = normal(random_);
  stores_.kernel->store_row(kTiersFormat.type, numbers.data(), row.data(),
                            2 * kTiersFormat.head_dim);
  return row;
}

Status Stage(SequenceCache& cache) {
  EBB_ASSIGN_OR_RETURN(StagedStep staged, cache.StageStep());
  for (int layer = 0; layer < kTiersShape.num_layers; ++layer) staged.StageLayer(layer, 0);
  return staged.End();
}

Status TieredSequence::Append(int num_tokens) {
  EBB_RETURN_IF_ERROR(cache_->Append(next_, num_tokens));
  for (int stream = 0; stream < kTiersStreams; ++stream) {
    const int layer = stream / kTiersShape.num_kv_heads;
    const int head = stream % kTiersShape.num_kv_heads;
    const int group = cache_->layout().GroupOf(layer, head);
    const size_t full_rows = cache_->views().num_full_rows(group);
    for (int i = 0; i < num_tokens; ++i) {
      const auto at =
          cache_->views().Row(layer, head, static_cast<uint32_t>(full_rows - num_tokens + i));
      const RowBytes row = NewRow();
      std::byte* const addresses[] = {at.key, at.value};
      EBB_RETURN_IF_ERROR(stores_.device->WriteRows(addresses, kStride, row.data()));
      groups_[group][next_ + i].full.push_back(row);
    }
  }
  next_ += num_tokens;
  return OkStatus();
}

// The mean of the first 64 keys, where a row goes to T2 and none of the group did yet.
void TieredSequence::ChooseCentres(int group, const std::vector<RowMove>& moves) {
  if (!centres_[group].empty() || !stores_.compressed.IsCentred()) return;
  const auto to_t2 = [](const RowMove& move) { return move.to == Tier::kT2; };
  if (std::ranges::none_of(moves, to_t2)) return;
  std::vector<const ModelRow*> rows;
  for (const auto& [position, row] : groups_[group]) {
    if (rows.size() < 64) rows.push_back(&row);
  }
  const size_t dim = kTiersFormat.head_dim;
  std::vector<float> key(dim);
  for (size_t stream = 0; stream < rows[0]->full.size(); ++stream) {
    std::vector<double> sum(dim);
    for (const ModelRow* row : rows) {
      stores_.kernel->load_row(kTiersFormat.type, row->full[stream].data(), key.data(),
                               kTiersFormat.head_dim);
      for (size_t i = 0; i < dim; ++i) sum[i] += key[i];
    }
    std::vector<float>& centre = centres_[group].emplace_back(dim);
    for (size_t i = 0; i < dim; ++i) {
      centre[i] = static_cast<float>(sum[i] / static_cast<double>(rows.size()));
    }
  }
}

const float* TieredSequence::CentreOf(int group, size_t stream) const {
  return centres_[group].empty() ? nullptr : centres_[group][stream].data();
}

void TieredSequence::Compress(int group, ModelRow* row) {
  std::vector<RowBytes> before = std::move(row->compressed);
  row->compressed.clear();
  const int dim = kTiersFormat.head_dim;
  std::vector<float> numbers(2 * dim);
  for (size_t i = 0; i < row->full.size(); ++i) {
    const RowBytes& full = row->full[i];
    RowBytes compressed(stores_.compressed.RowStride());
    stores_.kernel->load_row(kTiersFormat.type, full.data(), numbers.data(), dim);
    stores_.kernel->load_row(kTiersFormat.type, full.data() + kStride, numbers.data() + dim, dim);
    stores_.kernel->compress_row(stores_.compressed, {.centre = CentreOf(group, i)}, numbers.data(),
                                 numbers.data() + dim, compressed.data());
    row->compressed.push_back(compressed);
  }
  row->tier = Tier::kT2;
  if (before.empty()) return;
  ++num_compressed_again_;
  if (before != row->compressed) ++num_drifted_;
}

void TieredSequence::Decompress(int group, ModelRow* row) const {
  const int dim = kTiersFormat.head_dim;
  std::vector<float> numbers(2 * dim);
  for (size_t i = 0; i < row->full.size(); ++i) {
    stores_.kernel->decompress_row(stores_.compressed, CentreOf(group, i),
                                   row->compressed[i].data(), numbers.data(), numbers.data() + dim);
    stores_.kernel->store_row(kTiersFormat.type, numbers.data(), row->full[i].data(), dim);
    stores_.kernel->store_row(kTiersFormat.type, numbers.data() + dim,
                              row->full[i].data() + kStride, dim);
  }
}

Status TieredSequence::Move(int group, const std::vector<RowMove>& moves) {
  EBB_RETURN_IF_ERROR(cache_->Move(group, moves));
  MoveInModel(group, moves);
  return OkStatus();
}

Status TieredSequence::Move(const std::map<int, std::vector<RowMove>>& moves_of_groups) {
  std::vector<GroupMoves> all;
  for (const auto& [group, moves] : moves_of_groups) all.push_back({group, moves});
  EBB_RETURN_IF_ERROR(cache_->Move(all));
  for (const auto& [group, moves] : moves_of_groups) MoveInModel(group, moves);
  return OkStatus();
}

void TieredSequence::MoveInModel(int group, const std::vector<RowMove>& moves) {
  ChooseCentres(group, moves);
  for (const RowMove& move : moves) {
    ModelRow& row = std::next(groups_[group].begin(), move.index)->second;
    if (move.to == row.tier) continue;
    if (row.tier == Tier::kT2) Decompress(group, &row);
    if (move.to == Tier::kT2) Compress(group, &row);
    row.tier = move.to;
  }
}

void TieredSequence::Remove(int group, const std::vector<uint32_t>& removed) {
  // At once, or in two parts where the group can.
  const auto remove_in_parts = [&] {
    SequenceCache::Removal::Lists lists;
    return SequenceCache::Removal(cache_.get(), &lists).Remove(group, removed);
  };
  if (removed.size() % 2 != 0 || !remove_in_parts()) cache_->Remove(group, removed);
  uint32_t index = 0;
  std::erase_if(groups_[group],
                [&](const auto&) { return std::ranges::binary_search(removed, index++); });
  rows_evicted_ += static_cast<int64_t>(removed.size()) * cache_->layout().NumStreamsOf(0);
}

void TieredSequence::TruncateTo(Position end) {
  cache_->TruncateTo(end);
  for (size_t g = 0; g < groups_.size(); ++g) {
    auto& group = groups_[g];
    if (group.empty() || group.rbegin()->first < end) continue;
    group.erase(group.lower_bound(end), group.end());
    const auto in_t2 = [](const auto& row) { return row.second.tier == Tier::kT2; };
    if (std::ranges::none_of(group, in_t2)) centres_[g].clear();
  }
}

Status TieredSequence::Reload() {
  StateWriter tables;
  std::vector<std::pair<std::string, RowBytes>> pages;
  EBB_ASSIGN_OR_RETURN(const StatePages saved, SequenceState::SaveTables(*cache_, &tables));
  EBB_RETURN_IF_ERROR(SequenceState::SavePages(
      cache_.get(), [&](const StatePage& page, std::span<const std::byte> rows) {
        pages.emplace_back(page.ToString(), RowBytes(rows.begin(), rows.end()));
        return OkStatus();
      }));
  EXPECT_EQ(pages.size(), saved.num_pages);
  const Granularity granularity = cache_->layout().granularity();
  cache_.reset();
  cache_ = std::make_unique<SequenceCache>(kTiersShape, kTiersFormat, granularity, stores_);
  StateReader from(tables.bytes(), "the tables");
  const auto check = [&](const StatePages& loaded) {
    EXPECT_EQ(loaded.num_pages, saved.num_pages);
    EXPECT_EQ(loaded.num_bytes, saved.num_bytes);
    return OkStatus();
  };
  EBB_RETURN_IF_ERROR(SequenceState::LoadTables(next_, check, &from, cache_.get()));
  size_t next = 0;
  return SequenceState::LoadPages(cache_.get(),
                                  [&](const StatePage& page, std::span<std::byte> rows) {
                                    EXPECT_EQ(page.ToString(), pages[next].first);
                                    EXPECT_EQ(rows.size(), pages[next].second.size());
                                    std::ranges::copy(pages[next++].second, rows.begin());
                                    return OkStatus();
                                  });
}

void TieredSequence::ExpectLists() const {
  cache_->FindAddresses();
  const Status status = cache_->Validate();
  ASSERT_TRUE(status.ok()) << status.ToString();
  std::array<int64_t, kNumTiers> rows = {};
  for (size_t g = 0; g < groups_.size(); ++g) {
    const int group = static_cast<int>(g);
    const auto positions = cache_->positions(group);
    const auto tiers = cache_->tiers(group);
    ASSERT_EQ(positions.size(), groups_[g].size());
    ASSERT_EQ(tiers.size(), positions.size());
    size_t i = 0;
    for (const auto& [position, row] : groups_[g]) {
      ASSERT_EQ(positions[i], position);
      ASSERT_EQ(tiers[i], row.tier) << "position " << position;
      rows[static_cast<int>(row.tier)] += cache_->layout().NumStreamsOf(0);
      ++i;
    }
  }
  const CacheAccounting accounting = cache_->accounting();
  const size_t row_bytes[] = {2 * kStride, 2 * kStride, stores_.compressed.RowStride(), 0};
  for (size_t tier = 0; tier < kNumTiers; ++tier) {
    EXPECT_EQ(accounting.tiers[tier].rows, rows[tier]) << tier;
    EXPECT_EQ(accounting.tiers[tier].row_bytes, rows[tier] * row_bytes[tier]) << tier;
    EXPECT_GE(accounting.tiers[tier].page_bytes, accounting.tiers[tier].row_bytes) << tier;
  }
  EXPECT_EQ(accounting.rows_evicted, rows_evicted_);
}

RowBytes TieredSequence::RowAt(const std::byte* key) const {
  RowBytes row(2 * kStride);
  const std::byte* const addresses[] = {key, key + kTiersFormat.ValueOffset()};
  const Status status = stores_.device->ReadRows(addresses, kStride, row.data());
  EXPECT_TRUE(status.ok()) << status.ToString();
  return row;
}

void TieredSequence::ExpectStream(int layer, int head, const std::map<Position, ModelRow>& group,
                                  int stream) const {
  const RowsView full = cache_->views().View(layer, head);
  const CompressedRows compressed = cache_->views().Compressed(layer, head);
  const auto full_rows = cache_->views().IndicesOf(layer, head).full;
  const auto compressed_rows = cache_->views().IndicesOf(layer, head).compressed;
  ASSERT_EQ(full.size() + compressed.size(), group.size());
  ASSERT_EQ(full_rows.size(), compressed.size() == 0 ? 0 : full.size());
  ASSERT_EQ(compressed_rows.size(), compressed.size());
  size_t f = 0, c = 0;
  uint32_t index = 0;
  for (const auto& [position, row] : group) {
    if (row.tier == Tier::kT2) {
      const Slot slot = compressed.slots[c];
      ASSERT_EQ(compressed_rows[c++], index);
      const std::byte* at =
          compressed.pages[slot.page()] + slot.row() * stores_.compressed.RowStride();
      RowBytes record(stores_.compressed.RowStride());
      if (cache_->views().CompressedOnDevice()) {
        const Status status = stores_.device->ReadRows({&at, 1}, record.size(), record.data());
        ASSERT_TRUE(status.ok()) << status.ToString();
        at = record.data();
      }
      ASSERT_TRUE(Is(at, row.compressed[stream])) << "T2, position " << position;
    } else {
      ASSERT_TRUE(full_rows.empty() || full_rows[f] == index);
      ASSERT_EQ(full.positions[f], position);
      const Slot slot = full.slots[f++];
      const std::byte* at = full.pages[slot.page()] + slot.row() * kStride;
      ASSERT_EQ(RowAt(at), row.full[stream])
          << (row.tier == Tier::kT0 ? "T0" : "T1") << ", position " << position;
    }
    ++index;
  }
}

void TieredSequence::ExpectBytes() const {
  Result<StagedStep> staged = cache_->StageStep();
  ASSERT_TRUE(staged.ok()) << staged.status().ToString();
  for (int stream = 0; stream < kTiersStreams; ++stream) {
    const int layer = stream / kTiersShape.num_kv_heads;
    const int head = stream % kTiersShape.num_kv_heads;
    if (head == 0) {
      staged->StageLayer(layer, 0);
      staged->ReleaseLayer(layer);
    }
    const int group = cache_->layout().GroupOf(layer, head);
    ExpectStream(layer, head, groups_[group], stream % cache_->layout().NumStreamsOf(0));
  }
  const Status ended = staged->End();
  ASSERT_TRUE(ended.ok()) << ended.ToString();
}

std::vector<RowMove> Every(uint32_t step, uint32_t num_rows, Tier to) {
  std::vector<RowMove> moves;
  for (uint32_t row = 0; row < num_rows; row += step) moves.push_back({row, to});
  return moves;
}

}  // namespace ebb

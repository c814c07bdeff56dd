// Selects the pages of 64 rows that receive most of a query's attention. By the estimate below,
// each query head chooses as many pages as reach the wanted share of its mass; a kv head reads the
// union over its query heads or, if the number of rows is limited, the pages of that union with the
// largest shares of any query head's mass. The first page (attention sinks) and the newest pages,
// at least 129 rows, are always read. Choices depend on queries and keys alone, not on the tiers
// that hold the rows.
//
// With `reuse`, a kv head reads the newest pages and the pages that the previous token's queries
// chose, if the mean over query heads of the cosine between both tokens' queries is at least
// `reuse`. The rows that the next token may read are then known a step ahead (Foresee()), so that
// they can be prefetched [FreeKV, 2025: the choice of the step before, corrected by the cosine of
// queries]. Layers with sliding windows lose rows with every token and reuse no choice.
//
// For a page of n rows with keys k, c = s q mean(k) and v = s^2 sum over channels of q^2 var(k),
// the estimate of the log of its mass is log n + c + v / 2, which is exact for normally distributed
// logits. From v = 2 log n on, the second term is capped at sqrt(2 v log n) - log n, since no row
// outweighs its page. Logits of rows that are always read are computed from their keys. [ours;
// docs/dev/tiers.md compares it with other estimates]
//
// A page holds the rows of 64 positions, from a multiple of 64 on. Keys of the newest pages stay in
// f16 until their page is summarised, so that rows which a roll-back removes and new rows replace
// leave no trace. A summarised page that then loses rows keeps its mean and variance, and receives
// no new rows.
//
// Rows may be removed anywhere: at the front (layers with sliding windows), at the end
// (roll-backs), and in between (policies that evict).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cassert>
#include <cmath>
#include <limits>
#include <numeric>

#include "ebb/state.h"
#include "src/base/page_units.h"
#include "src/base/rank_vectors.h"
#include "src/policy/scorers/streams.h"
#include "src/policy/selectors.h"
#include "src/policy/selectors/half.h"
#include "src/policy/selectors/key_blocks.h"
#include "src/policy/selectors/page_index.h"

namespace ebb {
namespace {

constexpr size_t kPage = kRowsPerPage;
constexpr size_t kNewestPages = 3;                 // whose keys are kept, of complete pages
constexpr size_t kRecentPages = kNewestPages + 1;  // and the one that is being filled
constexpr size_t kExactPages = 1 + kRecentPages;   // the first page too
constexpr size_t kFewestPages = kExactPages + 1;   // with fewer all rows are read
// MarkPages() sorts pages into kBuckets by the log of their mass: steps of 1/8 below the largest,
// down to e^-32.
constexpr size_t kBuckets = 256;
constexpr float kBucketsPerNat = 8;

static_assert(kPage % KeyBlocks::kBlock == 0);
static_assert(kKeysOfMassSelector == kExactPages * kPage);

uint64_t NextVersion() {
  static std::atomic<uint64_t> last = 0;
  return ++last;
}

class MassSelector final : public Selector, public RankVectors {
 public:
  explicit MassSelector(const MassSelectorOptions& options)
      : layout_(options.shape, options.granularity),
        num_groups_(layout_.num_groups()),
        mass_(options.mass),
        most_rows_(static_cast<size_t>(options.most_rows)),
        reuse_(options.reuse),
        scale_(options.attention_scale > 0
                   ? options.attention_scale
                   : 1 / std::sqrt(static_cast<float>(options.shape.head_dim))),
        groups_(num_groups_),
        digests_(layout_.num_streams(), layout_.head_dim(), 2),
        keys_(layout_.num_streams(), layout_.head_dim(), 1),
        work_(options.shape.num_kv_heads) {
    keys_.MakeRoom(kExactPages * kPage);
    for (int layer = 0; layer < layout_.num_layers(); ++layer) {
      most_queries_ = std::max<size_t>(most_queries_, layout_.QueryHeadsPerKvHead(layer));
    }
    for (Work& work : work_) work.exact.resize(most_queries_ * kExactPages * kPage);
    if (reuse_ > 0) choices_.resize(layout_.num_streams());
    for (int stream = 0; stream < static_cast<int>(choices_.size()); ++stream) {
      const int layer = layout_.LayerOf(stream);
      if (options.shape.Window(layer) > 0) continue;
      for (Choice& choice : choices_[stream]) {
        choice.q.resize(size_t(layout_.QueryHeadsPerKvHead(layer)) * layout_.head_dim());
      }
    }
  }

  std::string Name() const override {
    const std::string rows = most_rows_ > 0 ? fmt::format(",rows={}", most_rows_) : "";
    const std::string reuse = reuse_ > 0 ? fmt::format(",reuse={:.6g}", reuse_) : "";
    return fmt::format("select:mass={:.6g}{}{},page={},keys=f16", mass_, rows, reuse, kPage);
  }
  SignalNeeds Needs() const override { return {.keys = true}; }

  // Allocates all memory before it changes anything, so that a failure leaves the selector as it
  // was.
  void Append(int group, std::span<const Position> positions) override {
    Group& of = groups_[group];
    const size_t most_pages = of.pages.size() + positions.size() / kPage + 2;
    MakeRoom(most_pages);
    of.pages.reserve(most_pages + most_pages / 4);
    if (of.page_versions.size() < most_pages) of.page_versions.resize(most_pages + most_pages / 4);
    for (const Position position : positions) {
      const bool is_summarised = of.pages.size() == of.num_digests;
      // A page may be full before its positions end if all rows of the page after it were evicted.
      if (is_summarised || position % kPage == 0 || of.pages.back() == kPage) of.pages.push_back(0);
      ++of.pages.back();
    }
    of.num_rows += positions.size();
  }

  // Stores the keys of the step, which belong to the newest rows.
  void ObserveGroup(int group, const GroupSignals&, const StepSignals& step) override {
    Group& of = groups_[group];
    size_t row = of.num_rows - step.num_tokens;
    size_t page = of.pages.size(), begin = of.num_rows;
    while (begin > row) begin -= of.pages[--page];
    for (int token = 0; token < step.num_tokens; ++token, ++row) {
      while (begin + of.pages[page] <= row) begin += of.pages[page++];
      if (row == begin) BeginPage(group, page);
      const size_t place = PlaceOf(of, page) + (row - begin);
      of.key_versions[place] = NextVersion();
      if (page == 0 && of.has_first) of.key_versions[row] = NextVersion();
      for (int stream = Begin(group); stream < Begin(group + 1); ++stream) {
        const std::span<const float> key = VectorOf(step.keys, layout_, stream, token);
        half_.resize(key.size());
        std::ranges::transform(key, half_.begin(), F16Of);
        keys_.Put(stream, place, half_);
        if (page == 0 && of.has_first) keys_.Put(stream, row, half_);
      }
    }
  }

  void Retain(int group, std::span<const uint32_t> kept) override {
    Group& of = groups_[group];
    ForgetChoices(group, kept);
    std::vector<uint32_t> left = RowsLeft(of.pages, kept);
    for (int stream = Begin(group); stream < Begin(group + 1); ++stream) {
      MoveKeys(stream, kept, &of);
      MoveDigests(stream, left, &of);
    }
    size_t num_digests = 0;
    std::vector<size_t> recent;
    for (size_t page = 0; page < left.size(); ++page) {
      if (left[page] == 0) continue;
      if (page < of.num_digests) {
        ++num_digests;
      } else {
        recent.push_back(RecentOf(of, page));
      }
    }
    CloseRing(group, recent);
    if (!left.empty() && left[0] == 0) of.has_first = false;
    std::erase(left, 0u);
    of.pages = std::move(left);
    if (of.pages.empty()) of.has_first = true;
    of.num_digests = num_digests;
    of.first_recent = recent.empty() ? 0 : recent.front();
    of.num_rows = kept.size();
  }

  void Rank(int layer, int kv_head, std::span<const float> q, int part, int num_parts) override {
    const int stream = layout_.StreamOf(layer, kv_head);
    const Group& of = groups_[layout_.GroupOf(stream)];
    if (!Selects(of)) return;
    Work& work = work_[kv_head];
    const size_t stride = KeyBlocks::RoundUp(of.num_digests);
    digests_.Multiply(stream, q, of.num_digests, part, num_parts, stride, work.means.data(),
                      work.variances.data());
    constexpr size_t kExact = kExactPages * kPage;
    keys_.Multiply(stream, q, kExact, part, num_parts, kExact, work.exact.data(), nullptr);
  }

  size_t NumRankKeys() const override { return kExactPages * kPage; }
  size_t NumRankPages(int group) const override {
    return Selects(groups_[group]) ? groups_[group].num_digests : 0;
  }
  uint64_t RankId() const override { return id_; }
  uint64_t RankKeyVersion(int group, size_t key) const override {
    return groups_[group].key_versions[key];
  }
  uint64_t RankPageVersion(int group, size_t page) const override {
    return groups_[group].page_versions[page];
  }
  void CopyRankKey(int stream, size_t key, std::span<uint16_t> to) const override {
    keys_.Get(stream, key, to);
  }
  void CopyRankPage(int stream, size_t page, std::span<uint16_t> mean,
                    std::span<uint16_t> variance) const override {
    const uint16_t* from = digests_.At(stream, page);
    for (size_t c = 0; c < mean.size(); ++c, from += 2 * KeyBlocks::kBlock) {
      mean[c] = *from;
      variance[c] = from[KeyBlocks::kBlock];
    }
  }
  float RankScale() const override { return scale_; }
  void SetRankProducts(int layer, int kv_head, size_t num_queries,
                       const Products& products) override {
    const Group& of = groups_[layout_.GroupOf(layout_.StreamOf(layer, kv_head))];
    if (!Selects(of)) return;
    Work& work = work_[kv_head];
    const size_t stride = KeyBlocks::RoundUp(of.num_digests);
    constexpr size_t kExact = kExactPages * kPage;
    const auto unscale = [](const float* from, size_t count, float scale, float* to) {
      for (size_t i = 0; i < count; ++i) to[i] = from[i] / scale;
    };
    for (size_t i = 0; i < num_queries; ++i) {
      unscale(products.keys + i * products.keys_stride, kExact, scale_,
              work.exact.data() + i * kExact);
      unscale(products.means + i * products.means_stride, of.num_digests, scale_,
              work.means.data() + i * stride);
      unscale(products.variances + i * products.variances_stride, of.num_digests, scale_ * scale_,
              work.variances.data() + i * stride);
    }
  }

  void Select(int layer, int kv_head, std::span<const float> q,
              std::vector<RowRange>* rows) override {
    const int stream = layout_.StreamOf(layer, kv_head);
    const Group& of = groups_[layout_.GroupOf(stream)];
    if (!Selects(of)) return;
    Work& work = work_[kv_head];
    work.chosen.assign(of.pages.size() + 1, 0);
    if (of.has_first) work.chosen[0] = 1;
    ChooseNewest(of, &work);
    const size_t num_queries = q.size() / layout_.head_dim();
    for (size_t i = 0; i < num_queries; ++i) MarkPages(of, i, &work);
    if (most_rows_ > 0) LimitRows(of, num_queries, &work);
    const bool is_reused = Reuses(stream) && ReuseChoice(of, q, &choices_[stream], &work);
    if (is_reused && most_rows_ > 0) LimitRows(of, num_queries, &work);
    CountUnread(of, num_queries, &work);
    if (std::find(work.chosen.begin(), work.chosen.end() - 1, 0) == work.chosen.end() - 1) return;
    WriteRanges(of.pages, work.chosen, rows);
  }

  void Foresee(int layer, int kv_head, std::vector<RowRange>* rows) const override {
    const int stream = layout_.StreamOf(layer, kv_head);
    if (!Reuses(stream)) return;
    const Group& of = groups_[layout_.GroupOf(stream)];
    for (const Choice& choice : choices_[stream]) {
      if (choice.num_rows == of.num_rows) WriteRanges(of.pages, choice.pages, rows);
    }
  }

  double EstimatedUnreadMass() const override {
    double unread = 0;
    int64_t num_choices = 0;
    for (const Work& work : work_) {
      unread += work.unread_mass;
      num_choices += work.num_choices;
    }
    return num_choices == 0 ? 0 : unread / static_cast<double>(num_choices);
  }
  size_t NumRows(int group) const override { return groups_[group].num_rows; }

  // Returns whole pages that a selector which had read only these rows would have summarised, as
  // long as they are full and summarised here too.
  std::optional<size_t> NumRowsToShare(size_t num_rows) const override {
    const size_t num_pages = (num_rows + kPage - 1) / kPage;
    const size_t num_digests = num_pages - std::min(num_pages, kRecentPages);
    for (const Group& of : groups_) {
      const auto full = [](uint32_t rows) { return rows == kPage; };
      if (!of.has_first || of.num_digests < num_digests ||
          !std::all_of(of.pages.begin(), of.pages.begin() + num_digests, full)) {
        return std::nullopt;
      }
    }
    return num_digests * kPage;
  }
  void TakeFirstRows(const Selector& from, size_t num_rows) override {
    const auto& other = dynamic_cast<const MassSelector&>(from);
    const size_t num_digests = num_rows / kPage;
    MakeRoom(num_digests);
    if (num_digests == 0) return;
    std::vector<uint16_t> numbers(2 * layout_.head_dim());
    for (int stream = 0; stream < layout_.num_streams(); ++stream) {
      for (size_t page = 0; page < num_digests; ++page) {
        other.digests_.Get(stream, page, numbers);
        digests_.Put(stream, page, numbers);
      }
      const std::span<uint16_t> key = Part(&numbers, 0, 1);
      for (size_t row = 0; row < kPage; ++row) {
        other.keys_.Get(stream, row, key);
        keys_.Put(stream, row, key);
      }
    }
    for (Group& of : groups_) {
      of.pages.assign(num_digests, kPage);
      of.num_rows = num_rows;
      of.num_digests = num_digests;
      of.first_recent = num_digests % kRecentPages;
      RenewVersions(&of);
    }
  }
  bool ComparesKeys() const override { return true; }

  Status SaveState(StateWriter* to) const override {
    for (const Group& of : groups_) {
      to->Numbers<uint32_t>(of.pages);
      to->Number<uint64_t>(of.num_digests);
      to->Number<uint64_t>(of.first_recent);
      to->Number<uint8_t>(of.has_first ? 1 : 0);
    }
    std::vector<uint16_t> numbers;
    for (int stream = 0; stream < layout_.num_streams(); ++stream) {
      const Group& of = groups_[layout_.GroupOf(stream)];
      numbers.resize(of.num_digests * 2 * layout_.head_dim());
      for (size_t page = 0; page < of.num_digests; ++page) {
        digests_.Get(stream, page, Part(&numbers, page, 2));
      }
      to->Numbers<uint16_t>(numbers);
      numbers.resize(kExactPages * kPage * layout_.head_dim());
      for (size_t key = 0; key < kExactPages * kPage; ++key) {
        keys_.Get(stream, key, Part(&numbers, key, 1));
      }
      to->Numbers<uint16_t>(numbers);
    }
    for (int stream = 0; stream < static_cast<int>(choices_.size()); ++stream) {
      for (const Choice& choice : choices_[stream]) {
        to->Number<uint64_t>(choice.num_rows);
        if (choice.num_rows == 0) continue;
        to->Numbers<uint8_t>(choice.pages);
        to->Numbers<float>(choice.q);
      }
    }
    return OkStatus();
  }

  Status LoadState(StateReader* from) override {
    for (Group& of : groups_) {
      of.pages = from->Numbers<uint32_t>();
      of.num_digests = from->Number<uint64_t>();
      of.first_recent = from->Number<uint64_t>();
      of.has_first = from->Number<uint8_t>() != 0;
      of.num_rows = std::accumulate(of.pages.begin(), of.pages.end(), size_t{0});
      const auto has_no_size = [](uint32_t rows) { return rows < 1 || rows > kPage; };
      if (std::ranges::any_of(of.pages, has_no_size)) from->Fail("a page of no size");
      if (of.num_digests > of.pages.size() || of.pages.size() - of.num_digests > kRecentPages ||
          of.first_recent >= kRecentPages) {
        from->Fail("summaries of another number of pages");
        return from->status();
      }
      MakeRoom(of.pages.size());
      RenewVersions(&of);
    }
    for (int stream = 0; stream < layout_.num_streams(); ++stream) {
      const Group& of = groups_[layout_.GroupOf(stream)];
      EBB_RETURN_IF_ERROR(LoadBlocks(stream, of.num_digests, 2, from, &digests_));
      EBB_RETURN_IF_ERROR(LoadBlocks(stream, kExactPages * kPage, 1, from, &keys_));
    }
    for (int stream = 0; stream < static_cast<int>(choices_.size()); ++stream) {
      for (Choice& choice : choices_[stream]) {
        EBB_RETURN_IF_ERROR(LoadChoice(groups_[layout_.GroupOf(stream)], from, &choice));
      }
    }
    return from->status();
  }

 private:
  struct Group {
    std::vector<uint32_t> pages;  // rows of each
    size_t num_rows = 0;          // their sum
    size_t num_digests = 0;       // of the first pages
    // The pages without a digest have their keys in keys_, page after page from this one on, in a
    // ring of kRecentPages.
    size_t first_recent = 0;
    bool has_first = true;  // page 0 is that of the sequence's first rows, whose keys are kept
    std::vector<uint64_t> key_versions = std::vector<uint64_t>(kExactPages * kPage);
    std::vector<uint64_t> page_versions;  // [at least num_digests]
  };
  // Work is the work space for the choice of one kv head.
  struct Work {
    // means and variances hold those of pages' logits, unscaled: [queries, digests, rounded up].
    // MarkPages() replaces a query head's means by the pages' shares of its mass.
    std::vector<float> means, variances;
    std::vector<float> exact;     // [queries, kExactPages * kPage]: logits, unscaled
    std::vector<float> log_mass;  // [digests]
    std::vector<uint8_t> chosen;  // [pages + 1]; behind the newest stands 0
    std::vector<uint32_t> order;  // of chosen pages, largest share first
    double unread_mass = 0;       // summed over choices of query heads: shares of all mass
    int64_t num_choices = 0;
  };

  // Choice holds the pages that the queries of one token chose in a stream.
  struct Choice {
    size_t num_rows = 0;         // of the group, the token's own among them; 0: no choice
    std::vector<uint8_t> pages;  // [pages + 1], as Work::chosen
    std::vector<float> q;        // [queries, head_dim]
  };
  // TwoChoices holds the choices of the newest token and of the one before, so that a step that
  // fails and is repeated still finds the choice of the token before it.
  using TwoChoices = std::array<Choice, 2>;

  // Returns the group's first stream; its streams end before Begin(group + 1).
  [[nodiscard]] int Begin(int group) const { return layout_.FirstStreamOf(group); }
  // Returns the first page that is not always read.
  [[nodiscard]] static size_t FirstOf(const Group& of) { return of.has_first ? 1 : 0; }
  [[nodiscard]] bool Selects(const Group& of) const {
    return (mass_ < 1 || most_rows_ > 0) && of.num_digests > FirstOf(of) &&
           of.pages.size() >= kFewestPages;
  }
  [[nodiscard]] std::span<uint16_t> Part(std::vector<uint16_t>* numbers, size_t entry,
                                         size_t vectors) const {
    const size_t size = vectors * layout_.head_dim();
    return std::span(*numbers).subspan(entry * size, size);
  }
  [[nodiscard]] static size_t RecentOf(const Group& of, size_t page) {
    return (of.first_recent + page - of.num_digests) % kRecentPages;
  }
  // Returns the entry of keys_ at which the keys of a page without a digest begin. The keys of the
  // first page come before all of them.
  [[nodiscard]] static size_t PlaceOf(const Group& of, size_t page) {
    return (1 + RecentOf(of, page)) * kPage;
  }

  // Allocates the memory that Rank() and Select() need, because an allocation there must not fail.
  void MakeRoom(size_t num_pages) {
    digests_.MakeRoom(num_pages);
    for (TwoChoices& of_stream : choices_) {
      for (Choice& choice : of_stream) {
        if (choice.pages.capacity() <= num_pages) choice.pages.reserve(2 * num_pages + 1);
      }
    }
    for (Work& work : work_) {
      if (work.log_mass.size() >= num_pages) continue;
      const size_t room = KeyBlocks::RoundUp(2 * num_pages);
      work.chosen.reserve(room + 1);
      work.order.reserve(room);
      work.means.resize(room * most_queries_);
      work.variances.resize(room * most_queries_);
      work.log_mass.resize(room);  // last: it tells whether there is room
    }
  }

  // Gives every vector a new version, as if all had changed. REQUIRES: `pages` has its final
  // length.
  static void RenewVersions(Group* of) {
    if (of->page_versions.size() < of->pages.size()) of->page_versions.resize(of->pages.size());
    for (uint64_t& version : of->key_versions) version = NextVersion();
    for (uint64_t& version : of->page_versions) version = NextVersion();
  }

  // Prepares for the first key of a page: summarises the pages whose keys it would overwrite in the
  // ring.
  void BeginPage(int group, size_t page) {
    Group& of = groups_[group];
    while (page - of.num_digests >= kRecentPages) {
      for (int stream = Begin(group); stream < Begin(group + 1); ++stream) {
        Summarise(stream, of, of.num_digests);
      }
      of.page_versions[of.num_digests] = NextVersion();
      ++of.num_digests;
      of.first_recent = (of.first_recent + 1) % kRecentPages;
    }
  }

  void Summarise(int stream, const Group& of, size_t page) {
    const size_t dim = layout_.head_dim();
    std::vector<double> sums(dim), squares(dim);
    std::vector<uint16_t> key(dim), digest(2 * dim);
    for (size_t row = 0; row < of.pages[page]; ++row) {
      keys_.Get(stream, PlaceOf(of, page) + row, key);
      for (size_t c = 0; c < dim; ++c) {
        const double x = FloatOfF16(key[c]);
        sums[c] += x;
        squares[c] += x * x;
      }
    }
    const double count = of.pages[page];
    for (size_t c = 0; c < dim; ++c) {
      const double mean = sums[c] / count;
      digest[c] = F16Of(static_cast<float>(mean));
      digest[dim + c] = F16Of(static_cast<float>(std::max(0.0, squares[c] / count - mean * mean)));
    }
    digests_.Put(stream, page, digest);
  }

  // Moves the keys of recent pages together in the ring, where pages between them lost all rows.
  // `recent`: the places in the ring of the pages that have rows, in order.
  void CloseRing(int group, std::span<const size_t> recent) {
    std::vector<uint16_t> key(layout_.head_dim());
    for (size_t i = 1; i < recent.size(); ++i) {
      const size_t to = (recent.front() + i) % kRecentPages;
      if (recent[i] == to) continue;
      for (size_t row = 0; row < kPage; ++row) {
        const size_t target = (1 + to) * kPage + row;
        groups_[group].key_versions[target] = NextVersion();
        for (int stream = Begin(group); stream < Begin(group + 1); ++stream) {
          keys_.Get(stream, (1 + recent[i]) * kPage + row, key);
          keys_.Put(stream, target, key);
        }
      }
    }
  }

  // Closes the gaps that removed rows leave among the stored keys.
  void MoveKeys(int stream, std::span<const uint32_t> kept, Group* group) {
    const Group& of = *group;
    std::vector<uint16_t> key(layout_.head_dim());
    size_t page = 0, begin = 0, num_kept = 0;
    for (const uint32_t row : kept) {
      while (begin + of.pages[page] <= row) {
        begin += of.pages[page++];
        num_kept = 0;
      }
      const size_t from = row - begin, to = num_kept++;
      if (from == to) continue;
      const auto move = [&](size_t place) {
        keys_.Get(stream, place + from, key);
        keys_.Put(stream, place + to, key);
        group->key_versions[place + to] = NextVersion();
      };
      if (page == 0 && of.has_first) move(0);
      if (page >= of.num_digests) move(PlaceOf(of, page));
    }
  }
  void MoveDigests(int stream, std::span<const uint32_t> left, Group* group) {
    std::vector<uint16_t> digest(2 * layout_.head_dim());
    size_t to = 0;
    for (size_t page = 0; page < group->num_digests; ++page) {
      if (left[page] == 0) continue;
      if (to != page) {
        digests_.Get(stream, page, digest);
        digests_.Put(stream, to, digest);
        group->page_versions[to] = NextVersion();
      }
      ++to;
    }
  }

  static void ChooseNewest(const Group& of, Work* work) {
    std::fill(work->chosen.begin() + static_cast<ptrdiff_t>(of.num_digests), work->chosen.end() - 1,
              1);
  }

  // Marks the pages that a query head reads, and stores each page's share of the head's mass.
  void MarkPages(const Group& of, size_t query, Work* work) const {
    const size_t stride = KeyBlocks::RoundUp(of.num_digests);
    float* const means = work->means.data() + query * stride;
    const float* const variances = work->variances.data() + query * stride;
    float top = -std::numeric_limits<float>::infinity();
    for (size_t page = FirstOf(of); page < of.num_digests; ++page) {
      const float log_rows = std::log(static_cast<float>(of.pages[page]));
      const float variance = scale_ * scale_ * variances[page];
      const float more =
          variance <= 2 * log_rows ? variance / 2 : std::sqrt(2 * variance * log_rows) - log_rows;
      float log_mass = log_rows + scale_ * means[page] + more;
      if (!std::isfinite(log_mass)) log_mass = -std::numeric_limits<float>::infinity();
      work->log_mass[page] = log_mass;
      top = std::max(top, log_mass);
    }
    if (!std::isfinite(top)) {
      std::fill(means + FirstOf(of), means + of.num_digests, 0.0f);
      return;
    }
    std::array<double, kBuckets> buckets = {};
    const auto bucket_of = [&](float log_mass) {
      const float below = (top - log_mass) * kBucketsPerNat;
      return below < kBuckets ? static_cast<size_t>(below) : kBuckets;
    };
    double total = ExactMass(of, query, top, *work);
    double read = total;
    for (size_t page = FirstOf(of); page < of.num_digests; ++page) {
      const size_t bucket = bucket_of(work->log_mass[page]);
      means[page] = 0;
      if (bucket == kBuckets) continue;
      const double mass = std::exp(double{work->log_mass[page]} - top);
      means[page] = static_cast<float>(mass);
      buckets[bucket] += mass;
      total += mass;
    }
    size_t end = 0;  // of the buckets that are read
    while (end < kBuckets && read < mass_ * total) read += buckets[end++];
    const float inverse = total > 0 ? static_cast<float>(1 / total) : 0;
    for (size_t page = FirstOf(of); page < of.num_digests; ++page) {
      if (bucket_of(work->log_mass[page]) < end) work->chosen[page] = 1;
      means[page] *= inverse;
    }
  }

  [[nodiscard]] bool Reuses(int stream) const {
    return !choices_.empty() && !choices_[stream].front().q.empty();
  }
  [[nodiscard]] static const Choice* FindChoice(size_t num_rows, const TwoChoices& choices) {
    const auto found = std::ranges::find(choices, num_rows, &Choice::num_rows);
    return num_rows == 0 || found == choices.end() ? nullptr : &*found;
  }

  // Stores the choice of the token's queries. If the previous token's choice may be reused,
  // replaces the chosen pages by it and returns true.
  bool ReuseChoice(const Group& of, std::span<const float> q, TwoChoices* choices,
                   Work* work) const {
    const Choice* const before = FindChoice(of.num_rows - 1, *choices);
    Choice& own = (*choices)[before == choices->data() ? 1 : 0];
    own.num_rows = of.num_rows;
    std::ranges::copy(q, own.q.begin());
    own.pages.assign(work->chosen.begin(), work->chosen.end());
    if (before == nullptr || MeanCosine(q, before->q) < reuse_) return false;
    std::copy(before->pages.begin(), before->pages.end() - 1, work->chosen.begin());
    ChooseNewest(of, work);  // pages that have begun since are among them
    return true;
  }

  [[nodiscard]] double MeanCosine(std::span<const float> a, std::span<const float> b) const {
    const size_t dim = layout_.head_dim();
    double sum = 0;
    for (size_t begin = 0; begin < a.size(); begin += dim) {
      double product = 0, square_a = 0, square_b = 0;
      for (size_t c = begin; c < begin + dim; ++c) {
        product += double{a[c]} * b[c];
        square_a += double{a[c]} * a[c];
        square_b += double{b[c]} * b[c];
      }
      const double cosine = product / std::sqrt(square_a * square_b);
      if (std::isfinite(cosine)) sum += cosine;
    }
    return sum / static_cast<double>(a.size() / dim);
  }

  // Forgets the choices that name rows which are now removed.
  void ForgetChoices(int group, std::span<const uint32_t> kept) {
    if (choices_.empty()) return;
    size_t num_first = 0;  // rows that stay where they are
    while (num_first < kept.size() && kept[num_first] == num_first) ++num_first;
    for (int stream = Begin(group); stream < Begin(group + 1); ++stream) {
      for (Choice& choice : choices_[stream]) {
        if (choice.num_rows > num_first) choice.num_rows = 0;
      }
    }
  }

  [[nodiscard]] Status LoadChoice(const Group& of, StateReader* from, Choice* choice) const {
    choice->num_rows = from->Number<uint64_t>();
    if (choice->num_rows == 0) return from->status();
    const std::vector<uint8_t> pages = from->Numbers<uint8_t>();
    const std::vector<float> q = from->Numbers<float>();
    size_t num_pages = 0;  // of the rows that the choice was made among
    for (size_t rows = 0; rows < choice->num_rows && num_pages < of.pages.size(); ++num_pages) {
      rows += of.pages[num_pages];
    }
    const auto is_no_flag = [](uint8_t chosen) { return chosen > 1; };
    if (choice->num_rows > of.num_rows || q.size() != choice->q.size() || q.empty() ||
        pages.size() != num_pages + 1 || pages[num_pages] != 0 || pages[num_pages - 1] != 1 ||
        (of.has_first && pages[0] != 1) || std::ranges::any_of(pages, is_no_flag)) {
      from->Fail("a choice of other pages");
      return from->status();
    }
    std::ranges::copy(q, choice->q.begin());
    choice->pages.assign(pages.begin(), pages.end());
    return from->status();
  }

  // Drops the chosen pages with the smallest shares until at most most_rows_ rows are read.
  void LimitRows(const Group& of, size_t num_queries, Work* work) const {
    size_t num_rows = 0;
    for (size_t page = 0; page < of.pages.size(); ++page) {
      if (work->chosen[page] != 0) num_rows += of.pages[page];
    }
    if (num_rows <= most_rows_) return;
    const size_t stride = KeyBlocks::RoundUp(of.num_digests);
    std::vector<float>& shares = work->log_mass;  // the largest of any query head
    work->order.clear();
    for (size_t page = FirstOf(of); page < of.num_digests; ++page) {
      if (work->chosen[page] == 0) continue;
      work->order.push_back(static_cast<uint32_t>(page));
      shares[page] = 0;
      for (size_t i = 0; i < num_queries; ++i) {
        shares[page] = std::max(shares[page], work->means[i * stride + page]);
      }
    }
    std::sort(work->order.begin(), work->order.end(), [&](uint32_t a, uint32_t b) {
      return shares[a] != shares[b] ? shares[a] > shares[b] : a < b;
    });
    while (num_rows > most_rows_ && !work->order.empty()) {
      work->chosen[work->order.back()] = 0;
      num_rows -= of.pages[work->order.back()];
      work->order.pop_back();
    }
  }

  // Adds the shares of the pages that are not read to the work space's unread mass.
  void CountUnread(const Group& of, size_t num_queries, Work* work) const {
    const size_t stride = KeyBlocks::RoundUp(of.num_digests);
    for (size_t i = 0; i < num_queries; ++i) {
      const float* const shares = work->means.data() + i * stride;
      float unread = 0;
      for (size_t page = FirstOf(of); page < of.num_digests; ++page) {
        unread += work->chosen[page] == 0 ? shares[page] : 0;
      }
      work->unread_mass += unread;
    }
    work->num_choices += static_cast<int64_t>(num_queries);
  }

  // Returns the mass of the rows that are always read, relative to e^top. The newest row's key is
  // not known yet, so that row does not count.
  [[nodiscard]] double ExactMass(const Group& of, size_t query, float top, const Work& work) const {
    const float* const logits = work.exact.data() + query * kExactPages * kPage;
    double sum = 0;
    const auto add = [&](const float* from, size_t count) {
      for (size_t row = 0; row < count; ++row) {
        const double mass = std::exp(std::min(double{scale_ * from[row]} - top, 600.0));
        if (std::isfinite(mass)) sum += mass;
      }
    };
    if (of.has_first) add(logits, of.pages[0]);
    for (size_t page = of.num_digests; page < of.pages.size(); ++page) {
      const bool is_newest = page + 1 == of.pages.size();
      add(logits + PlaceOf(of, page), of.pages[page] - (is_newest ? 1 : 0));
    }
    return sum;
  }

  Status LoadBlocks(int stream, size_t num_entries, size_t vectors, StateReader* from,
                    KeyBlocks* to) const {
    std::vector<uint16_t> numbers = from->Numbers<uint16_t>();
    const auto is_not_finite = [](uint16_t x) { return (x & 0x7c00) == 0x7c00; };
    if (numbers.size() != num_entries * vectors * layout_.head_dim()) {
      from->Fail("keys of another number of rows");
    } else if (std::ranges::any_of(numbers, is_not_finite)) {
      from->Fail("keys that are not finite");
    } else {
      for (size_t entry = 0; entry < num_entries; ++entry) {
        to->Put(stream, entry, Part(&numbers, entry, vectors));
      }
    }
    return from->status();
  }

  const uint64_t id_ = NextVersion();
  const AttentionLayout layout_;
  const int num_groups_;
  const double mass_;       // the share of each query head's mass that is read
  const size_t most_rows_;  // that a kv head reads; 0: no limit
  const double reuse_;      // the least mean cosine of queries; 0: no choice is reused
  const float scale_;       // of logits
  std::vector<Group> groups_;
  KeyBlocks digests_;       // mean and variance of the keys of each page but the newest ones
  KeyBlocks keys_;          // of the first page, and of the newest ones
  std::vector<Work> work_;  // [the most kv heads of any layer]
  std::vector<TwoChoices> choices_;  // [streams]; empty: no choice is reused
  size_t most_queries_ = 0;          // that share a kv head
  std::vector<uint16_t> half_;
};

}  // namespace

size_t MassSelectorBytes(const MassSelectorOptions& options, size_t num_tokens) {
  const ModelShape& shape = options.shape;
  const size_t streams = shape.NumStreams(), dim = shape.head_dim;
  const size_t queries = size_t(shape.num_layers) * shape.num_q_heads;
  const size_t num_pages = PagesFor(num_tokens) + 1;  // evicted rows leave shorter ones
  const size_t room = KeyBlocks::RoundUp(2 * num_pages);
  size_t bytes = KeyBlocks::BytesFor(streams, dim, 2, num_pages) +
                 KeyBlocks::BytesFor(streams, dim, 1, kKeysOfMassSelector);
  // Counts the bytes of a choice for each kv head of a layer.
  bytes += (2 * room + kKeysOfMassSelector) * shape.num_q_heads * sizeof(float) +
           room * shape.num_kv_heads * (sizeof(float) + sizeof(uint8_t) + sizeof(uint32_t));
  if (options.reuse > 0) bytes += 2 * (queries * dim * sizeof(float) + streams * (room + 1));
  return bytes;
}

std::unique_ptr<Selector> MakeMassSelector(const MassSelectorOptions& options) {
  return std::make_unique<MassSelector>(options);
}

}  // namespace ebb
